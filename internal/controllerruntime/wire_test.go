package controllerruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/thermostat-go/thermostat/informer/clientgo"
	"github.com/thermostat-go/thermostat/informer/packed"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// seen is what the cache of a manager shows: what its informers tell handlers, and what its client reads.
type seen struct {
	told    map[string][]string // guarded by mu
	gotten  map[string]string
	indexed int
}

var mu sync.Mutex

// look lets a manager with such a cache see ConfigMaps come and go, in the three forms that controller-runtime has.
func look(t *testing.T, wrap func(*rest.Config) *rest.Config, options cache.Options) (s seen) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1, Namespaces: []string{"default", "other"}})
		maps := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps
		create := func(namespace, name string) {
			_, err := maps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{"app": name}}, Data: map[string]string{"x": name}}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		for i := range 150 {
			create("default", fmt.Sprint("map-", i))
			create("other", fmt.Sprint("map-", i))
		}
		never := 100_000 * time.Hour
		options.SyncPeriod = &never // a resync comes all at once with client-go, and object by object with ours
		m, err := ctrl.NewManager(wrap(server.Link().Config()), ctrl.Options{Logger: logr.Discard(), Cache: options,
			Metrics: metricsserver.Options{BindAddress: "0"}})
		require.NoError(t, err)
		require.NoError(t, m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "data.x",
			func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["x"]} }))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()

		kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
		bare, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
		bare.SetGroupVersionKind(kind)
		metadata.SetGroupVersionKind(kind)
		s = seen{told: map[string][]string{}, gotten: map[string]string{}}
		for form, example := range map[string]client.Object{"typed": &corev1.ConfigMap{}, "bare": bare,
			"metadata": metadata} {
			inf, err := m.GetCache().GetInformer(ctx, example)
			require.NoError(t, err)
			_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { s.write(form+" add", o) },
				UpdateFunc: func(_, o any) { s.write(form+" update", o) },
				DeleteFunc: func(o any) { s.write(form+" delete", o) },
			})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		create("default", "late")
		require.NoError(t, maps("default").Delete(ctx, "map-3", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		synctest.Wait()

		for _, o := range []client.Object{&corev1.ConfigMap{}, bare.DeepCopy(), metadata.DeepCopy()} {
			err := m.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "map-7"}, o)
			require.NoError(t, err)
			s.gotten[fmt.Sprintf("%T", o)] = encoded(o)
		}
		var list corev1.ConfigMapList
		require.NoError(t, m.GetClient().List(ctx, &list, client.MatchingFields{"data.x": "map-7"}))
		s.indexed = len(list.Items)
		server.Close() // a watch.Filter whose context ends leaves a goroutine
		time.Sleep(time.Minute)
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

func encoded(o any) string {
	b, _ := json.Marshal(o)
	return string(b)
}

func (s seen) write(what string, o any) {
	what += " " + o.(client.Object).GetNamespace() + "/" + o.(client.Object).GetName()
	mu.Lock()
	defer mu.Unlock()
	s.told[what] = append(s.told[what], encoded(o))
}

// The cache of a manager shows the same with Wire, and with packed objects, with selectors, namespaces and transform
// functions of its own.
func TestTheCacheOfAManagerWithWire(t *testing.T) {
	for what, options := range map[string]cache.Options{
		"all":        {},
		"namespaces": {DefaultNamespaces: map[string]cache.Config{"default": {}, "other": {}}},
		"selected":   {DefaultLabelSelector: labels.SelectorFromSet(labels.Set{"app": "map-7"})},
		"trimmed":    {DefaultTransform: cache.TransformStripManagedFields()},
	} {
		t.Run(what, func(t *testing.T) {
			want := look(t, rest.CopyConfig, options)
			ours := options
			ours.NewInformer = clientgo.NewSharedIndexInformer
			got := look(t, clientgo.Wire, ours)
			require.Equal(t, want, got)
			ours.NewInformer = packed.Informers(packed.Options{Hot: 8})
			got = look(t, clientgo.Wire, ours)
			require.Equal(t, want, got)
		})
	}
}
