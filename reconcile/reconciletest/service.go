package reconciletest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// serviceRules are those of Services of type ClusterIP in a cluster with IPv4 only. Nothing makes Endpoints or
// EndpointSlices.
func serviceRules() *rules {
	return &rules{
		new: func() object { return &corev1.Service{} }, createOnUpdate: true, returnDeleted: true,
		defaults: func(o object) { defaultService(&o.(*corev1.Service).Spec) },
		onCreate: func(o object) {
			s := o.(*corev1.Service)
			if s.Spec.ClusterIP == "" {
				s.Spec.ClusterIP = clusterIP(string(s.UID))
			}
			if len(s.Spec.ClusterIPs) == 0 {
				s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
			}
			fillFamilies(&s.Spec)
		},
		onUpdate: func(o, old object) { keepAddress(&o.(*corev1.Service).Spec, old.(*corev1.Service).Spec) },
		validate: func(o, old object) field.ErrorList {
			s := o.(*corev1.Service)
			errs := validateService(s.Spec)
			if was, ok := old.(*corev1.Service); ok && len(s.Spec.ClusterIPs) == len(was.Spec.ClusterIPs) &&
				!slices.Equal(s.Spec.ClusterIPs, was.Spec.ClusterIPs) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), s.Spec.ClusterIPs,
					"may not change once set"))
			}
			return errs
		},
		beyond: func(o object) string {
			s := o.(*corev1.Service)
			chosen := func(ip string) bool { return ip != "" && ip != corev1.ClusterIPNone }
			isNew := s.CreationTimestamp.IsZero()
			switch {
			case isNew && (chosen(s.Spec.ClusterIP) || slices.ContainsFunc(s.Spec.ClusterIPs, chosen)):
				return "an IP that the client chooses"
			case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
				return "a headless Service without a selector" // it would get addresses of both families
			}
			return ""
		},
		fields: func(o object) fields.Set {
			spec := o.(*corev1.Service).Spec
			return fields.Set{"spec.clusterIP": spec.ClusterIP, "spec.type": string(spec.Type)}
		},
	}
}

func defaultService(spec *corev1.ServiceSpec) {
	orValue(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	orValue(&spec.Type, corev1.ServiceTypeClusterIP)
	orDefault(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		orValue(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
}

// clusterIP is an address of 10.96.0.0/12. UIDs end in a number of their own, of which it takes the last 20 bits.
func clusterIP(uid string) string {
	n, _ := strconv.ParseUint(uid[strings.LastIndex(uid, "-")+1:], 16, 64)
	n = n&0xfffff | 96<<16
	return fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&0xff, n&0xff)
}

// isAddressTaken reports whether a Service has the address that a new one would get: one of the base of a fork, which
// counts otherwise, or one whose author has chosen it.
func isAddressTaken(s *Server, r *Resource, o object) bool {
	if _, ok := o.(*corev1.Service); !ok {
		return false
	}
	address := clusterIP(string(o.GetUID()))
	return slices.ContainsFunc(s.store.list(r.GroupResource(), math.MaxInt64), func(o object) bool {
		return o.(*corev1.Service).Spec.ClusterIP == address
	})
}

func fillFamilies(spec *corev1.ServiceSpec) {
	orDefault(&spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
}

// keepAddress gives an update the address that it leaves out.
func keepAddress(spec *corev1.ServiceSpec, was corev1.ServiceSpec) {
	switch same := slices.Equal(spec.ClusterIPs, was.ClusterIPs); {
	case spec.ClusterIP == was.ClusterIP && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = was.ClusterIPs
	case spec.ClusterIP == "" && same:
		spec.ClusterIPs = nil
	case spec.ClusterIP != was.ClusterIP && same:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if was.ClusterIP != corev1.ClusterIPNone || spec.ClusterIP == "" {
		orValue(&spec.ClusterIP, was.ClusterIP)
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = was.ClusterIPs
		}
	}
	fillFamilies(spec)
}

func validateService(spec corev1.ServiceSpec) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if len(spec.Ports) == 0 && spec.ClusterIP != corev1.ClusterIPNone {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	names, ports := map[string]bool{}, map[corev1.ServicePort]bool{}
	for i, p := range spec.Ports {
		at := path.Child("ports").Index(i)
		errs = append(errs, validateServicePort(p, len(spec.Ports) > 1, names[p.Name], at)...)
		if key := (corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}); ports[key] {
			errs = append(errs, field.Duplicate(at, key))
		} else {
			ports[key] = true
		}
		names[p.Name] = true
	}
	errs = append(errs, metav1validation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	ips := path.Child("clusterIPs")
	if len(spec.ClusterIPs) == 0 || spec.ClusterIPs[0] != spec.ClusterIP {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	return errs
}

func validateServicePort(p corev1.ServicePort, named, twice bool, at *field.Path) (errs field.ErrorList) {
	invalid := func(name string, value any, messages []string) {
		for _, message := range messages {
			errs = append(errs, field.Invalid(at.Child(name), value, message))
		}
	}
	switch {
	case p.Name == "" && named:
		errs = append(errs, field.Required(at.Child("name"), ""))
	case p.Name != "":
		invalid("name", p.Name, validation.IsDNS1123Label(p.Name))
		if twice {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
	}
	invalid("port", p.Port, validation.IsValidPortNum(int(p.Port)))
	if p.TargetPort.Type == intstr.String {
		invalid("targetPort", p.TargetPort.StrVal, validation.IsValidPortName(p.TargetPort.StrVal))
	} else {
		invalid("targetPort", p.TargetPort.IntVal, validation.IsValidPortNum(p.TargetPort.IntValue()))
	}
	if p.AppProtocol != nil {
		invalid("appProtocol", *p.AppProtocol, validation.IsQualifiedName(*p.AppProtocol))
	}
	return errs
}

// serviceFields are those of a Service that are modelled.
func serviceFields() modelled {
	return modelled{}.with("spec", "selector", "publishNotReadyAddresses", "ports[].name", "ports[].port",
		"ports[].targetPort", "ports[].appProtocol").and("spec", modelled{
		"type":             oneOf(string(corev1.ServiceTypeClusterIP)),
		"sessionAffinity":  oneOf(string(corev1.ServiceAffinityNone)),
		"ports[].protocol": oneOf(string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP)),
		"internalTrafficPolicy": oneOf(string(corev1.ServiceInternalTrafficPolicyCluster),
			string(corev1.ServiceInternalTrafficPolicyLocal)),
		"clusterIP": emptyOr(address), "clusterIPs[]": address,
		"ipFamilies[]":   oneOf(string(corev1.IPv4Protocol)),
		"ipFamilyPolicy": oneOf(string(corev1.IPFamilyPolicySingleStack)),
	}).with("status.conditions[]", append(slices.Clone(condition), "observedGeneration")...)
}

// address is that of a headless Service, or one that this server gives.
func address(v any) bool {
	s, _ := v.(string)
	return s == corev1.ClusterIPNone || strings.HasPrefix(s, "10.")
}
