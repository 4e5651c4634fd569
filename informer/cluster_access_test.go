package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/internal/kube"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Rights are taken away while the informer runs, and given back.
func TestRightsThatComeAndGo(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	tn := tenant{t, cluster.Client().CoreV1().Pods(namespace)}
	tn.create("changes", "goes", "stays")
	config, err := cluster.ServiceAccount(t.Context(), namespace,
		rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	require.NoError(t, err)
	followers := follow(t, config, namespace, Options[*corev1.Pod]{})
	for _, f := range followers {
		becomes(t, f.inf, Live)
	}
	agree(t, followers, tn.pods)
	toldOnly(t, followers, "Added changes initial", "Added goes initial", "Added stays initial")

	roles := cluster.Client().RbacV1().Roles(namespace)
	list, err := roles.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	role := &list.Items[0]
	rules := role.Rules
	role.Rules = nil
	role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	mine := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(namespace)
	require.Eventually(t, func() bool {
		_, err := mine.List(t.Context(), metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	}, inTime, 5*time.Millisecond, "the authorizer learns of it a little later")
	for _, f := range followers {
		f.proxy.Break() // a watch that is open stays open
	}
	for _, f := range followers {
		becomes(t, f.inf, Denied)
		require.True(t, apierrors.IsForbidden(f.inf.Health().LastError), f.inf.Health())
		require.ErrorContains(t, f.inf.Health().LastError, `cannot watch resource "pods"`)
		require.Equal(t, 3, f.inf.Len(), "the cache still answers")
		f.log.until(t, Denied)
	}
	tn.change("changes")
	tn.delete("goes")
	tn.create("comes")
	time.Sleep(500 * time.Millisecond) // and is refused again and again
	toldOnly(t, followers)
	newcomers := follow(t, config, namespace, Options[*corev1.Pod]{})
	for _, f := range newcomers {
		becomes(t, f.inf, Denied)
		waiting, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err := f.inf.WaitForSync(waiting)
		cancel()
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, `resource "pods"`)
		f.log.until(t, Denied)
	}

	role.Rules = rules
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	agree(t, append(followers, newcomers...), tn.pods)
	toldOnly(t, followers, "Updated changes", "Deleted goes", "Added comes")
	toldOnly(t, newcomers, "Added changes initial", "Added comes initial", "Added stays initial")
	for _, f := range append(followers, newcomers...) {
		becomes(t, f.inf, Live)
		f.log.until(t, Live)
		f.log.alsoSays(t, 0)
	}
	for _, f := range followers {
		require.Equal(t, 1, f.lists(), "the watch is resumed")
	}
}

// widget is what a program believes a custom resource to be.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Size              int `json:"size"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	return &widget{w.TypeMeta, *w.ObjectMeta.DeepCopy(), w.Size}
}

