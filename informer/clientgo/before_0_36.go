//go:build client_go_0_35

package clientgo

import "k8s.io/client-go/tools/cache"

// The methods that client-go has since 0.36 are left out, and so is what depends on options that it did not have.

func sharedOptions(o cache.InformerOptions) cache.SharedIndexInformerOptions {
	return cache.SharedIndexInformerOptions{ResyncPeriod: o.ResyncPeriod, Indexers: o.Indexers}
}

func handlerOptions(cache.InformerOptions) cache.HandlerOptions { return cache.HandlerOptions{} }

func versionMetric(cache.SharedIndexInformerOptions) cache.GaugeMetric { return nil }
