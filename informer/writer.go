package informer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/store"
)

// chunk is how many changes are made under one lock: readers wait for no more.
const chunk = 256

// process applies to the store whatever the reflector has put into the FIFO, and tells the listeners. It is the writer
// of the store but for AddHandler and AddIndex, which borrow the token.
//
// Index functions and inline handlers run on its goroutine. If one ends it (runtime.Goexit) the chunk in hand is
// brought to its end first, by what is deferred and by lifecycle.Each, and another goroutine calls process again.
func (inf *SharedIndexInformer[T]) process(ctx context.Context, log klog.Logger) {
	defer inf.pulse.does(resting)
	for {
		if inf.taking != nil { // the goroutine before this one did not get through with it
			inf.take(ctx, log)
		}
		for _, l := range inf.followed.Load().listWatches {
			if b, any := l.fifo.pop(); any {
				inf.taking, inf.taken = l, b
				inf.take(ctx, log)
			}
		}
		inf.pulse.does(resting)
		select {
		case <-ctx.Done():
			return
		case <-inf.reminder.C:
			inf.pulse.does(storing)
			inf.write(func() { inf.remind(log) })
		case <-inf.ready:
		}
	}
}

// write calls fn with the writer token.
func (inf *SharedIndexInformer[T]) write(fn func()) {
	inf.lockWriter()
	defer inf.unlockWriter()
	fn()
}

// take applies what has been taken from a list-watch, unless ctx ends or the list-watch leaves before.
func (inf *SharedIndexInformer[T]) take(ctx context.Context, log klog.Logger) {
	l, b := inf.taking, &inf.taken
	l.rewound = max(l.rewound, b.rewound)
	for ctx.Err() == nil {
		deltas := b.next(chunk)
		if len(deltas) == 0 {
			break
		}
		inf.pulse.does(storing)
		inf.write(func() {
			if !l.left {
				defer inf.tell(log)
				inf.apply(l, deltas)
			}
		})
	}
	inf.taking = nil
	defer func() {
		l.fifo.applied(*b)
		*b = batch[T]{}
	}()
	if ctx.Err() != nil {
		return
	}
	inf.pulse.does(storing)
	inf.write(func() {
		if !l.left {
			inf.finish(l, *b, log)
		}
	})
}

// apply changes the store by a few deltas of a list-watch and leaves in inf.events what there is to tell. The caller
// holds the writer token.
func (inf *SharedIndexInformer[T]) apply(l *listWatch[T], deltas []delta[T]) {
	defer inf.commit(l, deltas)
	// First the users' index functions, without a lock: this goroutine is the only writer, so what it sees now is what
	// it will find then. Of two deltas of one key, which stand next to each other, the first is a deletion: unless that
	// is stale, there is nothing to compare the second with.
	lifecycle.Each(len(deltas), func(i int) {
		d := &deltas[i]
		l.touch(d.key)
		d.stale = inf.stale(l, d) && (i == 0 || deltas[i-1].key != d.key || deltas[i-1].stale)
		if !d.deleted && !d.stale && d.invalid == nil {
			inf.store.Plan(d.key, d.value, inf.health.badObject)
		}
	})
}

// commit is what apply does once the index functions have been called.
func (inf *SharedIndexInformer[T]) commit(l *listWatch[T], deltas []delta[T]) {
	s := inf.store
	initial := !l.health.complete()
	inf.events = slices.Grow(inf.events, len(deltas))
	s.Lock()
	defer s.Unlock()
	for i := range deltas {
		d := &deltas[i]
		row, held := s.Find(d.key)
		switch {
		case d.stale && !held:
			continue
		case d.stale:
			f := s.Facts(row)
			f.epoch = max(f.epoch, uint32(d.epoch))
			if f.resourceVersion == d.resourceVersion {
				delete(s.invalid, d.key)
				if !d.deleted && inf.every.Load() {
					inf.repeats = append(inf.repeats, repeated(s.item(row)))
				}
			}
			continue
		case d.deleted:
			delete(s.invalid, d.key)
			if held {
				inf.removed(l, row, d)
			}
			continue
		case d.invalid != nil:
			// It exists, so it is not deleted, and nobody is told anything: the last good state of this object stays.
			s.invalid[d.key] = rejection{d.invalid, d.epoch}
			switch {
			case held && d.uid != "" && s.Facts(row).uid != d.uid:
				inf.removed(l, row, nil)
			case held:
				s.Facts(row).epoch = uint32(d.epoch)
			}
			continue
		case held && s.Facts(row).uid != d.uid:
			inf.removed(l, row, nil)
			held = false
		}
		event := Event[T]{Type: Added, Key: d.key, UID: d.uid, ResourceVersion: d.resourceVersion, New: d.value,
			Initial: initial}
		if held {
			event.Type, event.Old, event.Initial = Updated, s.Value(row), false
		}
		if _, was := s.invalid[d.key]; was {
			delete(s.invalid, d.key)
			inf.recovered = append(inf.recovered, d.key)
		}
		s.put(d.item, d.epoch)
		inf.events = append(inf.events, event)
	}
}

