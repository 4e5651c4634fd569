package reconcile

import (
	"slices"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// namesIn returns a copy of what an object names. The informer holds no object that names panics on.
func namesIn[R, N any](names func(R) []N, object R) (list []N) {
	_ = lifecycle.Try(func() { list = slices.Clone(names(object)) })
	return list
}

// namedBy returns a function that returns what the object of a key names: it calls user code.
func namedBy[R, N any](from *informer.SharedIndexInformer[R], names func(R) []N) func(Key) []N {
	return func(key Key) []N {
		if object, exists := from.Get(key); exists {
			return namesIn(names, object)
		}
		return nil
	}
}

func each[N any](names []N, add func(N)) {
	for _, name := range names {
		add(name)
	}
}
