package packed_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer/clientgo"
	"github.com/thermostat-go/thermostat/informer/packed"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// lists is what typed and dynamic clients have.
type lists[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func listWatch[L runtime.Object](client lists[L]) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: client.Watch,
	}
}

// TestInformers compares an informer that packs, with a client that is wired and one that is not, with client-go's.
func TestInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		admin := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().Pods("default")
		wired := kubernetes.NewForConfigOrDie(clientgo.Wire(server.Config())).CoreV1().Pods("")
		indexers := cache.Indexers{"node": func(o any) ([]string, error) {
			return []string{o.(*corev1.Pod).Spec.NodeName}, nil
		}}
		make := packed.Informers(packed.Options{Hot: 4}, &corev1.Pod{})
		example := &corev1.Pod{}
		theirs := cache.NewSharedIndexInformer(listWatch(admin), example, 0, indexers)
		ours := []cache.SharedIndexInformer{make(listWatch(wired), example, 0, indexers),
			make(listWatch(admin), example, 0, indexers)}
		all := append(ours, theirs)
		told := map[cache.SharedIndexInformer]*[]string{} // each is written by the handler of that one
		for _, inf := range all {
			lines := new([]string)
			told[inf] = lines
			note := func(what string, o any) {
				if gone, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
					o = gone.Obj
				}
				p := o.(*corev1.Pod)
				*lines = append(*lines, what+" "+p.Name+" "+p.Labels["n"])
			}
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { note("add", o) },
				UpdateFunc: func(from, to any) { note("from", from); note("to", to) },
				DeleteFunc: func(o any) { note("delete", o) },
			})
			require.NoError(t, err)
			go inf.RunWithContext(t.Context())
		}
		synctest.Wait() // client-go tells what a list holds in any order
		for i := range 40 {
			p := pod(i)
			p.Namespace, p.UID = "default", ""
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			_, err := admin.Create(t.Context(), p, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		synctest.Wait()
		p, err := admin.Get(t.Context(), "web-7", metav1.GetOptions{})
		require.NoError(t, err)
		p.Labels["n"] = "changed"
		_, err = admin.Update(t.Context(), p, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, admin.Delete(t.Context(), "web-9", *metav1.NewDeleteOptions(0)))
		synctest.Wait()

		for _, inf := range ours {
			require.Equal(t, told[theirs], told[inf])
			require.Len(t, inf.GetStore().List(), len(theirs.GetStore().List()))
			for _, want := range theirs.GetStore().List() {
				got, exists, err := inf.GetStore().Get(want)
				require.NoError(t, err)
				require.True(t, exists)
				require.True(t, equality.Semantic.DeepEqual(want, got), "%v\n%v", want, got)
			}
			_, exists, err := inf.GetStore().GetByKey("default/web-9")
			require.NoError(t, err)
			require.False(t, exists)
			want, err := theirs.GetIndexer().ByIndex("node", "node-3")
			require.NoError(t, err)
			got, err := inf.GetIndexer().ByIndex("node", "node-3")
			require.NoError(t, err)
			require.NotEmpty(t, got)
			require.True(t, sameNames(want, got))
			byHand := pod(99)
			require.NoError(t, inf.GetStore().Add(byHand))
			held, _, err := inf.GetStore().GetByKey("team/web-99")
			require.NoError(t, err)
			require.Same(t, byHand, held)
		}
	})
}

func sameNames(a, b []any) bool {
	names := map[string]int{}
	for _, o := range a {
		names[o.(metav1.Object).GetName()]++
	}
	for _, o := range b {
		names[o.(metav1.Object).GetName()]--
	}
	for _, n := range names {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestInformersOfKinds tells kinds apart, also those of unstructured objects, and packs what a transform returns.
func TestInformersOfKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		client := dynamic.NewForConfigOrDie(server.Config())
		of := func(kind string) *unstructured.Unstructured {
			u := &unstructured.Unstructured{}
			u.SetAPIVersion("v1")
			u.SetKind(kind)
			return u
		}
		make := packed.Informers(packed.Options{Hot: -1}, of("ConfigMap"))
		same := func(resource, kind string) bool {
			c := client.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace("default")
			o := of(kind)
			o.SetName("x")
			_, err := c.Create(t.Context(), o, metav1.CreateOptions{})
			require.NoError(t, err)
			inf := make(listWatch(c), of(kind), 0, nil)
			require.NoError(t, inf.SetTransform(func(o any) (any, error) {
				o.(*unstructured.Unstructured).SetLabels(map[string]string{"seen": "yes"})
				return o, nil
			}))
			go inf.RunWithContext(t.Context())
			synctest.Wait()
			a, exists, err := inf.GetStore().GetByKey("default/x")
			require.NoError(t, err)
			require.True(t, exists)
			require.Equal(t, "yes", a.(*unstructured.Unstructured).GetLabels()["seen"])
			b, _, _ := inf.GetStore().GetByKey("default/x")
			return a == b
		}
		require.False(t, same("configmaps", "ConfigMap"), "it is decoded each time")
		require.True(t, same("secrets", "Secret"))
	})
}
