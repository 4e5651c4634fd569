package informer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// namedSecrets follows the Secrets that are named, with the right to list and watch those of a namespace that have one
// of these names, or all of them, until the test ends.
func namedSecrets(t *testing.T, in *testcluster.Cluster, namespace string, names ...string,
) *Referenced[*corev1.Secret] {
	config, err := in.ServiceAccount(t.Context(), namespace, rbacv1.PolicyRule{Verbs: []string{"list", "watch"},
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names})
	require.NoError(t, err)
	client, err := NewResource[*corev1.Secret](config, corev1.SchemeGroupVersion.WithResource("secrets"),
		ResourceOptions{})
	require.NoError(t, err)
	secrets, err := NewReferenced(client.In, Options[*corev1.Secret]{MaxWatches: 2})
	require.NoError(t, err)
	secrets.NamedBy(func(Key) bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- secrets.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-stopped)
	})
	return secrets
}

// A Role with resourceNames is all that a cache of names needs. A name that the Role lacks, and one in a namespace
// without a Role, are not known and affect no other.
func TestReferencedWithRightsToNamesOnly(t *testing.T) {
	cluster := testcluster.Shared(t)
	namespace, hidden := cluster.Namespace(t), cluster.Namespace(t)
	admin := cluster.Client().CoreV1()
	create := func(namespace, name string) {
		_, err := admin.Secrets(namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create(namespace, "tls")
	create(namespace, "other")
	create(hidden, "tls")
	// The metadata of the three names in the namespace is forbidden, so they are watched.
	secrets := namedSecrets(t, cluster, namespace, "tls", "late")
	tls, late := Key{Namespace: namespace, Name: "tls"}, Key{Namespace: namespace, Name: "late"}
	other, elsewhere := Key{Namespace: namespace, Name: "other"}, Key{Namespace: hidden, Name: "tls"}
	secrets.Recheck(tls, late, other, elsewhere)
	shows := func(key Key, want bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, exists, err := secrets.Get(key)
			return err == nil && exists == want
		}, inTime, 5*time.Millisecond)
	}
	shows(tls, true)
	shows(late, false)
	for _, key := range []Key{other, elsewhere} {
		require.Eventually(t, func() bool { return secrets.HealthIn(key.String()).State == Denied }, inTime,
			5*time.Millisecond)
		_, _, err := secrets.Get(key)
		require.ErrorIs(t, err, ErrNotKnown)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	}
	require.Equal(t, Live, secrets.Health().State)
	require.Equal(t, 2, secrets.Health().Unknown)

	create(namespace, "late")
	shows(late, true)
	_, exists, err := secrets.Live(t.Context(), tls)
	require.NoError(t, err)
	require.True(t, exists)
	require.NoError(t, admin.Secrets(namespace).Delete(t.Context(), "tls", metav1.DeleteOptions{}))
	shows(tls, false)
	secrets.Relist(metav1.NamespaceAll, nil) // within its rights, too
	shows(late, true)
	require.Zero(t, secrets.Health().ByMetadata)
	require.Eventually(t, func() bool { return secrets.HealthIn(late.String()).State == Live }, inTime,
		5*time.Millisecond)
}

// With the right to list and watch the namespace its metadata is enough.
func TestReferencedByMetadata(t *testing.T) {
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	api := cluster.Client().CoreV1().Secrets(namespace)
	secrets := namedSecrets(t, cluster, namespace)
	keys := []Key{{Namespace: namespace, Name: "a"}, {Namespace: namespace, Name: "b"},
		{Namespace: namespace, Name: "c"}}
	secrets.Recheck(keys...)
	eventually := func(what string, so func() bool) {
		t.Helper()
		require.Eventually(t, so, inTime, 5*time.Millisecond, what)
	}
	eventually("known", func() bool { h := secrets.Health(); return h.ByMetadata == 3 && h.Unknown == 0 })
	a, err := api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually("created", func() bool { _, exists, err := secrets.Get(keys[0]); return exists && err == nil })
	a.StringData = map[string]string{"v": "2"}
	_, err = api.Update(t.Context(), a, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually("updated", func() bool { a, _, _ := secrets.Get(keys[0]); return string(a.Data["v"]) == "2" })
	require.NoError(t, api.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	eventually("deleted", func() bool { _, exists, err := secrets.Get(keys[0]); return !exists && err == nil })
}
