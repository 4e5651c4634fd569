package objects_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// What the helpers rely on is decided by the server: what conflicts, what a condition on a UID or on a list does, what
// it refuses. So these tests run on a real one.

// wire counts the writes of all clients that are made from a configuration, and can lose the answers of their
// creations.
type wire struct {
	writes atomic.Int32
	lose   atomic.Bool
}

var errLost = errors.New("the answer is lost")

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodGet {
			w.writes.Add(1)
		}
		resp, err := next.RoundTrip(req)
		if err == nil && req.Method == http.MethodPost && w.lose.Load() {
			resp.Body.Close()
			return nil, errLost
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// site is a namespace of the cluster, and clients whose writes are counted.
type site struct {
	namespace string
	config    *rest.Config
	client    kubernetes.Interface
	wire      wire
	gadgets   dynamic.ResourceInterface // set by newGadgets
}

func newSite(t *testing.T) *site { return newSiteOn(t, testcluster.Shared(t)) }

func newSiteOn(t *testing.T, c *testcluster.Cluster) *site {
	s := &site{namespace: c.Namespace(t), config: c.Config()}
	s.config.Wrap(s.wire.wrap)
	s.client = kubernetes.NewForConfigOrDie(s.config)
	return s
}

// writes returns the number of writes since the last call.
func (s *site) writes() int { return int(s.wire.writes.Swap(0)) }

func (s *site) newSet(t *testing.T, name string) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	rs, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return rs
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}, SchedulerName: "nobody"}
}

func (s *site) newMap(t *testing.T, o *corev1.ConfigMap) *corev1.ConfigMap {
	o, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
	return o
}

// newGadgets defines a custom resource with a status, and returns a client of it.
func (s *site) newGadgets(t *testing.T) objects.DynamicClient {
	client := dynamic.NewForConfigOrDie(s.config)
	group := strings.ToLower(t.Name()) + ".example.com"
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	_, err := crds.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": "gadgets", "kind": "Gadget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": open, "status": open},
				}},
			}},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, crds.Delete(context.Background(), "gadgets."+group, metav1.DeleteOptions{}))
	})
	s.gadgets = client.Resource(schema.GroupVersionResource{Group: group, Version: "v1",
		Resource: "gadgets"}).Namespace(s.namespace)
	require.Eventually(t, func() bool { // it takes a moment until a new resource is served
		_, err := s.gadgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Gadget", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"size": int64(1)},
		}}, metav1.CreateOptions{})
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	s.writes()
	return objects.Dynamic(s.gadgets)
}

// TestStatusOnAServer needs a control plane of its own: Kubernetes' controller writes the status of ReplicaSets, too.
func TestStatusOnAServer(t *testing.T) {
	s := newSiteOn(t, testcluster.New(t, testcluster.Options{DisableNode: true,
		Controllers: []string{"*", "-replicaset-controller"}}))
	ctx, sets := t.Context(), s.client.AppsV1().ReplicaSets(s.namespace)
	seen := s.newSet(t, "a")

	// Somebody changes the spec before the status is written.
	_, err := sets.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"minReadySeconds":7}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	s.writes()
	status := func(rs *appsv1.ReplicaSet) error {
		rs.Status.Replicas, rs.Status.ObservedGeneration = 3, rs.Generation
		return nil
	}
	written, err := objects.UpdateStatus(ctx, sets, seen, status)
	require.NoError(t, err)
	require.Equal(t, 2, s.writes())
	require.EqualValues(t, 2, written.Generation)
	require.EqualValues(t, 7, written.Spec.MinReadySeconds)
	require.EqualValues(t, 3, written.Status.Replicas)
	require.EqualValues(t, 1, written.Status.ObservedGeneration)

	// Nothing to write, however it was read.
	live, err := sets.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = objects.UpdateStatus(ctx, sets, live,
		func(rs *appsv1.ReplicaSet) error { rs.Status.Replicas = 3; return nil })
	require.NoError(t, err)
	require.Zero(t, s.writes())

	// A namesake.
	require.NoError(t, sets.Delete(ctx, "a", metav1.DeleteOptions{}))
	s.newSet(t, "a")
	_, err = objects.UpdateStatus(ctx, sets, seen, status)
	require.ErrorIs(t, err, objects.ErrGone)
	require.NoError(t, sets.Delete(ctx, "a", metav1.DeleteOptions{}))
	_, err = objects.UpdateStatus(ctx, sets, seen, status)
	require.ErrorIs(t, err, objects.ErrGone)
}

