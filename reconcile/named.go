package reconcile

import (
	"slices"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// namedBy returns a function that returns what the object of a key names: it calls user code. changed is told of each
// object what it named before, and what it names now.
func namedBy[R, N any](c *Controller, verb string, from *informer.SharedIndexInformer[R], names func(R) []N,
	changed func(key Key, before, now []N)) (func(Key) []N, error) {
	namesIn := func(object R) (list []N) {
		_ = lifecycle.Try(func() { list = slices.Clone(names(object)) }) // the informer holds none that names panics on
		return list
	}
	_, err := from.AddHandler(func(e informer.Event[R]) {
		var before, now []N
		if e.Type != informer.Added {
			before = namesIn(e.Old)
		}
		if e.Type != informer.Deleted {
			now = namesIn(e.New)
		}
		changed(e.Key, before, now)
	}, informer.HandlerOptions{Name: verb + " of controller " + c.name, Inline: true, CrashOnPanic: true})
	return func(key Key) []N {
		if object, exists := from.Get(key); exists {
			return namesIn(object)
		}
		return nil
	}, err
}
