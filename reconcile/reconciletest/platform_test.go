package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const binders = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: binder}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [create, patch, update, get]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [view], verbs: [bind]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: binder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: binder}
subjects: [{kind: User, name: ada, apiGroup: rbac.authorization.k8s.io}]
`

// TestWhoMayBind: the verb bind on the role is needed to write a RoleBinding, and not for what the garbage collector
// changes in one. Nothing that is written gives anybody a right.
func TestWhoMayBind(t *testing.T) {
	server := NewServer(t, Options{Roles: []string{manifestOf(t, []byte(binders))}})
	admin := kubernetes.NewForConfigOrDie(server.Config()).RbacV1().RoleBindings("default")
	link := server.LinkAs("ada")
	ada := kubernetes.NewForConfigOrDie(link.Config()).RbacV1().RoleBindings("default")
	binding := func(name, kind, role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{Kind: kind, Name: role},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "grace"}}}
	}
	_, err := ada.Create(t.Context(), binding("a", "ClusterRole", "view"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Contains(t, link.Used()["default"], rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName},
		Resources: []string{"clusterroles"}, Verbs: []string{"bind"}})
	for _, b := range []*rbacv1.RoleBinding{binding("b", "ClusterRole", "edit"), binding("b", "Role", "view")} {
		_, err = ada.Create(t.Context(), b, metav1.CreateOptions{})
		require.Equal(t, ReasonNotModelled, apierrors.ReasonForError(err), err)
		require.ErrorContains(t, err, "who has not the verb bind on ")
		_, err = ada.Patch(t.Context(), "b", types.ApplyYAMLPatchType, []byte(
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"b"},`+
				`"roleRef":{"kind":"`+b.RoleRef.Kind+`","name":"`+b.RoleRef.Name+`"}}`),
			metav1.PatchOptions{FieldManager: "ada"})
		require.Equal(t, ReasonNotModelled, apierrors.ReasonForError(err), err)
	}
	_, err = admin.Create(t.Context(), binding("c", "ClusterRole", "edit"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = ada.Patch(t.Context(), "c", types.MergePatchType, []byte(`{"metadata":{"finalizers":["x.example/y"]}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = ada.Patch(t.Context(), "c", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`),
		metav1.PatchOptions{})
	require.Equal(t, ReasonNotModelled, apierrors.ReasonForError(err), err)

	grace := kubernetes.NewForConfigOrDie(server.LinkAs("grace").Config()).CoreV1().Pods("default")
	_, err = grace.List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), err)
}

// TestPodsUnderAQuotaAreNotModelled: a real server would count them, or give them requests.
func TestPodsUnderAQuotaAreNotModelled(t *testing.T) {
	server := NewServer(t, Options{Namespaces: []string{"default", "quota", "limits"}})
	core := kubernetes.NewForConfigOrDie(server.Config()).CoreV1()
	create := func(namespace string) error {
		_, err := core.Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "p-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}},
			metav1.CreateOptions{})
		return err
	}
	for _, namespace := range []string{"quota", "limits"} {
		require.NoError(t, create(namespace))
	}
	_, err := core.ResourceQuotas("quota").Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
		Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("9")}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.LimitRanges("limits").Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{
		Name: "l"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, namespace := range []string{"quota", "limits"} {
		err = create(namespace)
		require.Equal(t, ReasonNotModelled, apierrors.ReasonForError(err), err)
	}
	require.NoError(t, create("default"))
	require.NoError(t, core.ResourceQuotas("quota").Delete(t.Context(), "q", metav1.DeleteOptions{}))
	require.NoError(t, create("quota"))
}
