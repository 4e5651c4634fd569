package objects_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// The objects of client-go's fake clientset have neither a UID nor a resourceVersion. Each helper that needs one says
// so, and what a test can do; with them set it works.
func TestHelpersSayWhatAFakeObjectLacks(t *testing.T) {
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	meta := metav1.ObjectMeta{Namespace: "default", Name: "a"}
	clients := fake.NewClientset()
	sets, pods := clients.AppsV1().ReplicaSets("default"), clients.CoreV1().Pods("default")
	set, err := sets.Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	done := func(context.Context) (bool, error) { return true, nil }
	ready := func(s *appsv1.ReplicaSet) error { s.Status.Replicas = 1; return nil }
	every := func(*corev1.Pod) bool { return true }
	const noUID = " has no UID, so it was not read from a server; client-go's fake clients give none: a test that " +
		"uses one sets the UID itself"

	_, err = objects.CreateOwned(t.Context(), objects.NewOwner(sets, set, kind), pods, &corev1.Pod{ObjectMeta: meta})
	require.EqualError(t, err, "CreateOwned: the owner default/a"+noUID)
	_, err = objects.Claim(t.Context(), objects.NewOwner(sets, set, kind), pods, slices.Values([]*corev1.Pod{pod}),
		every)
	require.EqualError(t, err, "Claim: the owner default/a"+noUID)
	_, _, err = objects.Finalize(t.Context(), pods, pod, "example.com/f", done)
	require.EqualError(t, err, "Finalize: default/a"+noUID)
	_, err = objects.UpdateStatus(t.Context(), sets, set, ready)
	require.ErrorContains(t, err, "the object has no resourceVersion, so it was not read from a server")
	require.ErrorContains(t, err, "a test that uses one sets the resourceVersion itself")

	set.UID, set.ResourceVersion = "set", "1"
	set, err = sets.Update(t.Context(), set, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = objects.UpdateStatus(t.Context(), sets, set, ready)
	require.NoError(t, err)
	owner := objects.NewOwner(sets, set, kind)
	_, err = objects.Claim(t.Context(), owner, pods, slices.Values([]*corev1.Pod{pod}), every)
	require.ErrorContains(t, err, "adopt default/a for ReplicaSet default/a: the object"+noUID)
	pod.UID = "pod"
	pod, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	mine, err := objects.Claim(t.Context(), owner, pods, slices.Values([]*corev1.Pod{pod}), every)
	require.NoError(t, err)
	require.Len(t, mine, 1)
	_, _, err = objects.Finalize(t.Context(), pods, mine[0], "example.com/f", done)
	require.NoError(t, err)
}
