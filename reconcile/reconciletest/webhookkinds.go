package reconciletest

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	mutatingConfigurations = admissionregistrationv1.SchemeGroupVersion.
				WithResource("mutatingwebhookconfigurations")
	validatingConfigurations = admissionregistrationv1.SchemeGroupVersion.
					WithResource("validatingwebhookconfigurations")
)

// hooksOf returns the webhooks of a configuration. Those that validate have no reinvocationPolicy.
func hooksOf(o object) []admissionregistrationv1.MutatingWebhook {
	switch o := o.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return o.Webhooks
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		var all []admissionregistrationv1.MutatingWebhook
		for _, h := range o.Webhooks {
			all = append(all, admissionregistrationv1.MutatingWebhook{
				Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy,
				MatchPolicy: h.MatchPolicy, NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector,
				SideEffects: h.SideEffects, TimeoutSeconds: h.TimeoutSeconds,
				AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions,
			})
		}
		return all
	}
	return nil
}

// configurationRules are those of both kinds of configurations.
func configurationRules(new func() object, complete func(o object)) *rules {
	return &rules{
		new: new, conditionalUpdate: true, generation: true, defaults: complete,
		changed:  func(o, old object) bool { return !reflect.DeepEqual(hooksOf(o), hooksOf(old)) },
		validate: func(o, _ object) field.ErrorList { return validateHooks(o) },
		beyond:   hooksBeyond,
	}
}

// hooksBeyond names what the server could not do for a webhook of a configuration; empty: there is no such thing.
func hooksBeyond(o object) string {
	for _, h := range hooksOf(o) {
		switch {
		case len(h.MatchConditions) > 0:
			return "matchConditions of a webhook (rules in CEL)"
		case firstReviewVersion(h.AdmissionReviewVersions) == "v1beta1":
			return "an AdmissionReview of v1beta1"
		}
	}
	return ""
}

func mutatingRules() *rules {
	return configurationRules(func() object { return &admissionregistrationv1.MutatingWebhookConfiguration{} },
		func(o object) {
			all := o.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
			for i := range all {
				h := &all[i]
				completeHook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector,
					&h.TimeoutSeconds, h.Rules, h.ClientConfig)
				if h.ReinvocationPolicy == nil {
					h.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
				}
			}
		})
}

func validatingRules() *rules {
	return configurationRules(func() object { return &admissionregistrationv1.ValidatingWebhookConfiguration{} },
		func(o object) {
			all := o.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
			for i := range all {
				h := &all[i]
				completeHook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector,
					&h.TimeoutSeconds, h.Rules, h.ClientConfig)
			}
		})
}

// completeHook fills in what a webhook leaves open.
func completeHook(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector, timeout **int32, all []admissionregistrationv1.RuleWithOperations,
	client admissionregistrationv1.WebhookClientConfig) {
	if *failure == nil {
		*failure = new(admissionregistrationv1.Fail)
	}
	if *match == nil {
		*match = new(admissionregistrationv1.Equivalent)
	}
	for _, selector := range []**metav1.LabelSelector{namespaces, objects} {
		if *selector == nil {
			*selector = &metav1.LabelSelector{}
		}
	}
	if *timeout == nil {
		*timeout = new(int32(10))
	}
	for i := range all {
		if all[i].Scope == nil {
			all[i].Scope = new(admissionregistrationv1.AllScopes)
		}
	}
	if client.Service != nil && client.Service.Port == nil {
		client.Service.Port = new(int32(443))
	}
}

func validateHooks(o object) (errs field.ErrorList) {
	names := map[string]bool{}
	for i, h := range hooksOf(o) {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(h, at)...)
		if names[h.Name] && h.Name != "" {
			errs = append(errs, field.Duplicate(at.Child("name"), h.Name))
		}
		names[h.Name] = true
	}
	return errs
}

func validateHook(h admissionregistrationv1.MutatingWebhook, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), h.Name)
	for i, r := range h.Rules {
		errs = append(errs, validateHookRule(r, at.Child("rules").Index(i))...)
	}
	errs = append(errs, supported(at.Child("failurePolicy"), h.FailurePolicy, admissionregistrationv1.Fail,
		admissionregistrationv1.Ignore)...)
	errs = append(errs, supported(at.Child("matchPolicy"), h.MatchPolicy, admissionregistrationv1.Equivalent,
		admissionregistrationv1.Exact)...)
	errs = append(errs, supported(at.Child("reinvocationPolicy"), h.ReinvocationPolicy,
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, supported(at.Child("sideEffects"), h.SideEffects, admissionregistrationv1.SideEffectClassNone,
		admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	if t := h.TimeoutSeconds; t != nil && (*t > 30 || *t < 1) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t,
			"the timeout value must be between 1 and 30 seconds"))
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	if h.NamespaceSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(h.NamespaceSelector, options,
			at.Child("namespaceSelector"))...)
	}
	if h.ObjectSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(h.ObjectSelector, options,
			at.Child("objectSelector"))...)
	}
	errs = append(errs, validateClientConfig(h.ClientConfig, at.Child("clientConfig"), false)...)
	return append(errs, validateReviewVersions(h.AdmissionReviewVersions, at.Child("admissionReviewVersions"))...)
}