// stale reports whether d tells the store nothing: it holds exactly this state, as after a relist, which repeats what
// has not changed, or a newer one, which no server should make it forget.
//
// In a list, the version says whether it is the same state. It need not be where a watch calls it a change, for there
// are servers that change an object and not its version, nor if one of the versions is from before a rewind, and the
// other from after it: then the values are compared, which is rare.
func (inf *SharedIndexInformer[T]) stale(l *listWatch[T], d *delta[T]) bool {
	row, held := inf.store.Find(d.key)
	if !held || d.resourceVersion == "" {
		return d.repeated
	}
	f := inf.store.Facts(row)
	related := (uint64(f.epoch) < l.rewound) == (d.epoch < l.rewound)
	switch {
	case related && kube.Older(d.resourceVersion, f.resourceVersion):
		return true
	case d.repeated && d.resourceVersion != f.resourceVersion:
		return true
	case d.deleted || f.uid != d.uid || f.resourceVersion != d.resourceVersion:
		return false
	case related && !d.changed || d.invalid != nil:
		return true
	default:
		return reflect.DeepEqual(inf.store.Value(row), d.value)
	}
}

// removed takes a row out of the store. d is the deletion if the server has told of one, of that object, with its last
// state. The store's lock is held.
func (inf *SharedIndexInformer[T]) removed(l *listWatch[T], row store.Row, d *delta[T]) {
	it := inf.store.item(row)
	event := Event[T]{Type: Deleted, Key: it.key, UID: it.uid, ResourceVersion: it.resourceVersion, Old: it.value,
		FinalStateUnknown: true}
	if d != nil && !d.unseen && d.uid == it.uid {
		event.ResourceVersion, event.Old, event.FinalStateUnknown = d.resourceVersion, d.value, false
	}
	l.touch(event.Key)
	inf.store.remove(row)
	inf.events = append(inf.events, event)
}

// repeated is what there is to tell of an object that has not changed.
func repeated[T any](it item[T]) Event[T] {
	return Event[T]{Type: Updated, Key: it.key, UID: it.uid, ResourceVersion: it.resourceVersion, Old: it.value,
		New: it.value, Resync: true}
}

// finish makes true what a batch says once all of its deltas have been applied: a list is complete, a version has been
// reached. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) finish(l *listWatch[T], b batch[T], log klog.Logger) {
	defer inf.settle(log)
	defer func() {
		if b.complete >= l.due {
			l.health.listed(b.complete)
		}
		if b.complete != 0 {
			l.health.knows(withheldSweep, inf.withheld(l, b.complete))
		}
		if b.resourceVersion != "" && l.health.complete() {
			l.reached.move(b.resourceVersion)
			lifecycle.Each(len(inf.listeners), func(i int) {
				inf.listeners[i].reach(log, l.namespace, b.resourceVersion)
			})
		}
	}()
	if b.sweep != 0 {
		inf.sweep(l, b.sweep, log)
		l.swept = b.sweep
	}
}

// settle says, once it is so, that the store is complete. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) settle(log klog.Logger) {
	c := inf.followed.Load()
	if closed(c.synced) || len(incomplete(c.listWatches)) > 0 {
		return
	}
	close(c.synced)
	inf.events = append(inf.events, Event[T]{}) // the mark: see listener
	defer inf.remind(log)
	inf.tell(log)
}

