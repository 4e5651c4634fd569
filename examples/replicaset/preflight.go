package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Can the API server be reached, and do the rights suffice?
//
// One clear line at the start is better than a controller that runs, and whose every request for a pod is refused.

// access is one verb on one resource.
type access = authorizationv1.ResourceAttributes

// needs returns all rights that RBAC has to grant.
func (o options) needs() (needs []access) {
	need := func(on access, verbs ...string) {
		for _, on.Verb = range verbs {
			needs = append(needs, on)
		}
	}
	need(access{Namespace: o.namespace, Group: "apps", Resource: "replicasets"}, "get", "list", "watch")
	need(access{Namespace: o.namespace, Group: "apps", Resource: "replicasets", Subresource: "status"}, "update")
	need(access{Namespace: o.namespace, Resource: "pods"}, "list", "watch", "create", "patch", "delete")
	need(access{Namespace: o.namespace, Resource: "events"}, "create", "patch")
	if o.leaderElect {
		lease := access{Namespace: o.leaseNamespace, Group: "coordination.k8s.io", Resource: "leases"}
		need(lease, "create")
		lease.Name = o.leaseName
		need(lease, "get", "watch", "update")
	}
	return needs
}

func describe(a access) string {
	text := a.Verb + " " + schema.GroupResource{Group: a.Group, Resource: a.Resource}.String()
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Name != "" {
		text += " " + a.Name
	}
	if a.Namespace == "" {
		return text + " in all namespaces"
	}
	return text + " in namespace " + a.Namespace
}

// preflight waits until the API server answers, at most for the startup timeout, and checks that all needs are granted.
func preflight(ctx context.Context, cfg *rest.Config, o options) error {
	ownPace := rest.CopyConfig(cfg)
	ownPace.QPS = -1 // these dozen requests must not use up the burst for the first pods
	client, err := kubernetes.NewForConfig(ownPace)
	if err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.startupTimeout)
	defer cancel()
	for {
		denied, err := missing(ctx, client, o.needs())
		switch {
		case err == nil && len(denied) == 0:
			return nil
		case err == nil:
			return fmt.Errorf("RBAC does not allow this user to %s", strings.Join(denied, ", "))
		case !worthRetrying(err):
			return fmt.Errorf("cannot use the API server at %s: %w", cfg.Host, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot reach the API server at %s within %v (see --startup-timeout): %w", cfg.Host,
				o.startupTimeout, err)
		case <-time.After(time.Second):
		}
	}
}

// missing returns which of the needs are not granted. It asks for each, since the answer has to name them.
func missing(ctx context.Context, client kubernetes.Interface, needs []access) (denied []string, err error) {
	for _, a := range needs {
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &a
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !answer.Status.Allowed {
			denied = append(denied, describe(a))
		}
	}
	return denied, nil
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
