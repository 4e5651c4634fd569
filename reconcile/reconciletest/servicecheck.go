package reconciletest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// longestAffinity is how long, in seconds, a client may be sent to the same pod.
const longestAffinity = 86400

// validateService says what is wrong with a Service that has got what it shares with others.
func validateService(o, old object) (errs field.ErrorList) {
	s, path := o.(*corev1.Service), field.NewPath("spec")
	was, changes := old.(*corev1.Service)
	if changes {
		errs = validateServiceChange(s.Spec, was.Spec, path)
	} else {
		was = &corev1.Service{}
	}
	errs = append(errs, validateOfType(s.Spec, path)...)
	errs = append(errs, validateServicePorts(s.Spec, path.Child("ports"))...)
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, path.Child("selector"))...)
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		timeout := *s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds
		if timeout <= 0 || timeout > longestAffinity {
			errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"),
				timeout, fmt.Sprintf("must be greater than 0 and less than %d", longestAffinity)))
		}
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, validateAddresses(s.Spec, was.Spec.ClusterIPs)...)
	}
	for i, ip := range s.Spec.ExternalIPs {
		errs = append(errs, validateExternalIP(ip, was.Spec.ExternalIPs, path.Child("externalIPs").Index(i))...)
	}
	errs = append(errs, validateSources(s, was, path)...)
	errs = append(errs, validateTopology(s.Annotations)...)
	return append(errs, validateBalancerStatus(s, was)...)
}

// invalid adds an error for each complaint of a value.
func invalid(errs *field.ErrorList, path *field.Path, value any, complaints []string) {
	for _, complaint := range complaints {
		*errs = append(*errs, field.Invalid(path, value, complaint))
	}
}

// validateServiceChange says what may not change.
func validateServiceChange(spec, was corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateSameAddress(spec, was)
	if spec.Type == corev1.ServiceTypeLoadBalancer && was.Type == spec.Type &&
		!setAlike(spec.LoadBalancerClass, was.LoadBalancerClass) {
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), spec.LoadBalancerClass,
			"may not change once set"))
	}
	if isChecked(spec) && isChecked(was) && spec.HealthCheckNodePort != was.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(path.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

// validateOfType checks what one type of Services has and another one has not.
func validateOfType(spec corev1.ServiceSpec, path *field.Path) (errs field.ErrorList) {
	forbidden := func(set bool, name, why string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), why))
		}
	}
	switch balances := spec.Type == corev1.ServiceTypeLoadBalancer; {
	case balances && spec.LoadBalancerClass != nil:
		invalid(&errs, path.Child("loadBalancerClass"), *spec.LoadBalancerClass,
			validation.IsQualifiedName(*spec.LoadBalancerClass))
	case !balances:
		const why = "may only be used when `type` is 'LoadBalancer'"
		forbidden(spec.LoadBalancerClass != nil, "loadBalancerClass", why)
		forbidden(spec.AllocateLoadBalancerNodePorts != nil, "allocateLoadBalancerNodePorts", why)
	}
	if isOnNodes(spec) && isHeadless(spec) {
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), spec.ClusterIPs[0],
			fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		const why = "may not be set for ExternalName services"
		forbidden(len(spec.ClusterIPs) > 0, "clusterIPs", why)
		forbidden(len(spec.IPFamilies) > 0, "ipFamilies", why)
		forbidden(spec.IPFamilyPolicy != nil, "ipFamilyPolicy", why)
		if name := strings.TrimSuffix(spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(path.Child("externalName"), ""))
		} else {
			invalid(&errs, path.Child("externalName"), name, validation.IsDNS1123Subdomain(name))
		}
	}
	if spec.ExternalTrafficPolicy != "" && !reachedFromOutside(spec) {
		errs = append(errs, field.Invalid(path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy,
			"may only be set for externally-accessible services"))
	}
	switch at, port := path.Child("healthCheckNodePort"), spec.HealthCheckNodePort; {
	case isChecked(spec):
		invalid(&errs, at, port, validation.IsValidPortNum(int(port)))
	case port != 0:
		errs = append(errs, field.Invalid(at, port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	return errs
}

func validateServicePorts(spec corev1.ServiceSpec, path *field.Path) (errs field.ErrorList) {
	if len(spec.Ports) == 0 && !isHeadless(spec) && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path, ""))
	}
	names, seen, onNodes := map[string]bool{}, map[corev1.ServicePort]bool{}, map[corev1.ServicePort]bool{}
	for i, p := range spec.Ports {
		at := path.Index(i)
		errs = append(errs, validateServicePort(p, len(spec.Ports) > 1, names[p.Name], at)...)
		names[p.Name] = true
		if p.NodePort != 0 && spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		node := corev1.ServicePort{Protocol: p.Protocol, NodePort: p.NodePort}
		if p.NodePort != 0 && onNodes[node] {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		}
		of := corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}
		if seen[of] {
			errs = append(errs, field.Duplicate(at, of))
		}
		onNodes[node], seen[of] = true, true
	}
	return errs
}

func validateServicePort(p corev1.ServicePort, named, twice bool, at *field.Path) (errs field.ErrorList) {
	switch {
	case p.Name == "" && named:
		errs = append(errs, field.Required(at.Child("name"), ""))
	case p.Name != "":
		invalid(&errs, at.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))
		if twice {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
	}
	invalid(&errs, at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))
	if to := p.TargetPort; to.Type == intstr.String {
		invalid(&errs, at.Child("targetPort"), to.StrVal, validation.IsValidPortName(to.StrVal))
	} else {
		invalid(&errs, at.Child("targetPort"), to.IntVal, validation.IsValidPortNum(to.IntValue()))
	}
	if p.AppProtocol != nil {
		invalid(&errs, at.Child("appProtocol"), *p.AppProtocol, validation.IsQualifiedName(*p.AppProtocol))
	}
	return errs
}

