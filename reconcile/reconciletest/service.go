package reconciletest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serviceRules are those of Services in a cluster with IPv4 only. Nothing makes Endpoints or EndpointSlices.
func serviceRules() *rules {
	return &rules{
		new: func() object { return &corev1.Service{} }, createOnUpdate: true, returnDeleted: true,
		defaults: func(o object) { defaultService(o.(*corev1.Service)) },
		draw:     drawForService,
		onUpdate: func(o, old object) { dropOfType(o.(*corev1.Service), old.(*corev1.Service).Spec) },
		validate: validateService,
		warn:     warnOfService,
		beyond: func(o object) string {
			spec := o.(*corev1.Service).Spec
			none := spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP == corev1.ClusterIPNone
			single := spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
			if none && len(spec.Selector) == 0 && !single {
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

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	orValue(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch config := spec.SessionAffinityConfig; {
	case spec.SessionAffinity == corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case spec.SessionAffinity == corev1.ServiceAffinityClientIP &&
		(config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil):
		timeout := corev1.DefaultClientIPServiceAffinitySeconds
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
	orValue(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		orValue(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if reachedFromOutside(*spec) {
		orValue(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		orDefault(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	orDefault(&spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
			orDefault(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

// reachedFromOutside reports whether a Service is there for who is outside of the cluster.
func reachedFromOutside(spec corev1.ServiceSpec) bool {
	return isOnNodes(spec) || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

// isOnNodes reports whether a Service is of a type whose ports are open on each node.
func isOnNodes(spec corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// isChecked reports whether each node says on a port of its own whether it has pods of a Service.
func isChecked(spec corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func isHeadless(spec corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// drawForService gives a Service what all Services share: addresses and node ports. An update keeps those that it
// leaves out.
func drawForService(s *Server, c *call, o, live object) (release func(), err error) {
	is := o.(*corev1.Service)
	d := &draw{server: s, service: is, dry: c.DryRun, free: s.fork != nil}
	if was, ok := live.(*corev1.Service); ok {
		d.was = &was.Spec
		keepAddress(&is.Spec, was.Spec)
		keepPorts(&is.Spec, was.Spec)
	} else if is.Spec.ClusterIP != "" && len(is.Spec.ClusterIPs) == 0 {
		is.Spec.ClusterIPs = []string{is.Spec.ClusterIP}
	}
	if err = d.addresses(); err == nil {
		err = d.ports()
	}
	if err != nil {
		d.release()
		return nil, err
	}
	return d.release, nil
}

// dropOfType takes out of an update what its type has no use for, if the old type had and the client has left it as it
// was: what the client sets is for the checks.
func dropOfType(s *corev1.Service, was corev1.ServiceSpec) {
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		dropAddress(spec, was)
	}
	if isOnNodes(was) && !isOnNodes(*spec) && !opensPorts(*spec, was) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if isChecked(was) && !isChecked(*spec) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if reachedFromOutside(was) && !reachedFromOutside(*spec) &&
		spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		return
	}
	if was.Type == corev1.ServiceTypeLoadBalancer {
		if setAlike(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if setAlike(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
}

// setAlike reports whether two fields are set to the same, or both are not set.
func setAlike[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// asRead is an answer as a client reads it: a Service of the type ExternalName keeps its internal traffic policy for
// the day on which it has another type, and does not show it. A real server does, in what has just happened, to a watch
// that is one of three or more.
func asRead(o runtime.Object) runtime.Object {
	hides := func(s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeExternalName && s.Spec.InternalTrafficPolicy != nil
	}
	switch o := o.(type) {
	case *corev1.Service:
		if hides(o) {
			shown := *o
			shown.Spec.InternalTrafficPolicy = nil
			return &shown
		}
	case *corev1.ServiceList:
		if !slices.ContainsFunc(o.Items, func(s corev1.Service) bool { return hides(&s) }) {
			return o
		}
		shown := *o
		shown.Items = slices.Clone(o.Items)
		for i := range shown.Items {
			if hides(&shown.Items[i]) {
				shown.Items[i].Spec.InternalTrafficPolicy = nil
			}
		}
		return &shown
	}
	return o
}

// serviceFields are those of a Service that are modelled.
func serviceFields() modelled {
	return modelled{}.with("spec", "selector", "publishNotReadyAddresses", "ports[].name", "ports[].port",
		"ports[].targetPort", "ports[].nodePort", "ports[].appProtocol", "externalIPs", "externalName",
		"sessionAffinityConfig.clientIP.timeoutSeconds", "allocateLoadBalancerNodePorts", "loadBalancerClass",
		"loadBalancerSourceRanges", "healthCheckNodePort").and("spec", modelled{
		"type": oneOf(string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeNodePort),
			string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeExternalName)),
		"sessionAffinity":  oneOf(string(corev1.ServiceAffinityNone), string(corev1.ServiceAffinityClientIP)),
		"ports[].protocol": oneOf(string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP)),
		"internalTrafficPolicy": oneOf(string(corev1.ServiceInternalTrafficPolicyCluster),
			string(corev1.ServiceInternalTrafficPolicyLocal)),
		"externalTrafficPolicy": oneOf(string(corev1.ServiceExternalTrafficPolicyCluster),
			string(corev1.ServiceExternalTrafficPolicyLocal)),
		"trafficDistribution": oneOf(corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode),
		"clusterIP": emptyOr(address), "clusterIPs[]": address, "loadBalancerIP": emptyOr(isIPv4),
		"ipFamilies[]":   oneOf(string(corev1.IPv4Protocol)),
		"ipFamilyPolicy": oneOf(string(corev1.IPFamilyPolicySingleStack)),
	}).with("status.conditions[]", append(slices.Clone(condition), "observedGeneration")...).
		with("status.loadBalancer.ingress[]", "ip", "hostname", "ports[].port", "ports[].protocol", "ports[].error").
		and("status.loadBalancer.ingress[]", modelled{
			"ipMode": oneOf(string(corev1.LoadBalancerIPModeVIP), string(corev1.LoadBalancerIPModeProxy))})
}
