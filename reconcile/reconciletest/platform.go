package reconciletest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file has what a platform gives its namespaces: quotas, limits, network policies and bindings of roles. They are
// stored as a real server stores them. What they would do to others is not modelled, and refused where it would show:
// see constrained and mayBind.

var (
	resourceQuotas = corev1.SchemeGroupVersion.WithResource("resourcequotas")
	limitRanges    = corev1.SchemeGroupVersion.WithResource("limitranges")
	roleBindings   = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
)

// constrained refuses a new pod in a namespace that has a quota or limits: a real server would count it, or give it
// requests.
func constrained(s *Server, c *call) error {
	if c.resource.GroupVersionResource != pods {
		return nil
	}
	for _, gvr := range []schema.GroupVersionResource{resourceQuotas, limitRanges} {
		if !s.store.any(gvr.GroupResource()) {
			continue
		}
		for _, o := range s.store.list(gvr.GroupResource(), s.Version()) {
			if o.GetNamespace() == c.Namespace {
				return notModelled("a pod in a namespace with %s", gvr.Resource)
			}
		}
	}
	return nil
}

// quotaCounts are what a modelled quota limits: pods, and what they ask for.
var quotaCounts = []string{"pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}

// quotaHard accepts limits of what is modelled.
func quotaHard(v any) bool {
	limits, ok := v.(map[string]any)
	for name, value := range limits {
		_, err := resource.ParseQuantity(fmt.Sprint(value))
		ok = ok && slices.Contains(quotaCounts, name) && err == nil
	}
	return ok
}

func resourceQuotaRules() *rules {
	return &rules{
		new: func() object { return &corev1.ResourceQuota{} }, returnDeleted: true,
		defaults: func(o object) { defaultResources(o.(*corev1.ResourceQuota).Spec.Hard) },
		validate: func(o, _ object) (errs field.ErrorList) {
			for name, quantity := range o.(*corev1.ResourceQuota).Spec.Hard {
				at := field.NewPath("spec", "hard").Key(string(name))
				errs = append(errs, nonnegativeQuantity(quantity, at)...)
				if name == corev1.ResourcePods && quantity.MilliValue()%1000 != 0 {
					errs = append(errs, field.Invalid(at, quantity.String(), "must be an integer"))
				}
			}
			return errs
		},
		beyond: func(o object) string {
			hard := o.(*corev1.ResourceQuota).Spec.Hard
			for _, name := range []corev1.ResourceName{"cpu", "memory"} {
				for _, request := range []corev1.ResourceName{name, "requests." + name} {
					asked, both := hard[request]
					if most, ok := hard["limits."+name]; ok && both && asked.Cmp(most) > 0 {
						return "more requests than limits" // of which a real server warns
					}
				}
			}
			return ""
		},
	}
}

// limitOf accepts an amount of what containers ask for.
func limitOf(v any) bool {
	_, err := resource.ParseQuantity(fmt.Sprint(v))
	return err == nil
}

func limitRangeRules() *rules {
	return &rules{
		new: func() object { return &corev1.LimitRange{} }, createOnUpdate: true,
		defaults: func(o object) {
			for i := range o.(*corev1.LimitRange).Spec.Limits {
				limit := &o.(*corev1.LimitRange).Spec.Limits[i]
				defaultResources(limit.Default)
				defaultResources(limit.DefaultRequest)
				for name, quantity := range limit.Default {
					if limit.DefaultRequest == nil {
						limit.DefaultRequest = corev1.ResourceList{}
					}
					if _, ok := limit.DefaultRequest[name]; !ok {
						limit.DefaultRequest[name] = quantity.DeepCopy()
					}
				}
			}
		},
		validate: func(o, _ object) (errs field.ErrorList) {
			for i, limit := range o.(*corev1.LimitRange).Spec.Limits {
				at := field.NewPath("spec", "limits").Index(i)
				if i > 0 { // they are of one type
					errs = append(errs, field.Duplicate(at.Child("type"), limit.Type))
				}
				for name, asked := range limit.DefaultRequest {
					if most, ok := limit.Default[name]; ok && asked.Cmp(most) > 0 {
						errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), asked.String(),
							fmt.Sprintf("default request value %s is greater than default limit value %s", &asked,
								&most)))
					}
				}
			}
			return errs
		},
		beyond: func(o object) string {
			if o.GetName() == "" && o.GetGenerateName() == "" {
				return "no name" // a real server makes one up
			}
			for _, limit := range o.(*corev1.LimitRange).Spec.Limits {
				if limit.Type != corev1.LimitTypeContainer {
					return "another type than Container"
				}
			}
			return ""
		},
	}
}