// TestStatusOfACustomResource keeps a condition in a resource that no Go type describes.
func TestStatusOfACustomResource(t *testing.T) {
	s := newSite(t)
	ctx, gadgets := t.Context(), s.newGadgets(t)
	seen, err := gadgets.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = gadgets.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":2},"status":{"ignored":true}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	s.writes()
	replicas := func(o *unstructured.Unstructured) error {
		return errors.Join(
			unstructured.SetNestedField(o.Object, int64(3), "status", "replicas"),
			unstructured.SetNestedField(o.Object, o.GetGeneration(), "status", "observedGeneration"))
	}
	written, err := objects.UpdateStatus(ctx, gadgets, seen, replicas)
	require.NoError(t, err)
	require.Equal(t, 2, s.writes())
	require.EqualValues(t, 2, written.GetGeneration())
	require.Equal(t, map[string]any{"size": int64(2)}, written.Object["spec"])
	require.Equal(t, map[string]any{"replicas": int64(3), "observedGeneration": int64(1)}, written.Object["status"])
	_, err = objects.UpdateStatus(ctx, gadgets, written, func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, int64(3), "status", "replicas")
	})
	require.NoError(t, err)
	require.Zero(t, s.writes())

	// A resource without a status subresource answers 404, which says nothing about the object.
	s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	statusless := objects.Dynamic(dynamic.NewForConfigOrDie(s.config).Resource(
		corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace))
	o, err := statusless.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = objects.UpdateStatus(ctx, statusless, o, replicas)
	require.True(t, apierrors.IsNotFound(err), err)
	require.NotErrorIs(t, err, objects.ErrGone)
}

// TestConditionsOnAServer sets a condition again and again, as every run of a controller does.
func TestConditionsOnAServer(t *testing.T) {
	s := newSite(t)
	ctx, services := t.Context(), s.client.CoreV1().Services(s.namespace)
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.writes()
	for _, step := range []struct {
		status metav1.ConditionStatus
		reason string
		writes int
	}{
		{metav1.ConditionFalse, "Starting", 1}, {metav1.ConditionFalse, "Starting", 0},
		{metav1.ConditionFalse, "Slow", 1},
		{metav1.ConditionTrue, "Up", 1}, {metav1.ConditionTrue, "Up", 0},
	} {
		service, err = objects.UpdateStatus(ctx, services, service, func(service *corev1.Service) error {
			return objects.SetCondition(&service.Status.Conditions, service.Generation,
				ready(step.status, step.reason))
		})
		require.NoError(t, err)
		require.Equal(t, step.writes, s.writes(), step)
		c, _ := objects.FindCondition(service.Status.Conditions, "Ready")
		require.Equal(t, step.reason, c.Reason)
	}
	require.True(t, objects.ConditionTrue(service.Status.Conditions, "Ready", service.Generation))
}

func TestFinalizersOnAServer(t *testing.T) {
	s := newSite(t)
	ctx, maps := t.Context(), s.client.CoreV1().ConfigMaps(s.namespace)
	shadows := metadata.NewForConfigOrDie(s.config).Resource(
		corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace)
	gadgets := s.newGadgets(t)
	read := func(name string) func() (*corev1.ConfigMap, error) {
		return func() (*corev1.ConfigMap, error) { return maps.Get(ctx, name, metav1.GetOptions{}) }
	}
	s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "none"}})
	s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Finalizers: []string{theirs}}})
	s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shadow"}})

	t.Run("typed", func(t *testing.T) {
		testFinalizer(t, maps, read("none"), func() error { return maps.Delete(ctx, "none", metav1.DeleteOptions{}) })
	})
	t.Run("next to others", func(t *testing.T) {
		testFinalizer(t, maps, read("theirs"),
			func() error { return maps.Delete(ctx, "theirs", metav1.DeleteOptions{}) })
	})
	t.Run("metadata", func(t *testing.T) {
		testFinalizer(t, shadows, func() (*metav1.PartialObjectMetadata,
			error) {
			return shadows.Get(ctx, "shadow", metav1.GetOptions{})
		},
			func() error { return shadows.Delete(ctx, "shadow", metav1.DeleteOptions{}) })
	})
	t.Run("custom resource", func(t *testing.T) {
		testFinalizer(t, gadgets, func() (*unstructured.Unstructured,
			error) {
			return gadgets.Get(ctx, "a", metav1.GetOptions{})
		},
			func() error { return s.gadgets.Delete(ctx, "a", metav1.DeleteOptions{}) })
	})

	t.Run("a namesake", func(t *testing.T) {
		old := s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "twin"}})
		require.NoError(t, maps.Delete(ctx, "twin", metav1.DeleteOptions{}))
		_, _, err := objects.Finalize(ctx, maps, old, ours, noCleanup(t))
		require.ErrorIs(t, err, objects.ErrGone)
		s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "twin"}})
		_, _, err = objects.Finalize(ctx, maps, old, ours, noCleanup(t))
		require.True(t, apierrors.IsInvalid(err), err)
		twin, err := read("twin")()
		require.NoError(t, err)
		require.Empty(t, twin.Finalizers)
	})
}