// sweep removes what a list-watch's list of that epoch did not contain. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) sweep(l *listWatch[T], epoch uint64, log klog.Logger) {
	s := inf.store
	s.Lock()
	maps.DeleteFunc(s.invalid, func(key Key, r rejection) bool { return r.epoch < epoch && l.has(key) })
	s.Unlock()
	var swept []store.Row
	for row := range store.Row(s.Rows()) {
		if uint64(s.Facts(row).epoch) < epoch && l.has(s.Key(row)) {
			swept = append(swept, row)
		}
	}
	slices.Reverse(swept) // what moves into the gap of a row that was removed stood behind it, and stays
	lifecycle.Loop(func() bool {
		if len(swept) == 0 {
			return false
		}
		rows := swept[:min(chunk, len(swept))]
		swept = swept[len(rows):]
		s.Lock()
		for _, row := range rows {
			inf.removed(l, row, nil)
		}
		s.Unlock()
		inf.tell(log)
		return true
	})
}

// withheld returns why what a list-watch's complete list of that epoch did not contain is kept, or nil if nothing is.
// The caller holds the writer token.
func (inf *SharedIndexInformer[T]) withheld(l *listWatch[T], epoch uint64) error {
	if l.swept >= epoch {
		return nil
	}
	kept := 0
	for row := range store.Row(inf.store.Rows()) {
		if uint64(inf.store.Facts(row).epoch) < epoch && l.has(inf.store.Key(row)) {
			kept++
		}
	}
	if kept == 0 {
		return nil
	}
	return fmt.Errorf("the latest list held objects whose names could not be read; so %d that it did not name are "+
		"kept, "+
		"though they may have been deleted", kept)
}

// watchStore lets the list-watches know, until ctx ends, when the goroutine that feeds the store is stuck.
func (inf *SharedIndexInformer[T]) watchStore(ctx context.Context) {
	know := func(err error) {
		for _, l := range inf.followed.Load().listWatches {
			l.health.knows(stuckStore, err)
		}
	}
	inf.pulse.watch(ctx, "store", know, func() { know(nil) })
}

// tell hands inf.events to every listener, and inf.repeats to those that want them. No key is in both. It also logs
// which objects can be taken again. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) tell(log klog.Logger) {
	for _, key := range inf.recovered {
		inf.health.goodObject(key)
	}
	inf.recovered = inf.recovered[:0]
	if len(inf.events)+len(inf.repeats) == 0 {
		return
	}
	if inf.detector != nil {
		for _, e := range inf.events {
			inf.detector.saw(e, inf.health)
		}
	}
	stored := inf.store.Len()
	// Listeners keep them, even one that is removed while it is told. Where all are inline nobody does, and the space
	// is used again.
	kept := slices.ContainsFunc(inf.listeners, func(l *listener[T]) bool { return !l.inline })
	defer func() {
		listening := len(inf.listeners)
		inf.listeners = slices.DeleteFunc(inf.listeners, (*listener[T]).isRemoved)
		if len(inf.listeners) != listening {
			inf.countEvery()
		}
		if kept {
			inf.events = nil
		}
		clear(inf.events) // or they would keep objects alive
		inf.events, inf.repeats = inf.events[:0], nil
	}()
	if len(inf.repeats) > 0 {
		defer lifecycle.Each(len(inf.listeners), func(i int) {
			if l := inf.listeners[i]; l.every {
				inf.push(l, log, stored, inf.repeats)
			}
		})
	}
	lifecycle.Each(len(inf.listeners), func(i int) { inf.push(inf.listeners[i], log, stored, inf.events) })
}

// countEvery notes whether some listener wants every change. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) countEvery() {
	inf.every.Store(slices.ContainsFunc(inf.listeners, func(l *listener[T]) bool { return l.every }))
}

// push hands events to one listener. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) push(l *listener[T], log klog.Logger, stored int, events []Event[T]) {
	if l.inline {
		inf.inside.Store(l)
		defer inf.inside.Store(nil)
	}
	l.push(log, stored, events...)
}