func networkPolicyRules() *rules {
	return &rules{
		new: func() object { return &networkingv1.NetworkPolicy{} }, generation: true,
		defaults: func(o object) {
			spec := &o.(*networkingv1.NetworkPolicy).Spec
			if len(spec.PolicyTypes) == 0 {
				spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
				if len(spec.Egress) > 0 {
					spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
				}
			}
			for _, rule := range spec.Ingress {
				defaultPolicyPorts(rule.Ports)
			}
			for _, rule := range spec.Egress {
				defaultPolicyPorts(rule.Ports)
			}
		},
		validate: func(o, _ object) field.ErrorList { return validatePolicy(o.(*networkingv1.NetworkPolicy).Spec) },
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		orDefault(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validatePolicy(spec networkingv1.NetworkPolicySpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSelector(&spec.PodSelector, path.Child("podSelector"))
	for i, rule := range spec.Ingress {
		at := path.Child("ingress").Index(i)
		errs = append(errs, validatePolicyRule(rule.Ports, rule.From, at, "from")...)
	}
	for i, rule := range spec.Egress {
		at := path.Child("egress").Index(i)
		errs = append(errs, validatePolicyRule(rule.Ports, rule.To, at, "to")...)
	}
	if len(spec.PolicyTypes) > 2 {
		errs = append(errs, field.Invalid(path.Child("policyTypes"), &spec.PolicyTypes,
			"may not specify more than two policyTypes"))
	}
	return errs
}

func validatePolicyRule(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, at *field.Path,
	direction string) (errs field.ErrorList) {
	for i, port := range ports {
		if port.Port == nil {
			continue
		}
		var value any = port.Port.IntVal
		messages := validation.IsValidPortNum(port.Port.IntValue())
		if port.Port.Type == intstr.String {
			value, messages = port.Port.StrVal, validation.IsValidPortName(port.Port.StrVal)
		}
		for _, message := range messages {
			errs = append(errs, field.Invalid(at.Child("ports").Index(i).Child("port"), value, message))
		}
	}
	for i, peer := range peers {
		at := at.Child(direction).Index(i)
		if peer.PodSelector == nil && peer.NamespaceSelector == nil {
			errs = append(errs, field.Required(at, "must specify a peer"))
		}
		errs = append(errs, validateSelector(peer.PodSelector, at.Child("podSelector"))...)
		errs = append(errs, validateSelector(peer.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

// policyRules are the fields of the rules of a NetworkPolicy.
func policyRules(rules, peers string) modelled {
	return modelled{}.with("spec."+rules+"[]", "ports[].port", peers+"[].podSelector", peers+"[].namespaceSelector").
		and("spec."+rules+"[]", modelled{"ports[].protocol": oneOf(string(corev1.ProtocolTCP),
			string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP))})
}

func roleBindingRules() *rules {
	return &rules{
		new: func() object { return &rbacv1.RoleBinding{} }, createOnUpdate: true,
		defaults: func(o object) {
			b := o.(*rbacv1.RoleBinding)
			orValue(&b.RoleRef.APIGroup, rbacv1.GroupName)
			for i := range b.Subjects {
				if s := &b.Subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
					orValue(&s.APIGroup, rbacv1.GroupName)
				}
			}
		},
		validate: func(o, old object) field.ErrorList {
			b := o.(*rbacv1.RoleBinding)
			errs := validateRoleRef(b.RoleRef)
			for i, s := range b.Subjects {
				errs = append(errs, validateSubject(s, field.NewPath("subjects").Index(i))...)
			}
			if was, ok := old.(*rbacv1.RoleBinding); ok && was.RoleRef != b.RoleRef {
				// The internal type, which the text shows, has no tags.
				is := struct{ APIGroup, Kind, Name string }(b.RoleRef)
				errs = append(errs, field.Invalid(field.NewPath("roleRef"), is, apivalidation.FieldImmutableErrorMsg))
			}
			return errs
		},
	}
}

func validateRoleRef(ref rbacv1.RoleRef) (errs field.ErrorList) {
	path := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if ref.Kind != "Role" && ref.Kind != "ClusterRole" {
		errs = append(errs, field.NotSupported(path.Child("kind"), ref.Kind, []string{"Role", "ClusterRole"}))
	}
	if ref.Name == "" {
		return append(errs, field.Required(path.Child("name"), ""))
	}
	for _, message := range validPathSegment(ref.Name, false) {
		errs = append(errs, field.Invalid(path.Child("name"), ref.Name, message))
	}
	return errs
}

func validateSubject(s rbacv1.Subject, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	group := rbacv1.GroupName
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		group = ""
		if s.Name != "" {
			for _, message := range apivalidation.ValidateServiceAccountName(s.Name, false) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, message))
			}
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
	default:
		return append(errs, field.NotSupported(at.Child("kind"), s.Kind,
			[]string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	if s.APIGroup != group {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{group}))
	}
	return errs
}

// mayBind lets only those write a binding of a role who have the verb bind on it. A real server lets those, too, who
// have all the rights of the role themselves, which is not modelled. live is nil for a creation.
func mayBind(c *call, o, live object) error {
	var ref rbacv1.RoleRef
	switch o := o.(type) {
	case *rbacv1.RoleBinding:
		ref = o.RoleRef
	case *rbacv1.ClusterRoleBinding:
		ref = o.RoleRef
	default:
		return nil
	}
	if c.link == nil || collected(o, live) {
		return nil
	}
	r := Request{Verb: "bind", Namespace: c.Namespace, Name: ref.Name}
	r.Resource = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	if ref.Kind == "Role" {
		r.Resource.Resource = "roles"
	}
	if err := c.link.authorize(r, ""); err != nil {
		return notModelled("a %s by a user who has not the verb bind on %s %s", c.resource.Kind, r.Resource.Resource,
			ref.Name)
	}
	return nil
}

// collected reports whether an update is of what the garbage collector changes only.
func collected(o, live object) bool {
	if live == nil {
		return false
	}
	o, live = copyOf(o), copyOf(live)
	for _, each := range []object{o, live} {
		each.SetOwnerReferences(nil)
		each.SetFinalizers(nil)
		each.SetManagedFields(nil)
		each.SetResourceVersion("")
	}
	return apiequality.Semantic.DeepEqual(o, live)
}
