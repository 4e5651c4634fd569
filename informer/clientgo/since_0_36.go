//go:build !client_go_0_35

// With client-go 0.35 or 0.34 this file does not compile: build with -tags client_go_0_35.

package clientgo

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

type checker struct {
	name string
	done <-chan struct{}
}

func (c checker) Name() string          { return c.name }
func (c checker) Done() <-chan struct{} { return c.done }

func (s *sharedInformer) HasSyncedChecker() cache.DoneChecker {
	return checker{fmt.Sprintf("SharedIndexInformer %T", s.example), s.core.Synced()}
}

func (r *registration) HasSyncedChecker() cache.DoneChecker { return checker{r.name, r.core.Synced()} }

func (c controller) HasSyncedChecker() cache.DoneChecker { return c.handler.HasSyncedChecker() }

func sharedOptions(o cache.InformerOptions) cache.SharedIndexInformerOptions {
	return cache.SharedIndexInformerOptions{
		ResyncPeriod: o.ResyncPeriod, Indexers: o.Indexers,
		Identifier: o.Identifier, InformerMetricsProvider: o.InformerMetricsProvider,
	}
}

func handlerOptions(o cache.InformerOptions) cache.HandlerOptions {
	return cache.HandlerOptions{Logger: o.Logger}
}

// versionMetric returns what is told of the store's resourceVersions, or nil.
func versionMetric(o cache.SharedIndexInformerOptions) cache.GaugeMetric {
	if o.InformerMetricsProvider == nil || !o.Identifier.Reserved() {
		return nil
	}
	return o.InformerMetricsProvider.NewStoreResourceVersionMetric(o.Identifier)
}

var _ cache.TransactionStore = (*indexer)(nil)

// Transaction makes several changes at once. Those without a key are left out and reported; of an index function's
// failure, it can say only that there was one.
func (x *indexer) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	var changes []change
	failed := &cache.TransactionError{TotalTransactions: len(txns), SuccessfulIndices: []int{}}
	for i, txn := range txns {
		key, err := x.keyOf(txn.Object)
		if err != nil {
			failed.Errors = append(failed.Errors, err)
			continue
		}
		failed.SuccessfulIndices = append(failed.SuccessfulIndices, i)
		changes = append(changes, change{key: key, obj: txn.Object, remove: txn.Type == cache.TransactionTypeDelete})
	}
	if err := x.write(changes...); err != nil {
		failed.Errors = append(failed.Errors, err)
	}
	if len(failed.Errors) == 0 {
		return nil
	}
	return failed
}
