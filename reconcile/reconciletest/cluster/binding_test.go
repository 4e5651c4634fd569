package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestABindingIsAwaited has an authorizer that learns of a binding only when it was asked three times.
func TestABindingIsAwaited(t *testing.T) {
	client := fake.NewClientset(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "role"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "role"}, Rules: []rbacv1.PolicyRule{
			{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}})
	var asked []authorizationv1.SubjectAccessReviewSpec
	times := 0
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		if times++; times%3 == 0 {
			review.Status.Allowed = true
			asked = append(asked, review.Spec)
		}
		return true, review, nil
	})
	await := func(kind, namespace, roleKind, role string, subjects ...any) {
		t.Helper()
		require.NoError(t, awaitBinding(t.Context(), client, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
			"metadata": map[string]any{"name": "binding", "namespace": namespace}, "subjects": subjects,
			"roleRef": map[string]any{"kind": roleKind, "name": role}}}))
	}
	account := map[string]any{"kind": "ServiceAccount", "namespace": "b", "name": "c"}
	await("RoleBinding", "a", "Role", "role", account)
	await("ClusterRoleBinding", "", "ClusterRole", "role", map[string]any{"kind": "User", "name": "ada"},
		map[string]any{"kind": "Group", "name": "readers"})
	require.Equal(t, []authorizationv1.SubjectAccessReviewSpec{
		{User: "system:serviceaccount:b:c", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a",
			Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale"}},
		{User: "system:serviceaccount:b:c", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a",
			Verb: "list", Resource: "pods"}},
		{User: "ada", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}},
		{User: "anybody", Groups: []string{"readers"},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}},
	}, asked)
	asked = nil
	await("RoleBinding", "a", "Role", "missing", account)
	await("Role", "a", "Role", "role", account)
	require.Empty(t, asked, "these grant nothing")
}
