package clientgo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// program is how a program comes by its ConfigMaps: with a client of some kind, which its ListerWatcher calls.
type program struct {
	name    string
	example runtime.Object
	client  func(*testing.T, *rest.Config) *cache.ListWatch
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

var programs = []program{
	{"protobuf", &corev1.ConfigMap{}, func(t *testing.T, cfg *rest.Config) *cache.ListWatch {
		cfg.ContentType = runtime.ContentTypeProtobuf
		return typedMaps(t, cfg)
	}},
	{"json", &corev1.ConfigMap{}, func(t *testing.T, cfg *rest.Config) *cache.ListWatch {
		cfg.ContentType = runtime.ContentTypeJSON
		return typedMaps(t, cfg)
	}},
	{"kinds kept", &corev1.ConfigMap{}, func(t *testing.T, cfg *rest.Config) *cache.ListWatch {
		cfg.ContentType = runtime.ContentTypeProtobuf
		return restMaps(t, cfg)
	}},
	{"dynamic", &unstructured.Unstructured{}, func(t *testing.T, cfg *rest.Config) *cache.ListWatch {
		client, err := dynamic.NewForConfig(cfg)
		require.NoError(t, err)
		return through(client.Resource(configMaps))
	}},
	{"metadata", &metav1.PartialObjectMetadata{}, func(t *testing.T, cfg *rest.Config) *cache.ListWatch {
		client, err := metadata.NewForConfig(cfg)
		require.NoError(t, err)
		return through(client.Resource(configMaps))
	}},
	{"metadata of a manager", &metav1.PartialObjectMetadata{}, func(t *testing.T, cfg *rest.Config) *cache.ListWatch {
		client, err := metadata.NewForConfig(cfg)
		require.NoError(t, err)
		return withKindSet(through(client.Resource(configMaps)))
	}},
}

type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func through[L runtime.Object](client lister[L]) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: client.Watch,
	}
}

func typedMaps(t *testing.T, cfg *rest.Config) *cache.ListWatch {
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return through(client.CoreV1().ConfigMaps(metav1.NamespaceAll))
}

// keepingKinds decodes as the client of controller-runtime does: an object keeps the kind that the server has sent.
type keepingKinds struct {
	serializer.WithoutConversionCodecFactory
}

func (keepingKinds) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

func restMaps(t *testing.T, cfg *rest.Config) *cache.ListWatch {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = keepingKinds{serializer.WithoutConversionCodecFactory{CodecFactory: scheme.Codecs}}
	client, err := rest.RESTClientFor(cfg)
	require.NoError(t, err)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{}
			return list, client.Get().Resource("configmaps").VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).
				Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return client.Get().Resource("configmaps").VersionedParams(&opts, scheme.ParameterCodec).Watch(ctx)
		},
	}
}

// withKindSet gives metadata the kind of the objects, as the cache of controller-runtime does.
func withKindSet(lw *cache.ListWatch) *cache.ListWatch {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, opts)
			if err == nil {
				for i := range list.(*metav1.PartialObjectMetadataList).Items {
					list.(*metav1.PartialObjectMetadataList).Items[i].SetGroupVersionKind(kind)
				}
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return filtered(w, func(e watch.Event) (watch.Event, bool) {
				e.Object.GetObjectKind().SetGroupVersionKind(kind)
				return e, true
			}), nil
		},
	}
}

// counted counts the objects that the client behind a ListerWatcher decodes. If it does not stream lists, client-go's
// informer and ours ask for plain ones.
type counted struct {
	*cache.ListWatch
	plain bool

	mu      sync.Mutex
	decoded int // guarded by mu
}

func (c *counted) IsWatchListSemanticsUnSupported() bool { return c.plain }

func (c *counted) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decoded
}

func (c *counted) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decoded += n
}

func count(lw *cache.ListWatch, plain bool) *counted {
	c := &counted{plain: plain}
	c.ListWatch = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, opts)
			if err == nil {
				c.count(meta.LenList(list))
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return filtered(w, func(e watch.Event) (watch.Event, bool) {
				c.count(1)
				return e, true
			}), nil
		},
	}
	return c
}

// filtered is watch.Filter, but that its goroutine ends with Stop.
func filtered(w watch.Interface, fn watch.FilterFunc) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		for {
			select {
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				if e, passes := fn(e); passes {
					select {
					case events <- e:
					case <-proxy.StopChan():
						return
					}
				}
			case <-proxy.StopChan():
				return
			}
		}
	}()
	return proxy
}

// diary is a handler that writes down all of each object that it is told of.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) OnAdd(obj any, initial bool) { d.write("add", initial, obj) }
func (d *diary) OnUpdate(old, obj any)       { d.write("update", old, obj) }
func (d *diary) OnDelete(obj any)            { d.write("delete", obj) }

func (d *diary) write(what ...any) {
	line, _ := json.Marshal(what)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, string(line))
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// dump returns the objects of a store as JSON, by their keys.
func dump(store cache.Store) map[string]string {
	all := map[string]string{}
	for _, key := range store.ListKeys() {
		obj, _, _ := store.GetByKey(key)
		encoded, _ := json.Marshal(obj)
		all[key] = string(encoded)
	}
	return all
}

