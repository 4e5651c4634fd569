package objects_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const ownerLabel = "example.com/owner"

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func TestOwnersByLabelInMemory(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	testOwnersByLabel(t, server.Config(), "default")
}

func TestOwnersByLabelOnAServer(t *testing.T) {
	c := testcluster.Shared(t)
	testOwnersByLabel(t, c.Config(), c.Namespace(t))
}

// testOwnersByLabel has two ConfigMaps that own, by label, ConfigMaps of another namespace: no owner reference can say
// that.
func testOwnersByLabel(t *testing.T, cfg *rest.Config, namespace string) {
	client := kubernetes.NewForConfigOrDie(cfg)
	far, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace + "-far"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	near, children := client.CoreV1().ConfigMaps(namespace), client.CoreV1().ConfigMaps(far.Name)
	makes := func(name string) *objects.Owner {
		o, err := near.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		return objects.NewOwner(near, o, configMapKind).ByLabel(ownerLabel)
	}
	ours, theirs := makes("ours"), makes("theirs")
	apply := func(owner *objects.Owner, seen *corev1.ConfigMap, name string) (*corev1.ConfigMap, error) {
		return objects.ApplyOwned(t.Context(), owner, children, seen, corev1ac.ConfigMap(name, far.Name),
			metav1.ApplyOptions{FieldManager: "me", Force: true}, nil)
	}
	isOf := func(o *corev1.ConfigMap, owner string) {
		t.Helper()
		require.Empty(t, o.OwnerReferences)
		require.Equal(t, namespace+"/"+owner, o.Annotations[ownerLabel])
		require.Equal(t, []informer.Key{{Namespace: namespace, Name: owner}},
			objects.LabelledBy[*corev1.ConfigMap](ownerLabel)(o))
	}

	made, err := objects.CreateOwned(t.Context(), ours, children,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: far.Name, Name: "made"}})
	require.NoError(t, err)
	isOf(made, "ours")
	applied, err := apply(ours, nil, "applied")
	require.NoError(t, err)
	isOf(applied, "ours")
	again, err := apply(ours, applied, "applied")
	require.NoError(t, err)
	require.Same(t, applied, again, "an apply that changes nothing was sent")

	// An object that names no namespace is cluster-scoped.
	for i, make := range []func(name string) (*corev1.Namespace, error){
		func(name string) (*corev1.Namespace, error) {
			return objects.CreateOwned(t.Context(), ours, client.CoreV1().Namespaces(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		},
		func(name string) (*corev1.Namespace, error) {
			return objects.ApplyOwned(t.Context(), ours, client.CoreV1().Namespaces(), nil, corev1ac.Namespace(name),
				forced, nil)
		},
	} {
		made, err := make(fmt.Sprint(far.Name, i))
		require.NoError(t, err)
		require.Empty(t, made.Namespace)
		require.Equal(t, namespace+"/ours", made.Annotations[ownerLabel])
	}

	// What is another's stays, whether the cache has shown it or not.
	for _, seen := range []*corev1.ConfigMap{applied, nil} {
		_, err = apply(theirs, seen, "applied")
		var taken *objects.TakenError
		require.ErrorAs(t, err, &taken)
		require.Equal(t, namespace+"/ours", taken.Label)
		require.ErrorContains(t, err, "an object that "+namespace+"/ours owns by its label")
	}
	gone, err := objects.DeleteOwned(t.Context(), theirs, children, applied, metav1.DeletePropagationBackground)
	require.NoError(t, err)
	require.True(t, gone)

	// A claim adopts what has no owner, and releases what is not wanted: then others may have it.
	free, err := children.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free",
		Labels: map[string]string{"a": "b"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	all := []*corev1.ConfigMap{made, applied, free}
	mine, err := objects.Claim(t.Context(), ours, children, slices.Values(all),
		func(o *corev1.ConfigMap) bool { return o.Name != "made" })
	require.NoError(t, err)
	require.Len(t, mine, 2)
	require.Equal(t, "b", mine[1].Labels["a"])
	isOf(mine[1], "ours")
	released, err := children.Get(t.Context(), "made", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, released.Labels, ownerLabel)
	require.Empty(t, objects.LabelledBy[*corev1.ConfigMap](ownerLabel)(released))
	every := func(*corev1.ConfigMap) bool { return true }
	mine, err = objects.Claim(t.Context(), theirs, children, slices.Values([]*corev1.ConfigMap{released, mine[1]}),
		every)
	require.NoError(t, err)
	require.Len(t, mine, 1)
	isOf(mine[0], "theirs")

	// An adoption holds only for the labels that were seen.
	_, err = objects.Claim(t.Context(), ours, children, slices.Values([]*corev1.ConfigMap{released}), every)
	require.True(t, apierrors.IsInvalid(err), err)
	isNow, err := children.Get(t.Context(), "made", metav1.GetOptions{})
	require.NoError(t, err)
	isOf(isNow, "theirs")
}

// TestWhatHasAControllerIsNotLabelled: somebody owns it by reference.
func TestWhatHasAControllerIsNotLabelled(t *testing.T) {
	yes := true
	pod := newPod("a", "1", metav1.OwnerReference{Kind: "ReplicaSet", Name: "other", UID: "other", Controller: &yes})
	pods := newDesk(t, pod)
	owner := objects.NewOwner(newDesk(t, newSet("web", "web")), newSet("web", "web"), setKind).ByLabel(ownerLabel)
	mine, err := objects.Claim(testCtx(t), owner, pods, slices.Values([]*corev1.Pod{pod}),
		func(*corev1.Pod) bool { return true })
	require.NoError(t, err)
	require.Empty(t, mine)
	require.Empty(t, pods.took())

	// Nor if the cache has not shown that yet.
	seen := newPod("a", "1")
	seen.ResourceVersion = "1"
	_, err = objects.Claim(testCtx(t), owner, pods, slices.Values([]*corev1.Pod{seen}),
		func(*corev1.Pod) bool { return true })
	require.True(t, apierrors.IsInvalid(err), err)
}

func TestALabelThatCannotWorkIsRefused(t *testing.T) {
	set := newSet("web", "web")
	for label, want := range map[string]string{
		"":           `the label "": name part must be non-empty`,
		"owner":      `the label "owner" has no domain in front, as in example.com/owner`,
		"a b.com/no": `the label "a b.com/no": prefix part`,
	} {
		owner := objects.NewOwner(newDesk(t, set), set, setKind).ByLabel(label)
		_, err := objects.CreateOwned(testCtx(t), owner, newDesk[*corev1.Pod](t), newPod("a", ""))
		require.ErrorContains(t, err, "CreateOwned: "+want)
	}
	nobody := objects.NewOwner[*corev1.Pod](nil, nil, setKind).ByLabel(ownerLabel)
	_, err := objects.CreateOwned(testCtx(t), nobody, newDesk[*corev1.Pod](t), newPod("a", ""))
	require.EqualError(t, err, "CreateOwned: the owner is nil")
}

// TestAnObjectWithHalfAMarkNamesNoKey: somebody has removed the annotation, or changed it.
func TestAnObjectWithHalfAMarkNamesNoKey(t *testing.T) {
	keys := objects.LabelledBy[*corev1.Pod](ownerLabel)
	pod := newPod("a", types.UID("1"))
	pod.Annotations = map[string]string{ownerLabel: "default/web"}
	require.Empty(t, keys(pod))
	pod.Labels = map[string]string{ownerLabel: "web"}
	require.Equal(t, []informer.Key{{Namespace: "default", Name: "web"}}, keys(pod))
	pod.Annotations[ownerLabel] = "web"
	require.Empty(t, keys(pod))
}
