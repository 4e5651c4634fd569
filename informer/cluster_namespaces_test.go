package informer

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// A service account may list and watch the pods of two namespaces out of three, and later of the third one, too.
func TestRightsInSomeNamespaces(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	first, second, third := cluster.Namespace(t), cluster.Namespace(t), cluster.Namespace(t)
	rule := rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	config, err := cluster.ServiceAccount(t.Context(), first, rule)
	require.NoError(t, err)
	bindings, err := cluster.Client().RbacV1().RoleBindings(first).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, bindings.Items, 1)
	grant := func(namespace string) {
		t.Helper()
		rbac := cluster.Client().RbacV1()
		_, err := rbac.Roles(namespace).Create(t.Context(),
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{rule}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Subjects: bindings.Items[0].Subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	grant(second)
	for _, namespace := range []string{first, second, third} {
		tenant{t, cluster.Client().CoreV1().Pods(namespace)}.create("a", "b")
	}
	clientset := kubernetes.NewForConfigOrDie(config)
	for name, newInformer := range map[string]func(namespaces ...string) (*informerOfPods, error){
		"typed": func(namespaces ...string) (*informerOfPods, error) {
			return NewNamespaced[*corev1.Pod](clientset.CoreV1().Pods, namespaces, Options[*corev1.Pod]{})
		},
		"REST": func(namespaces ...string) (*informerOfPods, error) {
			pods, err := NewResource[*corev1.Pod](config, podsResource, ResourceOptions{})
			require.NoError(t, err)
			return NewNamespaced(pods.In, namespaces, Options[*corev1.Pod]{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			revoke := func() {
				rbac := cluster.Client().RbacV1()
				_ = rbac.RoleBindings(third).Delete(t.Context(), "pods", metav1.DeleteOptions{})
				_ = rbac.Roles(third).Delete(t.Context(), "pods", metav1.DeleteOptions{})
			}
			revoke() // of the run before
			require.Eventually(t, func() bool {
				_, err := clientset.CoreV1().Pods(third).List(t.Context(), metav1.ListOptions{})
				return apierrors.IsForbidden(err)
			}, inTime, 5*time.Millisecond)

			both, err := newInformer(first, second)
			require.NoError(t, err)
			told := &history{inf: both, rounds: rounds{}}
			_, err = both.AddHandler(told.handle, HandlerOptions{})
			require.NoError(t, err)
			runLogged(t, both, &logLines{})
			require.NoError(t, both.WaitForSync(t.Context()))
			require.Equal(t, 4, both.Len())

			all, err := newInformer(first, second, third)
			require.NoError(t, err)
			log := &logLines{about: third}
			runLogged(t, all, log)
			becomes(t, all, Denied)
			log.until(t, Denied)
			for _, namespace := range []string{first, second} {
				require.Eventually(t, func() bool {
					h := all.HealthIn(namespace)
					return h.State == Live &&
						h.Listed > 0
				}, inTime, 5*time.Millisecond)
			}
			require.Equal(t, 4, all.Len())
			waiting, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err = all.WaitForSync(waiting)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "namespace "+third)
			require.ErrorContains(t, err, `resource "pods"`)
			require.Regexp(t, `cannot (list|watch)`, err.Error())
			tenant{t, cluster.Client().CoreV1().Pods(first)}.create("while-denied-" + strings.ToLower(name))
			require.Eventually(t, func() bool {
				return all.Len() == both.Len() && slices.Contains(names(both), "while-denied-"+strings.ToLower(name))
			}, inTime, 5*time.Millisecond)

			grant(third)
			becomes(t, all, Live)
			require.NoError(t, all.WaitForSync(t.Context()))
			require.Equal(t, both.Len()+2, all.Len())
			log.until(t, Live)
			log.alsoSays(t, 0)

			require.NoError(t, both.Rescope(Scope{Namespaces: []string{second, third}}))
			require.NoError(t, both.WaitForSync(t.Context()))
			require.Equal(t, 4, both.Len())
			require.NoError(t, told.err())
			tenant{t, cluster.Client().CoreV1().Pods(first)}.delete("while-denied-" + strings.ToLower(name))
		})
	}
}