// validateExternalIP refuses addresses that lead nowhere. Those that the Service had may stay as they are written.
func validateExternalIP(ip string, had []string, path *field.Path) field.ErrorList {
	errs := validation.IsValidIPForLegacyField(path, ip, true, had)
	if len(errs) > 0 {
		return errs
	}
	address, _ := netip.ParseAddr(ip) // it is one
	for _, of := range []struct {
		is   bool
		what string
	}{
		{address.IsUnspecified(), "unspecified"},
		{address.IsLoopback(), "in the loopback range"},
		{address.IsLinkLocalUnicast(), "in the link-local range"},
		{address.IsLinkLocalMulticast(), "in the link-local multicast range"},
	} {
		if of.is {
			errs = append(errs, field.Invalid(path, ip, "may not be "+of.what))
		}
	}
	return errs
}

// validateSources checks the networks that a load balancer lets in, of the spec, or else of the annotation. What the
// Service had may stay.
func validateSources(s, was *corev1.Service, path *field.Path) (errs field.ErrorList) {
	const key = corev1.AnnotationLoadBalancerSourceRangesKey
	trimmed := func(all []string) (out []string) {
		for _, one := range all {
			out = append(out, strings.TrimSpace(one))
		}
		return out
	}
	text, annotated := s.Annotations[key]
	path = path.Child("LoadBalancerSourceRanges") // so a real server calls it
	at, sources := path.Index, s.Spec.LoadBalancerSourceRanges
	if len(sources) == 0 && annotated {
		path = field.NewPath("metadata", "annotations").Key(key)
		at = func(int) *field.Path { return path }
		before, had := was.Annotations[key]
		if text = strings.TrimSpace(text); text != "" && !(had && before == s.Annotations[key]) {
			sources = strings.Split(text, ",")
		}
	} else if len(sources) == 0 {
		return nil
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
	}
	had := trimmed(was.Spec.LoadBalancerSourceRanges)
	if len(s.Spec.LoadBalancerSourceRanges) == 0 {
		had = nil
	}
	for i, source := range trimmed(sources) {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at(i), source, true, had)...)
	}
	return errs
}

// validateTopology refuses two annotations that do not say the same.
func validateTopology(annotations map[string]string) field.ErrorList {
	mode, ok := annotations[corev1.AnnotationTopologyMode]
	hints, ok2 := annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok || !ok2 || mode == hints {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode),
		mode, "must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified")}
}

// validateBalancerStatus checks where the load balancer of a Service is.
func validateBalancerStatus(s, was *corev1.Service) (errs field.ErrorList) {
	path := field.NewPath("status", "loadBalancer", "ingress")
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var had []string
	for _, ingress := range was.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			had = append(had, ingress.IP)
		}
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		at := path.Index(i)
		if ingress.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), ingress.IP, true, had)...)
		}
		switch {
		case ingress.IPMode == nil && ingress.IP != "":
			errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
		case ingress.IPMode != nil && ingress.IP == "":
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if ingress.Hostname != "" {
			invalid(&errs, at.Child("hostname"), ingress.Hostname, validation.IsDNS1123Subdomain(ingress.Hostname))
			if _, err := netip.ParseAddr(ingress.Hostname); err == nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), ingress.Hostname,
					"must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}

// warnOfService says what a real server warns of, in its words.
func warnOfService(o object, subresource string) (warnings []string) {
	s, path := o.(*corev1.Service), field.NewPath("spec")
	if subresource == "status" {
		path = field.NewPath("status", "loadBalancer", "ingress")
		for i, ingress := range s.Status.LoadBalancer.Ingress {
			if ingress.IP != "" {
				warnings = append(warnings, validation.GetWarningsForIP(path.Index(i), ingress.IP)...)
			}
		}
		return warnings
	}
	warn := func(when bool, format string, args ...any) {
		if when {
			warnings = append(warnings, fmt.Sprintf(format, args...))
		}
	}
	spec := s.Spec
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	elsewhere := spec.Type == corev1.ServiceTypeExternalName
	_, hints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	warn(hints, "annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints,
		corev1.AnnotationTopologyMode)
	warn(headless && spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	warn(headless && len(spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
	warn(headless && spec.SessionAffinity != corev1.ServiceAffinityNone,
		"spec.SessionAffinity is ignored for headless services")
	for i, ip := range spec.ExternalIPs {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	warn(len(spec.ExternalIPs) > 0 && !headless && !elsewhere,
		"spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	for i, source := range spec.LoadBalancerSourceRanges {
		if source == strings.TrimSpace(source) { // of others the real one fails to say something
			warnings = append(warnings,
				validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), source)...)
		}
	}
	warn(elsewhere && len(spec.ExternalIPs) > 0, "spec.externalIPs is ignored when spec.type is %q", spec.Type)
	warn(!elsewhere && spec.ExternalName != "", "spec.externalName is ignored when spec.type is not %q",
		corev1.ServiceTypeExternalName)
	const near = corev1.ServiceTrafficDistributionPreferClose
	warn(spec.TrafficDistribution != nil && *spec.TrafficDistribution == near,
		"spec.trafficDistribution: %q is deprecated; use %q", near, corev1.ServiceTrafficDistributionPreferSameZone)
	return slices.Clip(warnings)
}
