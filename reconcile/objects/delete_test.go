package objects_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func TestDeleteOwned(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	link := server.Link()
	maps := kubernetes.NewForConfigOrDie(link.Config()).CoreV1().ConfigMaps("default")
	admin := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	create := func(name string, owner *objects.Owner, finalizers ...string) *corev1.ConfigMap {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		if owner != nil {
			m.OwnerReferences = []metav1.OwnerReference{owner.Reference()}
		}
		m, err := admin.Create(t.Context(), m, metav1.CreateOptions{})
		require.NoError(t, err)
		return m
	}
	owner := objects.NewOwner(admin, create("owner", nil), kind)
	remove := func(seen *corev1.ConfigMap) (bool, error) {
		return objects.DeleteOwned(t.Context(), owner, maps, seen, metav1.DeletePropagationBackground)
	}
	requireGone := func(want bool, requests int, seen *corev1.ConfigMap) {
		t.Helper()
		before := len(link.Requests())
		gone, err := remove(seen)
		require.NoError(t, err)
		require.Equal(t, want, gone)
		require.Len(t, link.Requests(), before+requests)
	}

	requireGone(true, 0, nil)
	requireGone(true, 0, create("free", nil))
	requireGone(true, 0, create("theirs", objects.NewOwner(admin, create("other", nil), kind)))

	ours := create("ours", owner, "example.com/hold")
	requireGone(false, 1, ours)
	deleting, err := admin.Get(t.Context(), "ours", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, deleting.DeletionTimestamp)
	requireGone(false, 0, deleting)

	replaced := create("replaced", owner)
	requireGone(false, 1, replaced)
	requireGone(false, 1, replaced) // the cache lags
	create("replaced", owner)
	_, err = remove(replaced)
	require.True(t, apierrors.IsConflict(err), "%v", err)

	_, err = remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made-up"}})
	require.ErrorContains(t, err, "DeleteOwned: ")
	_, err = objects.DeleteOwned(t.Context(), nil, maps, ours, metav1.DeletePropagationBackground)
	require.ErrorContains(t, err, "the owner is nil")
	_, err = objects.DeleteOwned(t.Context(), owner, nil, ours, metav1.DeletePropagationBackground)
	require.ErrorContains(t, err, "the client is nil")
}
