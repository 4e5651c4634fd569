package informer_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Lamp is a custom resource. From a type with these markers controller-gen writes DeepCopyObject, as below, and the
// manifest of the CustomResourceDefinition.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Lamp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              LampSpec   `json:"spec,omitempty"`
	Status            LampStatus `json:"status,omitempty"`
}

// LampSpec is what is wanted.
type LampSpec struct {
	// +kubebuilder:validation:Maximum=100
	Brightness int32 `json:"brightness,omitempty"`
}

// LampStatus is what is.
type LampStatus struct {
	Lit bool `json:"lit,omitempty"`
}

func (l *Lamp) DeepCopyObject() runtime.Object {
	c := *l
	l.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

var lamps = schema.GroupVersionResource{Group: "home.example", Version: "v1", Resource: "lamps"}

// home starts an API server in memory that knows lamps, and runs fn. A program has the rest.Config of a cluster there,
// and a controller what reconcile.ClientConfig makes of it.
func home(fn func(ctx context.Context, cfg *rest.Config)) {
	server := must(reconciletest.Start(
		reconciletest.Options{Namespaces: []string{"default", "team-a", "team-b", "team-c"},
			Resources: []reconciletest.Resource{{GroupVersionResource: lamps, Kind: "Lamp", Status: true}}}))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fn(ctx, server.Config())
}

// running runs an informer until stop is called, and waits for its first list.
func running[T informer.Object](ctx context.Context, inf *informer.SharedIndexInformer[T]) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- inf.Run(ctx) }()
	if err := inf.WaitForSync(ctx); err != nil {
		panic(err)
	}
	return func() { cancel(); <-ended }
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A custom resource with a Go type of one's own: no scheme, no generated client, no list type.
func ExampleNewResource() {
	home(func(ctx context.Context, cfg *rest.Config) {
		client := must(informer.NewResource[*Lamp](cfg, lamps, informer.ResourceOptions{}))
		lamp := must(client.In("default").Create(ctx, &Lamp{ObjectMeta: metav1.ObjectMeta{Name: "desk"},
			Spec: LampSpec{Brightness: 40}}, metav1.CreateOptions{}))
		lamp.Status.Lit = true
		must(client.In("default").UpdateStatus(ctx, lamp, metav1.UpdateOptions{}))

		cache := must(informer.New(client, informer.Options[*Lamp]{}))
		defer running(ctx, cache)()
		held, _ := cache.Get(informer.Key{Namespace: "default", Name: "desk"})
		fmt.Println(held.Kind, held.Name, held.Spec.Brightness, held.Status.Lit)
	})
	// Output:
	// Lamp desk 40 true
}

// A resource without a Go type, such as one of another project.
func ExampleNewResource_unstructured() {
	home(func(ctx context.Context, cfg *rest.Config) {
		client := must(informer.NewResource[*unstructured.Unstructured](cfg, lamps, informer.ResourceOptions{}))
		must(client.In("default").Apply(ctx,
			informer.ApplyUnstructured(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "home.example/v1", "kind": "Lamp", "metadata": map[string]any{"name": "desk"},
				"spec": map[string]any{"brightness": int64(40)}}}), metav1.ApplyOptions{FieldManager: "example"}))

		cache := must(informer.New(client, informer.Options[*unstructured.Unstructured]{}))
		defer running(ctx, cache)()
		for lamp := range cache.All() {
			brightness, _, _ := unstructured.NestedInt64(lamp.Object, "spec", "brightness")
			fmt.Println(lamp.GetKind(), lamp.GetName(), brightness)
		}
	})
	// Output:
	// Lamp desk 40
}

// A program that follows the Secrets with a label needs the others neither in its cache nor on the wire.
func ExampleNewResource_label() {
	home(func(ctx context.Context, cfg *rest.Config) {
		client := must(informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
			informer.ResourceOptions{}))
		for name, labels := range map[string]map[string]string{"ours": {"app": "shop"}, "theirs": nil} {
			must(client.In("default").Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
				metav1.CreateOptions{}))
		}
		cache := must(informer.New(client, informer.Options[*corev1.Secret]{
			LabelSelector: labels.SelectorFromSet(labels.Set{"app": "shop"})}))
		defer running(ctx, cache)()
		for secret := range cache.All() {
			fmt.Println(secret.Name)
		}
	})
	// Output:
	// ours
}

// One cache for several namespaces, for a program that may not list the whole cluster.
func ExampleResource_In() {
	home(func(ctx context.Context, cfg *rest.Config) {
		client := must(informer.NewResource[*Lamp](cfg, lamps, informer.ResourceOptions{}))
		for _, team := range []string{"team-a", "team-b", "team-c"} {
			must(client.In(team).Create(ctx, &Lamp{ObjectMeta: metav1.ObjectMeta{Name: "desk"}},
				metav1.CreateOptions{}))
		}
		cache := must(informer.NewNamespaced(client.In, []string{"team-a", "team-b"}, informer.Options[*Lamp]{}))
		defer running(ctx, cache)()
		_, followed := cache.Get(informer.Key{Namespace: "team-b", Name: "desk"})
		_, other := cache.Get(informer.Key{Namespace: "team-c", Name: "desk"})
		fmt.Println(followed, other)
	})
	// Output:
	// true false
}
