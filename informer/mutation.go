package informer

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/thermostat-go/thermostat/informer/internal/fingerprint"
)

// detector finds out which objects of the store user code has changed: see Options.DetectMutations. Of each value it
// keeps a fingerprint, and compares when the value leaves the store and once in detectPeriod.
//
// It belongs to the writer.
type detector[T any] struct {
	seed     maphash.Seed
	prints   map[Key]printed[T]
	rotation *rotation
}

type printed[T any] struct {
	value  T
	leaves fingerprint.Print
}

const detectPeriod = time.Minute

func newDetector[T any]() *detector[T] {
	return &detector[T]{seed: maphash.MakeSeed(), prints: make(map[Key]printed[T]),
		rotation: newRotation(detectPeriod)}
}

// saw records a change of the store.
func (d *detector[T]) saw(e Event[T], h *health) {
	if e.Type == 0 {
		return
	}
	d.check(e.Key, h)
	if e.Type == Deleted {
		delete(d.prints, e.Key)
	} else {
		d.prints[e.Key] = d.print(e.New)
	}
}

func (d *detector[T]) print(value T) printed[T] {
	return printed[T]{value, fingerprint.Of(d.seed, &value)}
}

// check complains, once, if the value of that key has been changed.
func (d *detector[T]) check(key Key, h *health) {
	p, ok := d.prints[key]
	if !ok {
		return
	}
	if changed := fingerprint.Changed(d.seed, p.leaves, &p.value); changed != "" {
		d.prints[key] = d.print(p.value)
		h.mutated(fmt.Errorf("%s: user code has changed %s of the %T in the cache, which is shared; copy an object "+
			"before you change it", key, changed, p.value))
	}
}
