package rights

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/review"
)

// Needs are rules by namespace. The rules of the empty namespace are for all namespaces, and for what is in none.
type Needs map[string][]rbacv1.PolicyRule

// Rule returns the rule that grants verbs on one resource. The group of pods and other resources of the core is "". A
// subresource follows a slash: "replicasets/status".
func Rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Lease returns the rules that package leaderelection needs in the namespace of its Lease.
func Lease(name string) []rbacv1.PolicyRule {
	lease := Rule("coordination.k8s.io", "leases", "get", "update", "watch")
	lease.ResourceNames = []string{name}
	return []rbacv1.PolicyRule{Rule("coordination.k8s.io", "leases", "create"), lease}
}

// Shards returns the rules that package sharding needs in the namespace of its Leases. They hold for all Leases there,
// since the names of those are made up: so give them a namespace of their own.
func Shards() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		Rule("coordination.k8s.io", "leases", "create", "delete", "get", "list", "update", "watch")}
}

// MissingError says which rights are not granted.
type MissingError struct {
	// Missing has the verbs that are missing, one rule for each resource and name.
	Missing Needs
}

// Error has a line for each rule, as it stands in a manifest.
func (e *MissingError) Error() string {
	var text strings.Builder
	text.WriteString("the API server does not grant this user what the program needs")
	for _, namespace := range slices.Sorted(maps.Keys(e.Missing)) {
		if namespace == "" {
			text.WriteString("\nto be added to a ClusterRole, for all namespaces:")
		} else {
			fmt.Fprintf(&text, "\nto be added to a Role in namespace %s:", namespace)
		}
		for _, rule := range e.Missing[namespace] {
			text.WriteString("\n- " + inYAML(rule))
		}
	}
	return text.String()
}

// inYAML returns a rule as one line of a manifest.
func inYAML(rule rbacv1.PolicyRule) string {
	var fields []string
	add := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		quoted := make([]string, len(values))
		for i, v := range values {
			quoted[i] = fmt.Sprintf("%q", v)
		}
		fields = append(fields, name+": ["+strings.Join(quoted, ", ")+"]")
	}
	add("apiGroups", rule.APIGroups)
	add("resources", rule.Resources)
	add("resourceNames", rule.ResourceNames)
	add("nonResourceURLs", rule.NonResourceURLs)
	add("verbs", rule.Verbs)
	return "{" + strings.Join(fields, ", ") + "}"
}

// Check asks the API server of cfg whether its user has all of needs, with one SelfSubjectAccessReview for each verb on
// each resource, which every authenticated user may create. It returns
//
//	nil                      all are granted
//	a *[MissingError]        some are not
//	any other error at once  a rule of needs is empty, the server refuses to answer, or its certificate is not trusted
//	one that wraps           ctx has ended. While the server cannot be reached, or says that it is not ready, Check
//	context.Cause(ctx)       tries again, and says so in the log every 10 s; so give ctx a timeout
//
// A right that is granted later is not waited for: end the process, and the kubelet starts it again. cfg is not
// changed, and its rate limit is not used up.
func Check(ctx context.Context, cfg *rest.Config, needs Needs) error {
	if err := mistakes(needs); err != nil {
		return fmt.Errorf("rights.Check: %w", err)
	}
	client, err := review.New(cfg)
	if err != nil {
		return fmt.Errorf("rights.Check: %w", err)
	}
	asking := &asking{client: client, said: time.Now(),
		patience: lifecycle.Backoff{Base: 250 * time.Millisecond, Cap: 5 * time.Second, Purpose: "rights"}}
	missing := Needs{}
	for _, namespace := range slices.Sorted(maps.Keys(needs)) {
		for _, rule := range needs[namespace] {
			lacking, err := asking.lacking(ctx, namespace, rule)
			if err != nil {
				return fmt.Errorf("cannot ask the API server at %s which rights this user has: %w", cfg.Host, err)
			}
			missing[namespace] = append(missing[namespace], lacking...)
		}
		if len(missing[namespace]) == 0 {
			delete(missing, namespace)
		}
	}
	if len(missing) > 0 {
		return &MissingError{missing}
	}
	return nil
}