func theirs(lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
}

func ours(lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	return NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
}

// writer writes ConfigMaps.
type writer struct {
	t      *testing.T
	client kubernetes.Interface
}

func (m writer) create(name string) {
	_, err := m.client.CoreV1().ConfigMaps("default").Create(m.t.Context(), configMap(name, "app"),
		metav1.CreateOptions{})
	require.NoError(m.t, err)
}

func (m writer) update(name, value string) {
	change := fmt.Sprintf(`{"data":{"value":%q}}`, value)
	_, err := m.client.CoreV1().ConfigMaps("default").Patch(m.t.Context(), name, "application/merge-patch+json",
		[]byte(change), metav1.PatchOptions{})
	require.NoError(m.t, err)
}

func (m writer) remove(name string) {
	require.NoError(m.t, m.client.CoreV1().ConfigMaps("default").Delete(m.t.Context(), name, metav1.DeleteOptions{}))
}

// lived is what a program sees of a life in which nothing goes wrong.
type lived struct {
	told    []string
	held    []map[string]string
	version []string
	decoded int // objects, by its client
}

func live(t *testing.T, p program, plain bool, wire bool,
	construct func(cache.ListerWatcher, runtime.Object) cache.SharedIndexInformer) (l lived) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1})
		m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
		for i := range 300 {
			m.create(fmt.Sprint("old-", i))
		}
		cfg := server.Link().Config()
		if wire {
			cfg = Wire(cfg)
		}
		lw := count(p.client(t, cfg), plain)
		inf := construct(lw, p.example)
		d := &diary{}
		add(t, inf, d)
		stop := run(t, inf)
		look := func() {
			time.Sleep(2 * time.Minute) // bookmarks come in between
			synctest.Wait()
			l.held = append(l.held, dump(inf.GetStore()))
			l.version = append(l.version, storeVersion(inf))
		}
		look()
		require.True(t, inf.HasSynced())
		for i := range 10 {
			m.create(fmt.Sprint("new-", i))
			m.update("old-0", fmt.Sprint(i))
			m.remove(fmt.Sprint("old-", i+10))
		}
		look()
		server.CutWatches()
		look()
		m.update("old-1", "seen by another watch")
		look()
		stop()
		l.told, l.decoded = d.read(), lw.total()
		slices.Sort(l.told[:300]) // a list has no order
	})
	return l
}

// A program sees the same with Wire as with client-go's informers, to the letter, its kinds included; and its client
// decodes next to nothing.
func TestWireIsClientGo(t *testing.T) {
	for _, p := range programs {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,plain=%t", p.name, plain), func(t *testing.T) {
				want := live(t, p, plain, false, theirs)
				got := live(t, p, plain, true, ours)
				require.Equal(t, want.told, got.told)
				require.Equal(t, want.held, got.held)
				require.Equal(t, want.version, got.version)
				require.Greater(t, want.decoded, 300)
				require.Less(t, got.decoded, 200)
				unwired := live(t, p, plain, false, ours)
				require.Equal(t, want.told, unwired.told)
				require.Greater(t, unwired.decoded, 300)
			})
		}
	}
}

// Objects that Wire has decoded share what they have in common, but for what a transform function has changed.
func TestWireSharesWhatNobodyChanges(t *testing.T) {
	for _, changes := range []bool{false, true} {
		t.Run(fmt.Sprintf("changes=%t", changes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1})
				m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
				inf := ours(programs[0].client(t, Wire(server.Link().Config())), &corev1.ConfigMap{})
				if changes {
					require.NoError(t, inf.SetTransform(func(obj any) (any, error) {
						object := obj.(*corev1.ConfigMap)
						if strings.HasSuffix(object.Name, "8") {
							object.Labels["name"] = object.Name
						}
						return object, nil
					}))
				}
				stop := run(t, inf)
				synctest.Wait()
				const n = 150 // the client decodes the first hundred
				for i := range n {
					made := configMap(fmt.Sprint("map-", i), []string{"app", "kit", "set"}[i%3])
					_, err := m.client.CoreV1().ConfigMaps("default").Create(t.Context(), made, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				synctest.Wait()
				mapOf := func(i int) *corev1.ConfigMap {
					held, exists, err := inf.GetStore().GetByKey(fmt.Sprint("default/map-", i))
					require.NoError(t, err)
					require.True(t, exists)
					return held.(*corev1.ConfigMap)
				}
				require.Equal(t, map[string]string{"set": ""}, mapOf(n-1).Labels)
				var all []*corev1.ConfigMap
				for i := range n {
					all = append(all, mapOf(i))
				}
				require.NotZero(t, wiretest.SharedLabels(all))
				if changes {
					require.Equal(t, "map-148", mapOf(n - 2).Labels["name"])
					require.Equal(t, "map-138", mapOf(n - 12).Labels["name"])
				}
				stop()
			})
		})
	}
}
