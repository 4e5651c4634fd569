package reconciletest_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var greetings = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "greetings"}

// newGreeter is what main calls, too: the controller gives each Greeting, a custom resource, a ConfigMap with its text.
func newGreeter(cfg *rest.Config) (*reconcile.Manager, error) {
	cfg.Wrap(reconcile.TrackWrites)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	wanted, err := informer.New[*unstructured.Unstructured](client.Resource(greetings),
		informer.Options[*unstructured.Unstructured]{})
	if err != nil {
		return nil, err
	}
	made, err := informer.New[*corev1.ConfigMap](core.CoreV1().ConfigMaps(metav1.NamespaceAll),
		informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		return nil, err
	}
	kind := greetings.GroupVersion().WithKind("Greeting")

	greet := func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		g, ok := wanted.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		to, _, _ := unstructured.NestedString(g.Object, "spec", "to")
		data := map[string]string{"text": text + ", " + to}
		configMaps := core.CoreV1().ConfigMaps(key.Namespace)
		m, ok := made.Get(key)
		if !ok {
			owner := objects.NewOwner(objects.Dynamic(client.Resource(greetings).Namespace(key.Namespace)), g, kind)
			_, err := objects.CreateOwned(ctx, owner, configMaps,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Data: data})
			return reconcile.Result{}, err
		}
		if maps.Equal(m.Data, data) {
			return reconcile.Result{}, nil
		}
		m = m.DeepCopy()
		m.Data = data
		_, err := configMaps.Update(ctx, m, metav1.UpdateOptions{})
		return reconcile.Result{}, err
	}
	c, err := reconcile.NewController("greeter", reconcile.Func(greet), reconcile.Options{})
	if err != nil {
		return nil, err
	}
	reconcile.For(c, wanted)
	reconcile.Owns(c, made, kind)
	return reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
}

// testGreeter is TestGreeter in a test file of yours.
func testGreeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{
			CRDs:  []string{"testdata/config/crd.yaml"},
			Roles: []string{"testdata/config/rbac.yaml"},
		})
		// The connection of the controller breaks once, when the server has already created its ConfigMap.
		link := server.LinkAs(reconciletest.ServiceAccount("default", "greeter"))
		lost := false
		link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb != "create" || lost {
				return nil
			}
			lost = true
			return reconciletest.LoseAnswer
		})
		m, err := newGreeter(link.Config())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- m.Run(t.Context()) }()
		t.Cleanup(func() {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})

		client, err := dynamic.NewForConfig(server.Config())
		if err != nil {
			t.Fatal(err)
		}
		mine := client.Resource(greetings).Namespace("default")
		_, err = mine.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"text": "hello"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble: it passes at once
		made, ok := reconciletest.Get[*corev1.ConfigMap](server, "configmaps", "default", "a")
		if !ok || made.Data["text"] != "hello, world" {
			t.Fatalf("the ConfigMap is %v", made)
		}
		if err := mine.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the garbage collector acts 10 ms after the deletion
		if left := reconciletest.List[*corev1.ConfigMap](server, "configmaps", "default"); len(left) > 0 {
			t.Fatalf("the server still has %v", left)
		}
	})
}

// A controller for a custom resource, with the manifests by which it is installed, against the server in memory. The
// whole loop runs, as in main, in the time of a bubble, and one request fails in the worst way.
func Example_inMemory() {
	var t *testing.T // that of your TestGreeter
	testGreeter(t)
}