// supported returns an error for a value that is none of some; nil is left to others.
func supported[T ~string](at *field.Path, is *T, values ...T) field.ErrorList {
	if is == nil || slices.Contains(values, *is) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *is, values)}
}

func validateHookRule(r admissionregistrationv1.RuleWithOperations, at *field.Path) (errs field.ErrorList) {
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at.Child("operations"), r.Operations,
			"if '*' is present, must not specify other operations"))
	}
	for i, operation := range r.Operations {
		errs = append(errs, supported(at.Child("operations").Index(i), &operation, admissionregistrationv1.OperationAll,
			admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Delete,
			admissionregistrationv1.Update)...)
	}
	errs = append(errs, validateList(r.APIGroups, at.Child("apiGroups"), "API groups")...)
	errs = append(errs, validateList(r.APIVersions, at.Child("apiVersions"), "API versions")...)
	for i, version := range r.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateHookResources(r.Resources, at.Child("resources"))...)
	return append(errs, supported(at.Child("scope"), r.Scope, admissionregistrationv1.AllScopes,
		admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
}

// validateList says what is wrong with a list in which * stands for everything.
func validateList(values []string, at *field.Path, what string) (errs field.ErrorList) {
	if len(values) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if len(values) > 1 && slices.Contains(values, "*") {
		errs = append(errs, field.Invalid(at, values, "if '*' is present, must not specify other "+what))
	}
	return errs
}

// validateHookResources says what is wrong with patterns of resources. One is only compared with those before it, and
// the last one without a subresource is the one that * must not stand beside, both as on a real server.
func validateHookResources(patterns []string, at *field.Path) (errs field.ErrorList) {
	if len(patterns) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	named := false // the last pattern without a subresource is not *
	for i, pattern := range patterns {
		resource, sub, ok := strings.Cut(pattern, "/")
		switch {
		case pattern == "":
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		case !ok:
			named = pattern != "*"
			continue
		}
		for _, wider := range []string{resource + "/*", "*/" + sub} {
			if slices.Contains(patterns[:i], wider) {
				errs = append(errs, field.Invalid(at.Index(i), pattern,
					fmt.Sprintf("if '%s' is present, must not specify %s", wider, pattern)))
			}
		}
	}
	if len(patterns) > 1 && slices.Contains(patterns, "*/*") {
		errs = append(errs, field.Invalid(at, patterns, "if '*/*' is present, must not specify other resources"))
	}
	if named && slices.Contains(patterns, "*") {
		errs = append(errs, field.Invalid(at, patterns,
			"if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// hasCertificate reports whether a text has a certificate in PEM.
func hasCertificate(text []byte) bool { return x509.NewCertPool().AppendCertsFromPEM(text) }

// firstReviewVersion returns the version in which a real server sends reviews; empty: there is none.
func firstReviewVersion(accepted []string) string {
	for _, v := range accepted {
		if v == "v1" || v == "v1beta1" {
			return v
		}
	}
	return ""
}

func validateReviewVersions(versions []string, at *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of v1, v1beta1")}
	}
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		for _, problem := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, problem))
		}
	}
	if firstReviewVersion(versions) == "" {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}

// validateClientConfig says what is wrong with where a webhook is. Only of a definition a real server looks at the
// bundle.
func validateClientConfig(c admissionregistrationv1.WebhookClientConfig, at *field.Path, bundle bool) (
	errs field.ErrorList) {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		errs = append(errs, field.Required(at, "exactly one of url or service is required"))
	case c.URL != nil:
		errs = append(errs, validateHookURL(*c.URL, at.Child("url"))...)
	default:
		errs = append(errs, validateHookService(*c.Service, at.Child("service"))...)
	}
	if bundle && len(c.CABundle) > 0 && !hasCertificate(c.CABundle) {
		errs = append(errs, field.Invalid(at.Child("caBundle"), c.CABundle,
			"unable to load root certificates: unable to parse bytes as PEM block"))
	}
	return errs
}

func validateHookURL(text string, at *field.Path) (errs field.ErrorList) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(at, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

func validateHookService(s admissionregistrationv1.ServiceReference, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if s.Port != nil {
		if problems := validation.IsValidPortNum(int(*s.Port)); problems != nil {
			errs = append(errs, field.Invalid(at.Child("port"), *s.Port, "port is not valid: "+
				strings.Join(problems, ", ")))
		}
	}
	if s.Path == nil || *s.Path == "" || *s.Path == "/" {
		return errs
	}
	if !strings.HasPrefix(*s.Path, "/") {
		errs = append(errs, field.Invalid(at.Child("path"), *s.Path, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix((*s.Path)[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(at.Child("path"), *s.Path,
				fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, problem := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(at.Child("path"), *s.Path, fmt.Sprintf("segment[%d]: %v", i, problem)))
		}
	}
	return errs
}
