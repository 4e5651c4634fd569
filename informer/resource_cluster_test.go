package informer_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// The same as on the server in memory, and what that does not model, with no more rights than the requests need.
func TestResourceOnARealServer(t *testing.T) {
	c := testcluster.Shared(t)
	manifest, err := os.ReadFile("testdata/gadgets.yaml")
	require.NoError(t, err)
	defined, err := testcluster.Decode(manifest)
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), defined...))
	definitions := resource[*unstructured.Unstructured](t, c.Config(), gadgetDefinitions)
	t.Cleanup(func() {
		require.NoError(t, definitions.Delete(context.Background(), defined[0].GetName(), metav1.DeleteOptions{}))
	})
	own := resource[*gadget](t, c.Config(), gadgets)
	require.Eventually(t, func() bool {
		_, err := own.List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond, "the resource is never served")

	all := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "pods"}, Verbs: all},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status", "deployments/scale"},
			Verbs: all},
		{APIGroups: []string{gadgets.Group}, Resources: []string{"gadgets", "gadgets/status", "gadgets/scale"},
			Verbs: all},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction", "pods/binding", "serviceaccounts/token"},
			Verbs: []string{"create"}},
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			namespace := c.Namespace(t)
			cfg, err := c.ServiceAccount(t.Context(), namespace, rules...)
			require.NoError(t, err)
			cfg.ContentType = contentType
			everyVerb(t, cfg, namespace)
			statusAndScale(t, cfg, namespace)
			ownType(t, cfg, namespace)
			otherForms(t, cfg, namespace)
			podsAndTokens(t, cfg, namespace)
			_, err = resource[*corev1.Secret](t, cfg, corev1.SchemeGroupVersion.WithResource("secrets")).In(namespace).
				List(t.Context(), metav1.ListOptions{})
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		})
	}
	wrongScope(t, c.Config(), c.Namespace(t))
}

var gadgetDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// bind binds a pod to a node, through the subresource.
func bind(t *testing.T, pods *informer.Resource[*corev1.Pod], name string) error {
	bindings, err := informer.NewSubresource[*corev1.Binding](pods, "binding")
	require.NoError(t, err)
	_, err = bindings.Create(t.Context(), name, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}, metav1.CreateOptions{})
	return err
}

// podsAndTokens are subresources whose objects are of other types, and whose answers may be none.
func podsAndTokens(t *testing.T, cfg *rest.Config, namespace string) {
	ctx := t.Context()
	client := resource[*corev1.Pod](t, cfg, pods)
	here := client.In(namespace)
	_, err := here.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
		SchedulerName: "none", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	if err := bind(t, client.In(namespace), "web"); err != nil { // the node has taken the pod by itself
		require.True(t, apierrors.IsConflict(err), "%v", err)
		require.ErrorContains(t, err, "already assigned")
	}
	evictions, err := informer.NewSubresource[*policyv1.Eviction](client, "eviction")
	require.NoError(t, err)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	answer, err := evictions.In(namespace).Create(ctx, "web", eviction, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Same(t, eviction, answer)

	tokens, err := informer.NewSubresource[*authenticationv1.TokenRequest](resource[*corev1.ServiceAccount](t, cfg,
		corev1.SchemeGroupVersion.WithResource("serviceaccounts")), "token")
	require.NoError(t, err)
	token, err := tokens.In(namespace).Create(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, token.Status.Token)
}
