package ctrlruntime_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// On a real server, with rights to the two names only.
func TestNamedObjectsWithRightsToNamesOnly(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	rule := func(resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""},
			Resources: []string{resource}, ResourceNames: names}
	}
	config, err := c.ServiceAccount(t.Context(), namespace, rule("secrets", "tls", "late"), rule("configmaps"))
	require.NoError(t, err)
	o, m := newOperator(t, config, namespace)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	secrets := c.Client().CoreV1().Secrets(namespace)
	create := func(name, value string) {
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
			StringData: map[string]string{"v": value}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	sees := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return o.last("site") == what }, time.Minute, 5*time.Millisecond, what)
	}
	create("tls", "1")
	_, err = c.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "site"}, Data: map[string]string{"secrets": "tls,late"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	sees("tls=1,no late")
	create("late", "2")
	sees("tls=1,late=2")
	require.NoError(t, secrets.Delete(t.Context(), "tls", metav1.DeleteOptions{}))
	sees("no tls,late=2")
	cancel()
	require.NoError(t, <-ended)
}
