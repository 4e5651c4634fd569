package main

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/thermostat-go/thermostat/informer/clientgo"
	"github.com/thermostat-go/thermostat/informer/packed"
)

// BenchmarkManagerCache lists 150,000 pods over HTTP into the cache of a manager of controller-runtime, which has
// client-go's informers or those of package clientgo, with Wire or without, or packed. Each side needs a process of its
// own. The store's Get is of a pod that nobody has asked for, its List of all.
func BenchmarkManagerCache(b *testing.B) {
	b.Run("protobuf", func(b *testing.B) { managerCache(b, serverOptions{Pods: manyPods, Realistic: true}) })
	b.Run("protobuf,plain", func(b *testing.B) {
		managerCache(b, serverOptions{Pods: manyPods, Realistic: true, Plain: true})
	})
	b.Run("json", func(b *testing.B) { managerCache(b, serverOptions{Pods: manyPods, Realistic: true, JSON: true}) })
}

func managerCache(b *testing.B, o serverOptions) {
	for _, side := range []struct {
		name    string
		config  func(*rest.Config) *rest.Config
		options cache.Options
	}{
		{"thermostat", clientgo.Wire, cache.Options{NewInformer: clientgo.NewSharedIndexInformer}},
		{"thermostat,packed", clientgo.Wire,
			cache.Options{NewInformer: packed.Informers(packed.Options{}, &corev1.Pod{})}},
		{"thermostat,unwired", rest.CopyConfig, cache.Options{NewInformer: clientgo.NewSharedIndexInformer}},
		{controllerRuntime, rest.CopyConfig, cache.Options{}},
	} {
		b.Run(side.name, func(b *testing.B) {
			c := side.config(startServer(b, o))
			ctrl.SetLogger(logr.Discard())
			m, err := ctrl.NewManager(c, ctrl.Options{
				Cache:          side.options,
				Metrics:        metricsserver.Options{BindAddress: "0"},
				MapperProvider: onlyPods,
			})
			must(b, err)
			must(b, m.GetFieldIndexer().IndexField(b.Context(), &corev1.Pod{}, "spec.nodeName",
				func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }))
			before := heap()
			b.ResetTimer()
			background(b, m.Start)
			inf, err := m.GetCache().GetInformer(b.Context(), &corev1.Pod{})
			must(b, err)
			for !inf.HasSynced() {
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			b.ReportMetric(peakRSS(b), "peak-B/op")
			b.ReportMetric(float64(heap()-before)/float64(o.Pods), "heap-B/pod")
			store := inf.(toolscache.SharedIndexInformer).GetStore()
			keys := store.ListKeys()[:5000]
			began := time.Now()
			for _, key := range keys {
				_, _, err = store.GetByKey(key)
				must(b, err)
			}
			b.ReportMetric(time.Since(began).Seconds()/float64(len(keys)), "get-sec")
			began = time.Now()
			keep(store.List())
			b.ReportMetric(time.Since(began).Seconds(), "list-sec")
			keep(m)
		})
	}
}