// A18 and B1: a resource that is defined only when the informer has long been running, holds objects that are not what
// the program believes, is taken away and defined again.
func TestAResourceThatComesAndGoes(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	admin := dynamic.NewForConfigOrDie(cluster.Config())
	// Its group is the test's own: it may run more than once on one control plane.
	group := schema.GroupVersion{Group: fmt.Sprintf("w%x.thermostat.example", rand.Uint32()), Version: "v1"}
	definitions := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	define := func() {
		t.Helper()
		_, err := definitions.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "widgets." + group.Group},
			"spec": map[string]any{
				"group": group.Group, "scope": "Namespaced",
				"names": map[string]any{"plural": "widgets", "kind": "Widget"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{
						"openAPIV3Schema": map[string]any{"type": "object",
							"x-kubernetes-preserve-unknown-fields": true}}}},
			},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	takeAway := func(ctx context.Context) error {
		return definitions.Delete(ctx, "widgets."+group.Group, metav1.DeleteOptions{})
	}
	widgets := admin.Resource(group.WithResource("widgets")).Namespace(namespace)
	create := func(name string, size any) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, err := widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": group.String(), "kind": "Widget", "metadata": map[string]any{"name": name}, "size": size,
			}}, metav1.CreateOptions{})
			return err == nil
		}, inTime, 20*time.Millisecond, "the resource is never served")
	}

	client, err := NewResource[*widget](cluster.Config(), group.WithResource("widgets"), ResourceOptions{})
	require.NoError(t, err)
	anyLog, typedLog := &logLines{}, &logLines{}
	any, anyTold := followResource[*unstructured.Unstructured](t, Client[*unstructured.UnstructuredList](widgets),
		anyLog)
	typed, typedTold := followResource[*widget](t, Client[*List[*widget]](client.In(namespace)), typedLog)
	becomes(t, any, Missing)
	becomes(t, typed, Missing)
	require.True(t, apierrors.IsNotFound(typed.Health().LastError))
	require.Eventually(t, func() bool { return any.Health().Lists > 1 && typed.Health().Lists > 1 }, inTime,
		5*time.Millisecond)
	anyLog.until(t, Missing)
	typedLog.until(t, Missing)

	define()
	create("good", 7)
	create("bad", "as large as life")
	requireKeys(t, any, "bad", "good")
	requireKeys(t, typed, "good")
	require.Eventually(t, func() bool { return typed.Invalid(Key{Namespace: namespace, Name: "bad"}) != nil }, inTime,
		5*time.Millisecond)
	require.NotContains(t, typed.Invalid(Key{Namespace: namespace, Name: "bad"}).Error(), "life",
		"what is in an object is nobody's business")
	becomes(t, any, Live)
	becomes(t, typed, Live)
	anyLog.until(t, Live)
	typedLog.until(t, Live)
	typedLog.alsoSays(t, 1) // the complaint about the bad one

	require.NoError(t, takeAway(t.Context()))
	becomes(t, any, Missing)
	becomes(t, typed, Missing)
	require.NotContains(t, typed.Health().LastError.Error(), "life")
	anyLog.until(t, Missing)
	anyLog.alsoSays(t, 0)
	typedLog.until(t, Missing)
	typedLog.alsoSays(t, 2) // and that it is gone
	requireKeys(t, any)
	requireKeys(t, typed)

	require.Eventually(t, func() bool {
		_, err := definitions.Get(t.Context(), "widgets."+group.Group, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, inTime, 20*time.Millisecond)
	define()
	t.Cleanup(func() { require.NoError(t, takeAway(context.Background())) })
	create("good", 8)
	create("bad", 9)
	requireKeys(t, any, "bad", "good")
	requireKeys(t, typed, "bad", "good")
	becomes(t, any, Live)
	becomes(t, typed, Live)
	require.NoError(t, typed.Invalid(Key{Namespace: namespace, Name: "bad"}))
	require.Eventually(t, func() bool { return len(typedTold.lines()) == 0 && len(anyTold.lines()) == 0 }, inTime,
		50*time.Millisecond)
	require.NoError(t, anyTold.err())
	require.NoError(t, typedTold.err())
}

// followResource runs an informer of any resource for the rest of the test. Its history is that of pods of the same
// metadata.
func followResource[T Object, L runtime.Object](t *testing.T, client Client[L], log *logLines) (*SharedIndexInformer[T],
	*history) {
	t.Helper()
	inf, err := New[T](client, Options[T]{})
	require.NoError(t, err)
	told := &history{rounds: rounds{}}
	metadataOf := func(o T) *corev1.Pod {
		if kube.IsNil(o) {
			return nil
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		}}
	}
	_, err = inf.AddHandler(func(e Event[T]) {
		told.handle(Event[*corev1.Pod]{
			Type: e.Type, Key: e.Key, UID: e.UID, ResourceVersion: e.ResourceVersion, Old: metadataOf(e.Old),
			New:     metadataOf(e.New),
			Initial: e.Initial, FinalStateUnknown: e.FinalStateUnknown, Resync: e.Resync,
		})
	}, HandlerOptions{})
	require.NoError(t, err)
	runLogged(t, inf, log)
	return inf, told
}

// requireKeys waits until an informer holds the objects of these names, and no others.
func requireKeys[T Object](t *testing.T, inf *SharedIndexInformer[T], names ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		held := map[string]bool{}
		for o := range inf.All() {
			held[o.GetName()] = true
		}
		for _, name := range names {
			if !held[name] {
				return false
			}
		}
		return len(held) == len(names)
	}, inTime, 5*time.Millisecond, "%s does not hold just %q", inf.Name(), names)
}
