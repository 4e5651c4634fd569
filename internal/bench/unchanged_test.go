package main

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/clientgo"
)

// BenchmarkUnchanged lists 150,000 objects over HTTP into informers of programs that are written against client-go: its
// own, and those of package clientgo with Wire. Each side needs a process of its own.
func BenchmarkUnchanged(b *testing.B) {
	for name, o := range map[string]serverOptions{
		"protobuf": {Pods: manyPods, Realistic: true},
		"json":     {Pods: manyPods, Realistic: true, JSON: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.Run("thermostat", func(b *testing.B) {
				measureSync(b, o, func(b *testing.B, c *rest.Config) any {
					clientset, err := kubernetes.NewForConfig(clientgo.Wire(c))
					must(b, err)
					return peerSync(b, wired(clientset.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}))
				})
			})
			b.Run("client-go", func(b *testing.B) {
				measureSync(b, o, func(b *testing.B, c *rest.Config) any {
					clientset, err := kubernetes.NewForConfig(c)
					must(b, err)
					return peerSync(b, informers.NewSharedInformerFactory(clientset, 0).Core().V1().Pods().Informer())
				})
			})
		})
	}
	b.Run("unstructured", func(b *testing.B) {
		b.Run("thermostat", func(b *testing.B) {
			customs(b, func(b *testing.B, c *rest.Config) any {
				client, err := dynamic.NewForConfig(clientgo.Wire(c))
				must(b, err)
				return peerSync(b, wired(client.Resource(backups), &unstructured.Unstructured{}))
			})
		})
		b.Run("client-go", func(b *testing.B) { customs(b, peerUnstructured) })
	})
}

// wired is an informer of package clientgo.
func wired[L runtime.Object](client informer.Client[L], example runtime.Object) cache.SharedIndexInformer {
	return clientgo.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: client.Watch,
	}, example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}
