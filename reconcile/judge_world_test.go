package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// onlyChild runs a controller that wants one child and makes one whenever its cache has none, calls it up again and
// again while the cache hears nothing of children for five seconds, and returns how often it ran, and how many there
// are.
func onlyChild[T informer.Object, L runtime.Object](
	t *testing.T, resource schema.GroupVersionResource, kind string, selector fields.Selector,
	client func(*rest.Config) informer.Client[L], create func(context.Context, *rest.Config, int32) error,
) (runs int32, children int) {
	synctest.Test(t, func(t *testing.T) {
		options := reconciletest.Options{}
		if resource.Group != "" {
			options.Resources = []reconciletest.Resource{{GroupVersionResource: resource, Kind: kind}}
		}
		server := reconciletest.NewServer(t, options)
		link := server.Link()
		config := link.Config()
		config.Wrap(reconcile.TrackWrites)
		cache, err := informer.New[T](client(config), informer.Options[T]{FieldSelector: selector})
		require.NoError(t, err)
		maps, err := informer.New[*corev1.ConfigMap](kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(""),
			informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		var ran atomic.Int32
		c, err := reconcile.NewController("parents", reconcile.Func(
			func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
				n := ran.Add(1)
				if cache.Len() > 0 {
					return reconcile.Result{}, nil
				}
				return reconcile.Result{}, create(ctx, config, n)
			}), reconcile.Options{})
		require.NoError(t, err)
		reconcile.DependsOn(c, cache)
		reconcile.DependsOn(c, maps) // one whose requests nobody has ever misread
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		link.DelayWatches(resource.Resource, 5*time.Second)
		for range 20 {
			c.Enqueue(reconcile.Key{Namespace: "default", Name: "parent"})
			time.Sleep(time.Second)
		}
		all, err := dynamic.NewForConfigOrDie(server.Config()).Resource(resource).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		runs, children = ran.Load(), len(all.Items)
		cancel()
		require.NoError(t, <-ended)
	})
	return runs, children
}

// A resource whose version is no v1 or v1beta1 is followed, and its writes waited for, like any other.
func TestACustomResourceOfAnyVersionIsWaitedFor(t *testing.T) {
	for _, version := range []string{"v1api20201101", "v0alpha1", "stable"} {
		t.Run(version, func(t *testing.T) {
			things := schema.GroupVersionResource{Group: "g.io", Version: version, Resource: "allowlists"}
			client := func(config *rest.Config) informer.Client[*unstructured.UnstructuredList] {
				return dynamic.NewForConfigOrDie(config).Resource(things)
			}
			create := func(ctx context.Context, config *rest.Config, n int32) error {
				thing := &unstructured.Unstructured{Object: map[string]any{
					"metadata": map[string]any{"name": fmt.Sprint("child-", n)}, "items": []any{"one"},
				}}
				thing.SetGroupVersionKind(things.GroupVersion().WithKind("AllowList"))
				_, err := dynamic.NewForConfigOrDie(config).Resource(things).Namespace("default").
					Create(ctx, thing, metav1.CreateOptions{})
				return err
			}
			runs, children := onlyChild[*unstructured.Unstructured](t, things, "AllowList", nil, client, create)
			require.Equal(t, 1, children)
			require.Greater(t, runs, int32(10), "parked for no longer than the cache was behind")
		})
	}
}

// What an informer selects by a field that no answer tells of is waited for.
func TestWhatAFieldSelectsIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		kind      corev1.SecretType
		few, many int
		runs      int32
	}{
		"inside":  {corev1.SecretTypeOpaque, 1, 1, 10},
		"outside": {"g.io/other", 5, 20, 5}, // each is waited for until the informer has listed anew
	} {
		t.Run(name, func(t *testing.T) {
			client := func(config *rest.Config) informer.Client[*corev1.SecretList] {
				return kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("")
			}
			create := func(ctx context.Context, config *rest.Config, n int32) error {
				s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("child-", n)}, Type: test.kind}
				secrets := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default")
				_, err := secrets.Create(ctx, s, metav1.CreateOptions{})
				return err
			}
			runs, children := onlyChild[*corev1.Secret](t, corev1.SchemeGroupVersion.WithResource("secrets"), "Secret",
				fields.OneTermEqualSelector("type", string(corev1.SecretTypeOpaque)), client, create)
			require.GreaterOrEqual(t, children, test.few)
			require.LessOrEqual(t, children, test.many)
			require.GreaterOrEqual(t, runs, test.runs)
		})
	}
}
