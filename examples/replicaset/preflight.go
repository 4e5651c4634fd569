package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Can this work at all?
//
// Better one clear line at the start than a controller that runs, is refused every pod, and says so in its log only.

// need is a rule that RBAC has to grant.
type need struct {
	namespace, group, resource string
	verbs                      []string
}

func (o options) needs() []need {
	needs := []need{
		{o.namespace, "apps", "replicasets", []string{"get", "list", "watch"}},
		{o.namespace, "apps", "replicasets/status", []string{"update"}},
		{o.namespace, "", "pods", []string{"list", "watch", "create", "patch", "delete"}},
		{o.namespace, "", "events", []string{"create", "patch"}},
	}
	if o.leaderElect {
		needs = append(needs, need{o.leaseNamespace, "coordination.k8s.io", "leases", []string{"get", "create", "update"}})
	}
	return needs
}

// preflight waits until the API server answers, for at most the startup timeout, and checks all needs.
func preflight(ctx context.Context, cfg *rest.Config, o options) error {
	ownPace := rest.CopyConfig(cfg)
	ownPace.QPS = -1 // a dozen small questions, once: no need to slow the first pods down for them
	client, err := kubernetes.NewForConfig(ownPace)
	if err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.startupTimeout)
	defer cancel()
	for {
		missing, err := missingRules(ctx, client, o.needs())
		switch {
		case err == nil && len(missing) == 0:
			return nil
		case err == nil:
			return fmt.Errorf("RBAC does not allow this user to %s", strings.Join(missing, ", "))
		case !worthRetrying(err):
			return fmt.Errorf("cannot use the API server at %s: %w", cfg.Host, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot reach the API server at %s within %v (see --startup-timeout): %w", cfg.Host, o.startupTimeout, err)
		case <-time.After(time.Second):
		}
	}
}

// missingRules asks for each verb on its own, as the answer has to name what is missing.
func missingRules(ctx context.Context, client kubernetes.Interface, needs []need) (missing []string, err error) {
	for _, n := range needs {
		resource, subresource, _ := strings.Cut(n.resource, "/")
		for _, verb := range n.verbs {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: n.namespace, Verb: verb, Group: n.group, Resource: resource, Subresource: subresource,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, err
			}
			if !review.Status.Allowed {
				missing = append(missing, n.describe(verb))
			}
		}
	}
	return missing, nil
}

func (n need) describe(verb string) string {
	what, where := n.resource, "in all namespaces"
	if n.group != "" {
		what = n.group + "/" + n.resource
	}
	if n.namespace != "" {
		where = "in namespace " + n.namespace
	}
	return fmt.Sprintf("%s %s %s", verb, what, where)
}

// worthRetrying is true for a server that is not there, or not there yet; an answer that says no is final.
func worthRetrying(err error) bool {
	var network net.Error
	var request *url.Error
	return errors.As(err, &network) || errors.As(err, &request) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err)
}
