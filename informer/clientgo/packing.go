package clientgo

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
)

// Packing makes of an object what an informer holds in its place. Several goroutines may call it at once. Package
// informer/packed has some.
type Packing func(informer.Object) (Packed, error)

// Packed is what an informer holds of an object, for as long as the server has it. Several goroutines may call Object
// at once. What it returns may be shared, as any object of a cache.
type Packed interface {
	Object() (informer.Object, error)
}

// Constructor is the type of NewSharedIndexInformer, as factories and managers take it.
type Constructor = func(lw cache.ListerWatcher, exampleObject runtime.Object,
	defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer

// PackedInformers returns a constructor of informers that hold their objects packed, by the Packing that choose returns
// for an example of them; if that is nil, they hold them as they are. An object is packed after the transform function
// has had it, if there is one, and unpacked whenever somebody asks for it: Get and List, and each index and handler
// when an object changes. An object that the Packing fails on is not taken, as one that the transform function fails
// on. What is written to the store by hand is not packed.
func PackedInformers(choose func(exampleObject runtime.Object) Packing) Constructor {
	return func(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration,
		indexers cache.Indexers) cache.SharedIndexInformer {
		s := newSharedInformer(lw, exampleObject, cache.SharedIndexInformerOptions{
			ResyncPeriod: defaultEventHandlerResyncPeriod, Indexers: indexers,
		})
		s.pack = choose(exampleObject)
		s.store.packs = s.pack != nil
		return s
	}
}

// held returns what is held of an object. A nil Packing packs nothing.
func (pack Packing) held(obj any) (any, error) {
	object, ok := obj.(informer.Object)
	if !ok || pack == nil {
		return obj, nil
	}
	return pack(object)
}

// packs says that some of what a store holds is a Packed.
type packs bool

// object returns the object of what is held. It panics if there is no way back: that is a fault of the Packing, and
// most of those who read a store cannot be told of an error.
func (p packs) object(held any) any {
	if !p {
		return held
	}
	packed, ok := held.(Packed)
	if !ok {
		return held // written by hand, or what a transform function has made
	}
	object, err := packed.Object()
	if err != nil {
		panic(fmt.Errorf("clientgo: an object that was packed cannot be unpacked: %w", err))
	}
	return object
}

// objects is object for many, in place.
func (p packs) objects(held []any) []any {
	if p {
		for i := range held {
			held[i] = p.object(held[i])
		}
	}
	return held
}
