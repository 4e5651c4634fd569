// Package review asks an API server what a user may do, and whose token it is given. It has a scheme of two groups, so
// that programs without a typed clientset do not get one through it.
package review

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Client makes requests for reviews. Safe for concurrent use.
type Client struct{ rest rest.Interface }

// New makes a client from a copy of cfg, without a client-side rate limit: these few requests must not use up the burst
// of the program's own.
func New(cfg *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config := rest.CopyConfig(cfg)
	config.APIPath, config.GroupVersion = "/apis", &authorizationv1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.QPS, config.RateLimiter = -1, nil
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// Self asks whether the client's own user may do something.
func (c *Client) Self(ctx context.Context, may authorizationv1.SelfSubjectAccessReviewSpec) (allowed bool, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: may}
	err = c.create(ctx, authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"), review)
	return review.Status.Allowed && !review.Status.Denied, err
}

// User asks whether another user may do something. It needs the right to create subjectaccessreviews.
func (c *Client) User(ctx context.Context, may authorizationv1.SubjectAccessReviewSpec) (allowed bool, err error) {
	review := &authorizationv1.SubjectAccessReview{Spec: may}
	err = c.create(ctx, authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), review)
	return review.Status.Allowed && !review.Status.Denied, err
}

// Token asks whose token this is. It needs the right to create tokenreviews.
func (c *Client) Token(ctx context.Context, token string) (user authenticationv1.UserInfo, known bool, err error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	err = c.create(ctx, authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"), review)
	return review.Status.User, review.Status.Authenticated && review.Status.Error == "", err
}

// create sends a review, and reads the answer into it. What is in it when there is an error means nothing, so the
// callers' answers are "no" then: the server's answer is decoded into an object that has no status yet.
func (c *Client) create(ctx context.Context, resource schema.GroupVersionResource, review runtime.Object) error {
	err := c.rest.Post().AbsPath("/apis", resource.Group, resource.Version, resource.Resource).
		Body(review).Do(ctx).Into(review)
	if err != nil {
		return fmt.Errorf("create %s: %w", resource.GroupResource(), err)
	}
	return nil
}
