package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const thingDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"things.own.example.com"},
	"spec":{"group":"own.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
	"versions":[{"name":"v1","served":true,"storage":true,
	"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
	"schema":{"openAPIV3Schema":{"type":"object","properties":{
	"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},
	"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`

// ownKind is a kind of objects, with the clients that write them.
type ownKind struct {
	name     string
	manifest string
	direct   dynamic.ResourceInterface // past the bad network and past TrackWrites
	dynamic  writer
	writers  []writer // dynamic is one of them
}

// ownCache is a cache that the controller follows.
type ownCache struct {
	name   string
	kind   *ownKind
	admits func(*unstructured.Unstructured) bool
	of     func(key string) map[string]version // the objects of a key
}

// ownWorld is what there is to write, with what and where.
type ownWorld struct {
	namespace string
	typed     kubernetes.Interface
	kinds     []*ownKind
	caches    []*ownCache
	follow    func(*reconcile.Controller) // makes the informers of the caches sources of a controller
}

// newOwnWorld makes the kinds with clients of cfg: of each kind the dynamic client, a typed one, or that of package
// informer.
func newOwnWorld(t *testing.T, cluster *testcluster.Cluster, cfg *rest.Config) *ownWorld {
	w := &ownWorld{namespace: cluster.Namespace(t)}
	protobuf := rest.CopyConfig(cfg)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	w.typed = kubernetes.NewForConfigOrDie(protobuf)
	direct, writers := dynamic.NewForConfigOrDie(cluster.Config()), dynamic.NewForConfigOrDie(cfg)
	kind := func(gvr schema.GroupVersionResource, manifest string, others ...writer) *ownKind {
		k := &ownKind{name: gvr.Resource, manifest: manifest, direct: direct.Resource(gvr).Namespace(w.namespace),
			dynamic: writerOf[*unstructured.Unstructured](dynamicClient{writers.Resource(gvr).Namespace(w.namespace)})}
		k.writers = append(others, k.dynamic)
		w.kinds = append(w.kinds, k)
		return k
	}
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	own := schema.GroupVersionResource{Group: "own.example.com", Version: "v1", Resource: "things"}
	const container = `"containers":[{"name":"c","image":"i"}]`

	typedMaps := w.typed.CoreV1().ConfigMaps(w.namespace)
	ownMaps := resourceOf[*corev1.ConfigMap](t, w, cfg, core.WithResource("configmaps"))
	maps := kind(core.WithResource("configmaps"), `{"apiVersion":"v1","kind":"ConfigMap"}`,
		writerOf(typedMaps), writerOf(ownMaps))
	ownThings := resourceOf[*unstructured.Unstructured](t, w, cfg, own)
	things := kind(own, `{"apiVersion":"own.example.com/v1","kind":"Thing","spec":{"replicas":0}}`, writerOf(ownThings))
	typedPods := w.typed.CoreV1().Pods(w.namespace)
	pods := kind(core.WithResource("pods"), `{"apiVersion":"v1","kind":"Pod","spec":{`+container+`}}`,
		writerOf(typedPods))
	ownDeployments := resourceOf[*appsv1.Deployment](t, w, cfg, apps.WithResource("deployments"))
	deployments := kind(apps.WithResource("deployments"), `{"apiVersion":"apps/v1","kind":"Deployment",
		"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{`+container+`}}}}`,
		writerOf(w.typed.AppsV1().Deployments(w.namespace)), writerOf(ownDeployments))

	in := labels.SelectorFromSet(labels.Set{"in": "yes"})
	w.follow = func(c *reconcile.Controller) {
		w.caches = []*ownCache{
			followed[*corev1.ConfigMap](t, c, maps, "configmaps", typedMaps, labels.Everything()),
			followed[*corev1.ConfigMap](t, c, maps, "configmaps in the selector", ownMaps, in),
			followed[*unstructured.Unstructured](t, c, things, "things", ownThings, labels.Everything()),
			followed[*unstructured.Unstructured](t, c, things, "things in the selector", ownThings, in),
			followed[*corev1.Pod](t, c, pods, "pods", typedPods, labels.Everything()),
			followed[*appsv1.Deployment](t, c, deployments, "deployments", ownDeployments, labels.Everything()),
		}
	}
	return w
}

// followed makes an informer a source of the controller.
func followed[T informer.Object, L runtime.Object](t *testing.T, c *reconcile.Controller, kind *ownKind, name string,
	client informer.Client[L], selector labels.Selector) *ownCache {
	inf, err := informer.New(client, informer.Options[T]{Name: name, LabelSelector: selector})
	require.NoError(t, err)
	byKey, err := informer.AddIndex(inf, func(o T, add func(string)) { add(o.GetLabels()["key"]) })
	require.NoError(t, err)
	reconcile.Watches(c, inf, func(o T) []reconcile.Key {
		return []reconcile.Key{{Namespace: o.GetNamespace(), Name: o.GetLabels()["key"]}}
	})
	return &ownCache{name: name, kind: kind, of: func(key string) map[string]version {
		found := map[string]version{}
		for o := range byKey.Get(key) {
			found[o.GetName()] = version{string(o.GetUID()), number(o.GetResourceVersion())}
		}
		return found
	}, admits: func(o *unstructured.Unstructured) bool { return selector.Matches(labels.Set(o.GetLabels())) }}
}

func resourceOf[T informer.Object](t *testing.T, w *ownWorld, cfg *rest.Config, gvr schema.GroupVersionResource,
) *informer.Resource[T] {
	r, err := informer.NewResource[T](cfg, gvr, informer.ResourceOptions{})
	require.NoError(t, err)
	return r.In(w.namespace)
}

// writer is a client for the objects of one kind in one namespace, whatever their Go type.
type writer interface {
	create(ctx context.Context, o *unstructured.Unstructured) error
	update(ctx context.Context, o *unstructured.Unstructured) error
	patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) error
	remove(ctx context.Context, name string, opts metav1.DeleteOptions) error
	removeAll(ctx context.Context, opts metav1.DeleteOptions, of metav1.ListOptions) error
}

// typedClient has the methods that typed clients of client-go and informer.Resource share.
type typedClient[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
}

// writerOf makes a writer of a typed client.
func writerOf[T any](client typedClient[T]) writer { return typedWriter[T]{client} }

type typedWriter[T any] struct{ client typedClient[T] }

func (w typedWriter[T]) typed(o *unstructured.Unstructured) (typed T, err error) {
	data, err := json.Marshal(o)
	return typed, cmp.Or(err, json.Unmarshal(data, &typed))
}

func (w typedWriter[T]) create(ctx context.Context, o *unstructured.Unstructured) error {
	typed, err := w.typed(o)
	if err == nil {
		_, err = w.client.Create(ctx, typed, metav1.CreateOptions{})
	}
	return err
}

func (w typedWriter[T]) update(ctx context.Context, o *unstructured.Unstructured) error {
	typed, err := w.typed(o)
	if err == nil {
		_, err = w.client.Update(ctx, typed, metav1.UpdateOptions{})
	}
	return err
}

func (w typedWriter[T]) patch(ctx context.Context, name string, pt types.PatchType, data []byte,
	opts metav1.PatchOptions, subresources ...string) error {
	_, err := w.client.Patch(ctx, name, pt, data, opts, subresources...)
	return err
}

func (w typedWriter[T]) remove(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return w.client.Delete(ctx, name, opts)
}

func (w typedWriter[T]) removeAll(ctx context.Context, opts metav1.DeleteOptions, of metav1.ListOptions) error {
	return w.client.DeleteCollection(ctx, opts, of)
}

// dynamicClient has the methods of a typed client.
type dynamicClient struct{ dynamic.ResourceInterface }

func (c dynamicClient) Create(ctx context.Context, o *unstructured.Unstructured, opts metav1.CreateOptions,
) (*unstructured.Unstructured, error) {
	return c.ResourceInterface.Create(ctx, o, opts)
}

func (c dynamicClient) Update(ctx context.Context, o *unstructured.Unstructured, opts metav1.UpdateOptions,
) (*unstructured.Unstructured, error) {
	return c.ResourceInterface.Update(ctx, o, opts)
}

func (c dynamicClient) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.ResourceInterface.Delete(ctx, name, opts)
}
