package reconciletest

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

var latchResource = schema.GroupVersionResource{Group: "corpus.example.com", Version: "v1", Resource: "latches"}

func latch(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "corpus.example.com/v1", "kind": "Latch",
		"spec": map[string]any{}}}
	u.SetName(name)
	return u
}

// withLatches runs a test in a bubble with a server that has no latches at first.
func withLatches(t *testing.T, test func(t *testing.T, s *Server, client dynamic.Interface)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, Options{Uninstalled: []string{"testdata/latches.yaml"}})
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		test(t, s, client)
	})
}

func TestAKindThatComesLater(t *testing.T) {
	withLatches(t, func(t *testing.T, s *Server, client dynamic.Interface) {
		all := client.Resource(latchResource).Namespace("default")
		groups := discovery.NewDiscoveryClientForConfigOrDie(s.Config())
		_, err := all.Create(t.Context(), latch("a"), metav1.CreateOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		_, err = groups.ServerResourcesForGroupVersion("corpus.example.com/v1")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		s.Install("latches.corpus.example.com")
		made, err := all.Create(t.Context(), latch("a"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 7, specOfDoor(made)["width"], "by the default in the schema")
		found, err := groups.ServerResourcesForGroupVersion("corpus.example.com/v1")
		require.NoError(t, err)
		require.Equal(t, "latches", found.APIResources[0].Name)
	})
}

// TestAKindThatGoes has a finalizer on one of the objects.
func TestAKindThatGoes(t *testing.T) {
	withLatches(t, func(t *testing.T, s *Server, client dynamic.Interface) {
		s.Install("latches.corpus.example.com")
		all, crds := client.Resource(latchResource).Namespace("default"), client.Resource(definitions)
		kept := latch("kept")
		kept.SetFinalizers([]string{"example.com/f"})
		for _, o := range []*unstructured.Unstructured{kept, latch("free")} {
			_, err := all.Create(t.Context(), o, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		watched, err := all.Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		var seen []watch.EventType
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range watched.ResultChan() { // which ends with the kind
				seen = append(seen, e.Type)
			}
		}()
		require.NoError(t, crds.Delete(t.Context(), "latches.corpus.example.com", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		left, err := all.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, left.Items, 1)
		_, err = all.Create(t.Context(), latch("late"), metav1.CreateOptions{})
		require.ErrorContains(t, err, "create not allowed while custom resource definition is terminating")
		_, err = all.Patch(t.Context(), "kept", "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = crds.Get(t.Context(), "latches.corpus.example.com", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		_, err = all.List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		<-ended
		require.Equal(t, []watch.EventType{watch.Added, watch.Added, watch.Deleted, watch.Modified, watch.Deleted},
			seen)

		s.Install("latches.corpus.example.com")
		left, err = all.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, left.Items)
	})
}

func TestARestoreBringsKindsBackAndTakesThemAway(t *testing.T) {
	withLatches(t, func(t *testing.T, s *Server, client dynamic.Interface) {
		all := client.Resource(latchResource).Namespace("default")
		before := s.Version()
		s.Install("latches.corpus.example.com")
		_, err := all.Create(t.Context(), latch("a"), metav1.CreateOptions{})
		require.NoError(t, err)
		with := s.Version()
		require.NoError(t, client.Resource(definitions).Delete(t.Context(), "latches.corpus.example.com",
			metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		_, err = all.Get(t.Context(), "a", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		s.Restore(with)
		got, err := all.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "a", got.GetName())
		s.Restore(before)
		_, err = all.List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

// TestWhatTheObjectsOfAKindOwnGoesWithIt has a Lease, which a pass of the collector meets after the definition by
// the order of their names.
func TestWhatTheObjectsOfAKindOwnGoesWithIt(t *testing.T) {
	withLatches(t, func(t *testing.T, s *Server, client dynamic.Interface) {
		s.Install("latches.corpus.example.com")
		all := client.Resource(latchResource).Namespace("default")
		owner := latch("a")
		owner.SetFinalizers([]string{"example.com/f"})
		owner, err := all.Create(t.Context(), owner, metav1.CreateOptions{})
		require.NoError(t, err)
		leases := kubernetes.NewForConfigOrDie(s.Config()).CoordinationV1().Leases("default")
		_, err = leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "owned",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "corpus.example.com/v1", Kind: "Latch", Name: "a",
				UID: owner.GetUID()}}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, client.Resource(definitions).Delete(t.Context(), "latches.corpus.example.com",
			metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		_, err = all.Patch(t.Context(), "a", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = leases.Get(t.Context(), "owned", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func TestAKindKeepsItsHooksWhenItComesAgain(t *testing.T) {
	resources, err := ReadCRDs([]byte(latches))
	require.NoError(t, err)
	resources[0].Default = func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"by": "the hook"}) }
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, Options{Resources: resources})
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		crds, all := client.Resource(definitions), client.Resource(latchResource).Namespace("default")
		crd, err := crds.Get(t.Context(), "latches.corpus.example.com", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, crds.Delete(t.Context(), crd.GetName(), metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		require.Empty(t, List[*unstructured.Unstructured](s, "latches", ""), "what is not there has no objects")
		again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": crd.GetAPIVersion(),
			"kind": crd.GetKind(), "spec": crd.Object["spec"]}}
		again.SetName(crd.GetName())
		_, err = crds.Create(t.Context(), again, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		made, err := all.Create(t.Context(), latch("a"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, "the hook", made.GetAnnotations()["by"])
	})
}

// TestAKindIsMissingBetweenItsDefinitionAndItsService has a definition that no option names.
func TestAKindIsMissingBetweenItsDefinitionAndItsService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, Options{})
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		all := client.Resource(latchResource).Namespace("default")
		_, err = all.List(t.Context(), metav1.ListOptions{})
		require.True(t, isNotModelled(err), "nobody has said that there is such a kind: %v", err)
		crd := &unstructured.Unstructured{}
		require.NoError(t, crd.UnmarshalJSON([]byte(latches)))
		_, err = client.Resource(definitions).Create(t.Context(), crd, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = all.List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		time.Sleep(time.Second)
		_, err = all.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	})
}

func TestRightsComeBeforeKinds(t *testing.T) {
	s := NewServer(t, Options{Uninstalled: []string{"testdata/latches.yaml"},
		Roles: []string{"testdata/config/rbac.yaml"}})
	client, err := dynamic.NewForConfig(s.LinkAs(ServiceAccount("default", "nobody")).Config())
	require.NoError(t, err)
	_, err = client.Resource(latchResource).Namespace("default").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestAManifestDefinesAKindForTheNext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	require.NoError(t, os.WriteFile(file, append(latchesYAML, []byte(`---
apiVersion: corpus.example.com/v1
kind: Latch
metadata: {name: a, namespace: default}
`)...), 0o600))
	s := NewServer(t, Options{Manifests: []string{file}})
	require.Len(t, List[*unstructured.Unstructured](s, "latches", ""), 1)
}

// TestDefinitionsThatAreNotTaken has those of which it is not known what a real server would do with them.
func TestDefinitionsThatAreNotTaken(t *testing.T) {
	withLatches(t, func(t *testing.T, s *Server, client dynamic.Interface) {
		s.Install("latches.corpus.example.com")
		crd, err := client.Resource(definitions).Get(t.Context(), "latches.corpus.example.com", metav1.GetOptions{})
		require.NoError(t, err)
		for want, change := range map[string]func(spec map[string]any){
			"one of its names is one of latches.corpus.example.com": func(spec map[string]any) {
				spec["names"] = map[string]any{"plural": "others", "kind": "Latch"}
			},
			"its group is one of Kubernetes itself": func(spec map[string]any) {
				spec["group"], spec["names"] = "apps", map[string]any{"plural": "others", "kind": "Other"}
			},
			"spec.scope is": func(spec map[string]any) {
				spec["scope"], spec["names"] = "World", map[string]any{"plural": "others", "kind": "Other"}
			},
		} {
			spec := crd.DeepCopy().Object["spec"].(map[string]any)
			change(spec)
			u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
				Kind: "CustomResourceDefinition"})
			u.SetName("others." + spec["group"].(string))
			_, err := client.Resource(definitions).Create(t.Context(), u, metav1.CreateOptions{})
			require.ErrorContains(t, err, want)
			require.True(t, isNotModelled(err), "%v", err)
		}
	})
}

func TestUninstalledIsJudgedAtTheStart(t *testing.T) {
	for want, paths := range map[string][]string{
		"no such file": {"testdata/none.yaml"},
		"uninstalled custom resources: there are no CustomResourceDefinitions in": {"testdata/webhooks.yaml"},
	} {
		_, err := Start(Options{Uninstalled: paths})
		require.ErrorContains(t, err, want)
	}
	_, err := Start(Options{CRDs: []string{"testdata/latches.yaml"}, Uninstalled: []string{"testdata/latches.yaml"}})
	require.ErrorContains(t, err, "latches.corpus.example.com is in Options.CRDs as well")
	_, err = Start(Options{Base: struct{ Base }{}, Uninstalled: []string{"testdata/latches.yaml"}})
	require.ErrorContains(t, err, "a fork serves the kinds of its base")
	s, err := Start(Options{})
	require.NoError(t, err)
	defer s.Close()
	require.PanicsWithValue(t, "reconciletest: there is no CustomResourceDefinition x.example.com in "+
		"Options.Uninstalled", func() { s.Install("x.example.com") })
}

// TestADefinitionInProtobufIsNotModelled, and the answer says what to do: a real server reads it.
func TestADefinitionInProtobufIsNotModelled(t *testing.T) {
	s := NewServer(t, Options{})
	err := kubernetes.NewForConfigOrDie(s.Config()).RESTClient().Post().
		AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/vnd.kubernetes.protobuf").Body([]byte("k8s\x00")).Do(t.Context()).Error()
	require.True(t, isNotModelled(err), "%v", err)
	require.ErrorContains(t, err, "ContentType application/json")
}