// mistakes returns what is wrong with needs by themselves: an empty rule would be granted by anything.
func mistakes(needs Needs) error {
	var errs []error
	for _, namespace := range slices.Sorted(maps.Keys(needs)) {
		for i, rule := range needs[namespace] {
			mistake := func(text string) {
				errs = append(errs, fmt.Errorf("needs[%q][%d] %s", namespace, i, text))
			}
			switch {
			case len(rule.Verbs) == 0:
				mistake("has no verb")
			case len(rule.Resources) == 0 && len(rule.NonResourceURLs) == 0:
				mistake("has no resource")
			case len(rule.Resources) > 0 && len(rule.APIGroups) == 0:
				mistake(`has no API group; that of pods and other resources of the core is ""`)
			case namespace != "" && len(rule.NonResourceURLs) > 0:
				mistake("has a nonResourceURL, which is in no namespace")
			}
		}
	}
	return errors.Join(errs...)
}

// parts returns the rules for one resource, or one path, that a rule consists of, without its verbs.
func parts(rule rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			part := Rule(group, resource)
			if len(rule.ResourceNames) == 0 {
				all = append(all, part)
			}
			for _, name := range rule.ResourceNames {
				part.ResourceNames = []string{name}
				all = append(all, part)
			}
		}
	}
	for _, path := range rule.NonResourceURLs {
		all = append(all, rbacv1.PolicyRule{NonResourceURLs: []string{path}})
	}
	return all
}

// question is whether the client may use a verb on the resource or path of a part.
func question(namespace, verb string, part rbacv1.PolicyRule) (spec authorizationv1.SelfSubjectAccessReviewSpec) {
	if len(part.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: part.NonResourceURLs[0], Verb: verb}
		return spec
	}
	resource, subresource, _ := strings.Cut(part.Resources[0], "/")
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb,
		Group: part.APIGroups[0], Resource: resource, Subresource: subresource}
	if len(part.ResourceNames) > 0 {
		spec.ResourceAttributes.Name = part.ResourceNames[0]
	}
	return spec
}

// sayEvery is how often the log says that the server does not answer.
const sayEvery = 10 * time.Second

// asking is one Check on its way.
type asking struct {
	client   *review.Client
	patience lifecycle.Backoff
	said     time.Time // when the log last said that the server does not answer, or Check began
}

// lacking returns what of a rule is not granted.
func (a *asking) lacking(ctx context.Context, namespace string, rule rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	var all []rbacv1.PolicyRule
	for _, part := range parts(rule) {
		for _, verb := range rule.Verbs {
			allowed, err := a.ask(ctx, question(namespace, verb, part))
			if err != nil {
				return nil, err
			}
			if !allowed {
				part.Verbs = append(part.Verbs, verb)
			}
		}
		if len(part.Verbs) > 0 {
			all = append(all, part)
		}
	}
	return all, nil
}

// ask asks until the server answers, refuses to, or ctx ends.
func (a *asking) ask(ctx context.Context, may authorizationv1.SelfSubjectAccessReviewSpec) (allowed bool, err error) {
	for {
		allowed, err := a.client.Self(ctx, may)
		switch {
		case err == nil:
			a.patience.Reset()
			return allowed, nil
		case ctx.Err() == nil && !worthRetrying(err):
			return false, err
		case ctx.Err() == nil && time.Since(a.said) >= sayEvery:
			a.said = time.Now()
			klog.FromContext(ctx).Info("Waiting for the API server, to ask which rights this user has", "err", err)
		}
		lifecycle.Pause[struct{}](ctx, a.patience.After(kube.RetryAfter(err)), nil)
		if ctx.Err() != nil {
			return false, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// worthRetrying reports whether the server may answer later. A refusal is final, and so is a certificate that is not
// trusted.
func worthRetrying(err error) bool {
	var network net.Error
	var request *url.Error
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return false
	}
	return errors.As(err, &network) || errors.As(err, &request) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServerTimeout(err)
}
