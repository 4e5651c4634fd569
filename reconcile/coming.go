package reconcile

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
)

// comers are the informers that come and go, those of families, as sources of a controller. Safe for concurrent use.
type comers struct{ byInformer sync.Map } // Informer to *comer

// comer is one of them.
type comer struct {
	cache   *debts.Cache
	sources []source    // added before it is opened, and not changed then
	failed  error       // the first error of those
	opened  atomic.Bool // it has all of them
}

// openComer makes an informer that does not run yet a source of the controller, by the function given to Needs or, if
// that does not, by DependsOn.
func openComer[T any](c *Controller, inf *informer.SharedIndexInformer[T], ca *debts.Cache,
	sources func(*informer.SharedIndexInformer[T])) error {
	in := &comer{cache: ca}
	c.comers.byInformer.Store(inf, in)
	defer in.opened.Store(true)
	if sources != nil {
		if err := lifecycle.Try(func() { sources(inf) }); err != nil {
			return fmt.Errorf("the function given to Needs of controller %s: %w", c.name, err)
		}
	}
	if len(in.sources) == 0 && in.failed == nil {
		DependsOn(c, inf)
	}
	return in.failed
}

// close undoes openComer, unless the informer has been opened with another cache since.
func (all *comers) close(inf Informer, ca *debts.Cache) {
	if in, ok := all.byInformer.Load(inf); ok && in.(*comer).cache == ca {
		all.byInformer.CompareAndDelete(inf, in)
	}
}

// opening returns an informer that is about to get its sources, if it is one.
func (all *comers) opening(inf Informer) (in *comer, ok bool) {
	if found, known := all.byInformer.Load(inf); known {
		in = found.(*comer)
	}
	return in, in != nil && !in.opened.Load()
}

// sources returns those of all informers that have all of theirs.
func (all *comers) sources() iter.Seq[source] {
	return func(yield func(source) bool) {
		all.byInformer.Range(func(_, found any) bool {
			for _, s := range found.(*comer).now() {
				if !yield(s) {
					return false
				}
			}
			return true
		})
	}
}

// of returns the sources of the informer of a cache.
func (all *comers) of(ca *debts.Cache) []source {
	if found, ok := all.byInformer.Load(ca.Informer); ok {
		return found.(*comer).now()
	}
	return nil
}

// now returns the sources, if all are there.
func (in *comer) now() []source {
	if in.opened.Load() {
		return in.sources
	}
	return nil
}