// testFinalizer takes an object through its life, with views that are out of date.
func testFinalizer[T informer.Object](t *testing.T, client objects.Patcher[T], read func() (T, error),
	del func() error) {
	ctx := t.Context()
	look := func() T {
		o, err := read()
		require.NoError(t, err)
		return o
	}
	patch := func(body string) {
		_, err := client.Patch(ctx, look().GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	unmarked := look()
	others := unmarked.GetFinalizers()

	// Another change of the object does not matter, another finalizer does.
	patch(`{"metadata":{"labels":{"changed":"yes"}}}`)
	marked, alive, err := objects.Finalize(ctx, client, unmarked, ours, noCleanup(t))
	require.NoError(t, err)
	require.True(t, alive)
	require.Equal(t, append(slices.Clone(others), ours), marked.GetFinalizers())
	require.Equal(t, "yes", marked.GetLabels()["changed"])
	_, alive, err = objects.Finalize(ctx, client, unmarked, ours, noCleanup(t))
	require.True(t, apierrors.IsInvalid(err), "the old view would have added it twice: %v", err)
	require.False(t, alive)

	// An object that is being deleted takes no new finalizer, whatever the cache may say.
	require.NoError(t, del())
	_, alive, err = objects.Finalize(ctx, client, marked, "example.com/late", noCleanup(t))
	require.True(t, apierrors.IsInvalid(err), err)
	require.False(t, alive)

	// One more change that comes between the look and the removal.
	dying := look()
	patch(`{"metadata":{"annotations":{"changed":"again"}}}`)
	cleanups := 0
	cleanup := func(context.Context) (bool, error) {
		cleanups++
		require.Contains(t, look().GetFinalizers(), ours)
		return true, nil
	}
	released, alive, err := objects.Finalize(ctx, client, dying, ours, cleanup)
	require.NoError(t, err)
	require.False(t, alive)
	require.Equal(t, 1, cleanups)
	require.Equal(t, others, released.GetFinalizers())

	// The old view again: the object is gone now, or still there for others.
	_, _, err = objects.Finalize(ctx, client, dying, ours, cleanedUp)
	if len(others) == 0 {
		require.NoError(t, err)
		_, err = read()
		require.True(t, apierrors.IsNotFound(err), err)
	} else {
		require.True(t, apierrors.IsInvalid(err), err)
		require.Equal(t, others, look().GetFinalizers())
		patch(`{"metadata":{"finalizers":null}}`)
	}
}

func TestClaimsOnAServer(t *testing.T) {
	s := newSite(t)
	ctx, sets, maps := t.Context(), s.client.AppsV1().ReplicaSets(s.namespace),
		s.client.CoreV1().ConfigMaps(s.namespace)
	rs := s.newSet(t, "owner")
	owner := objects.NewOwner(sets, rs, setKind)
	all := func(*corev1.ConfigMap) bool { return true }
	none := func(*corev1.ConfigMap) bool { return false }
	claim := func(o *objects.Owner, wanted func(*corev1.ConfigMap) bool,
		candidates ...*corev1.ConfigMap) ([]*corev1.ConfigMap, error) {
		return objects.Claim(ctx, o, maps, slices.Values(candidates), wanted)
	}
	newMap := func(name string) *corev1.ConfigMap {
		return s.newMap(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: s.root(t).UID}}}})
	}

	// An orphan with an owner that does not control it: taken, changed elsewhere, let go, and as it was.
	orphan := newMap("orphan")
	_, err := maps.Patch(ctx, "orphan", types.MergePatchType, []byte(`{"data":{"changed":"yes"}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	mine, err := claim(owner, all, orphan)
	require.NoError(t, err)
	require.Equal(t, append(slices.Clone(orphan.OwnerReferences), owner.Reference()), mine[0].OwnerReferences)
	require.Equal(t, "yes", mine[0].Data["changed"])
	_, err = claim(owner, none, mine...)
	require.NoError(t, err)
	now, err := maps.Get(ctx, "orphan", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, orphan.OwnerReferences, now.OwnerReferences)
	s.writes()
	_, err = claim(owner, none, mine...) // released before, as the old view does not know
	require.NoError(t, err)
	require.Equal(t, 1, s.writes())

	// Two owners and one orphan: one of them gets it.
	rival := objects.NewOwner(sets, s.newSet(t, "rival"), setKind)
	var contest sync.WaitGroup
	var won atomic.Int32
	for _, o := range []*objects.Owner{owner, rival} {
		contest.Go(func() {
			mine, err := claim(o, all, now)
			if err == nil {
				won.Add(int32(len(mine)))
			} else if !apierrors.IsInvalid(err) {
				t.Error(err)
			}
		})
	}
	contest.Wait()
	require.EqualValues(t, 1, won.Load())

	// A namesake of the candidate is not touched.
	old := newMap("twin")
	require.NoError(t, maps.Delete(ctx, "twin", metav1.DeleteOptions{}))
	mine, err = claim(owner, all, old)
	require.NoError(t, err)
	require.Empty(t, mine)
	twin := newMap("twin")
	_, err = claim(owner, all, old)
	require.True(t, apierrors.IsInvalid(err), err)
	again, err := maps.Get(ctx, "twin", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, twin, again)

	// A custom resource, which a strategic merge patch would not do for.
	gadgets := s.newGadgets(t)
	gadget, err := gadgets.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	theirs, err := objects.Claim(ctx, owner, gadgets, slices.Values([]*unstructured.Unstructured{gadget}),
		func(*unstructured.Unstructured) bool { return true })
	require.NoError(t, err)
	require.Equal(t, []metav1.OwnerReference{owner.Reference()}, theirs[0].GetOwnerReferences())

	// A custom resource that owns.
	byGadget := objects.NewOwner(gadgets, gadget, gadget.GroupVersionKind())
	mine, err = claim(byGadget, all, twin)
	require.NoError(t, err)
	require.Len(t, mine, 1)

	// The owner is deleted while its cached view lives, then made anew.
	late := newMap("late")
	require.NoError(t, sets.Delete(ctx, "owner", metav1.DeleteOptions{}))
	s.writes()
	_, err = claim(owner, all, late)
	require.ErrorIs(t, err, objects.ErrGone)
	s.newSet(t, "owner")
	s.writes()
	_, err = claim(owner, all, late)
	require.ErrorIs(t, err, objects.ErrGone)
	require.Zero(t, s.writes())
}

// root is an object that every namespace has.
func (s *site) root(t *testing.T) *corev1.ConfigMap {
	var root *corev1.ConfigMap
	require.Eventually(t, func() (found bool) {
		o, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		root = o
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	return root
}

// TestACreationWhoseAnswerIsLostOnAServer repeats it, and finds what it has made.
func TestACreationWhoseAnswerIsLostOnAServer(t *testing.T) {
	s := newSite(t)
	ctx, sets, maps := t.Context(), s.client.AppsV1().ReplicaSets(s.namespace),
		s.client.CoreV1().ConfigMaps(s.namespace)
	owner := objects.NewOwner(sets, s.newSet(t, "owner"), setKind)
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child"}}

	s.wire.lose.Store(true)
	_, err := objects.CreateOwned(ctx, owner, maps, child)
	require.ErrorIs(t, err, errLost)
	s.wire.lose.Store(false)
	made, err := objects.CreateOwned(ctx, owner, maps, child)
	require.NoError(t, err)
	require.Equal(t, []metav1.OwnerReference{owner.Reference()}, made.OwnerReferences)
	require.EqualValues(t, s.namespace, made.Namespace)

	// Somebody else finds the name taken, and so does the owner once the object is not its own any more.
	rival := objects.NewOwner(sets, s.newSet(t, "rival"), setKind)
	_, err = objects.CreateOwned(ctx, rival, maps, child)
	var taken *objects.TakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, new(owner.Reference()), taken.Controller)
	require.True(t, apierrors.IsAlreadyExists(err))
	_, err = maps.Patch(ctx, "child", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = objects.CreateOwned(ctx, owner, maps, child)
	require.ErrorAs(t, err, &taken)
	require.Nil(t, taken.Controller)
}

func TestApplyOnAServer(t *testing.T) {
	s := newSite(t)
	ctx, maps, sets := t.Context(), s.client.CoreV1().ConfigMaps(s.namespace),
		s.client.AppsV1().ReplicaSets(s.namespace)
	config := func(data map[string]string) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("a", s.namespace).WithData(data)
	}
	apply := func(seen *corev1.ConfigMap, data map[string]string) *corev1.ConfigMap {
		o, err := objects.ApplyChanges(ctx, maps.Apply, corev1ac.ExtractConfigMap, seen, config(data), asMe)
		require.NoError(t, err)
		return o
	}
	made := apply(nil, map[string]string{"ours": "1", "gone": "soon"})
	require.Equal(t, 1, s.writes())

	// Somebody else takes a field over, and adds one.
	_, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"ours":"2","theirs":"3"}}`),
		metav1.PatchOptions{FieldManager: "somebody"})
	require.NoError(t, err)
	_, err = objects.Apply(ctx, maps.Apply, config(map[string]string{"ours": "1"}), asMe)
	var conflict *objects.ApplyConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []objects.FieldConflict{{Field: ".data.ours", Manager: "somebody"}}, conflict.Conflicts)
	require.EqualError(t, err, "apply ConfigMap "+s.namespace+"/a as me: .data.ours is managed by somebody")

	forced, err := objects.Apply(ctx, maps.Apply, config(map[string]string{"ours": "1"}),
		metav1.ApplyOptions{FieldManager: "me", Force: true})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"ours": "1", "theirs": "3"}, forced.Data)

	// Now nothing would change. An old view is no reason not to apply.
	s.writes()
	require.Same(t, forced, apply(forced, map[string]string{"ours": "1"}))
	require.Zero(t, s.writes())
	unchanged := apply(made, map[string]string{"ours": "1"})
	require.Equal(t, 1, s.writes())
	require.Equal(t, forced.ResourceVersion, unchanged.ResourceVersion, "what the skipped apply would have done")
	require.Equal(t, map[string]string{"ours": "4", "theirs": "3"}, apply(forced, map[string]string{"ours": "4"}).Data)

	// A nested object with defaults, lists and quantities, and its status.
	labels := map[string]string{"app": "b"}
	set := appsv1ac.ReplicaSet("b", s.namespace).WithSpec(appsv1ac.ReplicaSetSpec().WithReplicas(0).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName("main").WithImage("none").
				WithResources(corev1ac.ResourceRequirements().WithRequests(
					corev1.ResourceList{"cpu": apiresource.MustParse("100m")})).
				WithPorts(corev1ac.ContainerPort().WithContainerPort(80).WithName("http"))))))
	b, err := objects.ApplyChanges(ctx, sets.Apply, appsv1ac.ExtractReplicaSet, nil, set, asMe)
	require.NoError(t, err)
	b, err = objects.ApplyChanges(ctx, sets.ApplyStatus, appsv1ac.ExtractReplicaSetStatus, b,
		appsv1ac.ReplicaSet("b", s.namespace).WithStatus(appsv1ac.ReplicaSetStatus().WithReplicas(5)), asMe)
	require.NoError(t, err)
	require.EqualValues(t, 5, b.Status.Replicas)
	s.writes()
	_, err = objects.ApplyChanges(ctx, sets.Apply, appsv1ac.ExtractReplicaSet, b, set, asMe)
	require.NoError(t, err)
	_, err = objects.ApplyChanges(ctx, sets.ApplyStatus, appsv1ac.ExtractReplicaSetStatus, b,
		appsv1ac.ReplicaSet("b", s.namespace).WithStatus(appsv1ac.ReplicaSetStatus().WithReplicas(5)), asMe)
	require.NoError(t, err)
	require.Zero(t, s.writes())
}
