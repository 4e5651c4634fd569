package informer

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/store"
)

// chunk is how many changes are made under one lock: readers wait for no more.
const chunk = 256

// writer changes the store and tells the handlers what has changed. There is one, and [SharedIndexInformer.write] is
// the only way to it: one goroutine at a time has it. That is no mutex, because handlers and index functions, the
// user's code, run meanwhile: see HandlerOptions.Inline and AddIndex for what they may not do.
type writer[T any] struct {
	// These never change.
	inf    *SharedIndexInformer[T]
	store  *indexer[T]
	health *health

	// These belong to the goroutine that has the writer. events and repeats are what is still to be told: changes, and
	// states that came again without a change. detector is nil unless Options.DetectMutations.
	listeners       []*listener[T]
	events, repeats []Event[T]
	detector        *detector[T]
	// guides are empty unless the informer follows only what is named.
	guides guides[T]
	// Run sets these before other goroutines use them. ctx ends with Run. reminder fires when the turn of a key may
	// have come, and only the goroutine that has the writer resets it: see remind.
	ctx      context.Context
	log      klog.Logger
	reminder *time.Timer

	pulse pulse // safe for concurrent use; of the goroutine that has the writer

	// The goroutine that has the writer sets these; every goroutine may read them. every is true while one of the
	// listeners wants every change; inside is the inline listener whose handler is being called, which Run names if
	// it never returns.
	every  atomic.Bool
	inside atomic.Pointer[listener[T]]
}

// write calls fn with the writer. The error is [ErrStopped], and fn is not called, if Run returned while another
// goroutine had the writer: user code may keep it for ever.
func (inf *SharedIndexInformer[T]) write(fn func(*writer[T])) error {
	if !inf.writeUnless(context.Background(), inf.stopped, fn) {
		return ErrStopped
	}
	return nil
}

// writeUnless calls fn with the writer and returns true, or returns false if another goroutine has the writer until
// ctx ends, or until ended is closed. A nil ended never is.
func (inf *SharedIndexInformer[T]) writeUnless(ctx context.Context, ended <-chan struct{}, fn func(*writer[T])) bool {
	select {
	case inf.token <- struct{}{}:
	default:
		select {
		case inf.token <- struct{}{}:
		case <-ctx.Done():
			return false
		case <-ended:
			return false
		}
	}
	inf.writer.pulse.does(storing)
	defer func() {
		inf.writer.pulse.does(resting)
		<-inf.token
	}()
	fn(&inf.writer)
	return true
}

// feed applies to the store what the reflectors have put into the FIFOs, until ctx ends.
func (inf *SharedIndexInformer[T]) feed(ctx context.Context) {
	for {
		if changed, guided := inf.origin.references.take(); len(changed) > 0 || guided {
			_ = inf.write(func(w *writer[T]) { // see below
				w.refollow(changed)
				if guided {
					w.guides.follow(w)
				}
			})
		}
		if inf.share != nil && inf.share.shrunk.Swap(false) {
			_ = inf.write(shrink[T]) // see below
		}
		for _, l := range inf.followed.Load().listWatches {
			if b, filled := l.fifo.pop(); filled {
				l.feed(ctx, inf, b)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-inf.writer.reminder.C:
			_ = inf.write((*writer[T]).remind) // it fails only when Run has given this goroutine up
		case <-inf.ready:
		}
	}
}

// feed applies a batch to the store of inf, unless ctx ends or the list-watch leaves the scope before.
func (l *listWatch[T]) feed(ctx context.Context, inf *SharedIndexInformer[T], b batch[T]) {
	for more := true; more && ctx.Err() == nil; {
		deltas := b.next(chunk)
		more = len(deltas) > 0
		_ = inf.write(func(w *writer[T]) { // see feed
			if b.rewound > l.rewound {
				l.rewound, l.newest = b.rewound, ""
			}
			switch {
			case l.heirs != nil:
			case more:
				w.apply(l, deltas)
				w.tell()
			default:
				w.finish(l, b.outcome)
			}
		})
	}
	l.fifo.release(b)
}

// apply changes the store by a few deltas of a list-watch, and leaves in events what there is to tell.
func (w *writer[T]) apply(l *listWatch[T], deltas []delta[T]) {
	// First the users' index functions, without a lock: no other goroutine changes the store, so what is seen now is
	// what commit will find. Of two deltas of one key, which stand next to each other, the first is a deletion:
	// unless that is known, there is nothing to compare the second with.
	for i := range deltas {
		d := &deltas[i]
		l.touch(d.key)
		if !d.deleted && !w.inf.share.keeps(d.slice) { // its slice has gone since it was judged
			d.deleted, d.unseen = true, true
		}
		d.known = w.known(l, d) && (i == 0 || deltas[i-1].key != d.key || deltas[i-1].known)
		if !d.deleted && !d.known && d.invalid == nil {
			w.plan(d)
		}
	}
	w.commit(l, deltas)
}

// plan runs the index functions on a live state. If one fails, the state cannot be held.
func (w *writer[T]) plan(d *delta[T]) {
	var failed error
	if w.store.Plan(d.key, d.value, func(err error) { failed = err }); failed != nil {
		w.store.Unplan()
		d.invalid = d.item.invalid(failed)
	}
}

// commit makes the changes of apply, all of them under one lock.
func (w *writer[T]) commit(l *listWatch[T], deltas []delta[T]) {
	initial, filled := !l.health.complete(), l.filled.Load()
	w.events = slices.Grow(w.events, len(deltas))
	w.store.Lock()
	defer w.store.Unlock()
	for i := range deltas {
		d := &deltas[i]
		row, held := w.store.Find(d.key)
		switch {
		case d.known:
			if held {
				w.seenAgainLocked(row, d)
			}
		case d.deleted:
			w.store.clearInvalidLocked(d.key, true)
			if held {
				w.removeLocked(l, row, d)
			}
		case d.invalid != nil:
			// It exists, so no handler is told that it was deleted: the last good state of this object stays.
			w.store.rejectLocked(d)
			if held && d.uid != "" && w.store.Facts(row).uid != d.uid {
				w.removeLocked(l, row, nil)
			}
		default:
			if held && w.store.Facts(row).uid != d.uid {
				w.removeLocked(l, row, nil)
				row, held = w.store.Find(d.key)
			}
			event := Event[T]{Type: Added, Key: d.key, UID: d.uid, ResourceVersion: d.resourceVersion, New: d.value,
				Initial: initial || w.inf.share.fills(d.slice, filled), Listed: !d.changed}
			if held {
				event.Type, event.Old, event.Initial = Updated, w.store.Value(row), false
			}
			w.store.clearInvalidLocked(d.key, false)
			w.store.putLocked(row, d.item, d.epoch)
			w.events = append(w.events, event)
		}
	}
}

// seenAgainLocked notes that a list or watch has repeated the state in that row, or has told of an older one. A
// deletion is of an older one: see known.
func (w *writer[T]) seenAgainLocked(row store.Row, d *delta[T]) {
	f := w.store.Facts(row)
	f.epoch = max(f.epoch, uint32(d.epoch))
	if f.resourceVersion != d.resourceVersion {
		return
	}
	f.slice = d.slice // there may be another number of slices
	w.store.seenLocked(d.key, uint64(f.epoch))
	if w.every.Load() {
		w.repeats = append(w.repeats, repeated(w.store.item(row)))
	}
}

// known reports whether d tells the store nothing: it holds exactly this state, as after a relist, which repeats what
// has not changed, or a newer one, which no server should make it forget.
//
// In a list, the version says whether it is the same state. It need not be where a watch calls it a change, for there
// are servers that change an object and not its version, nor if one of the versions is from before a rewind, and the
// other from after it: then the values are compared, which is rare.
func (w *writer[T]) known(l *listWatch[T], d *delta[T]) bool {
	row, held := w.store.Find(d.key)
	if !held || d.resourceVersion == "" {
		return d.repeated
	}
	f := w.store.Facts(row)
	comparable := (uint64(f.epoch) < l.rewound) == (d.epoch < l.rewound)
	switch {
	case comparable && kube.Older(d.resourceVersion, f.resourceVersion):
		return true
	case d.repeated && d.resourceVersion != f.resourceVersion:
		return true
	case d.deleted || f.uid != d.uid || f.resourceVersion != d.resourceVersion:
		return false
	case comparable && (!d.changed || d.invalid != nil):
		return true
	default:
		return d.invalid == nil && reflect.DeepEqual(w.store.Value(row), d.value)
	}
}

// removeLocked takes a row out of the store. d is the deletion of that object, with its last state, if the server has
// sent one.
func (w *writer[T]) removeLocked(l *listWatch[T], row store.Row, d *delta[T]) {
	it := w.store.item(row)
	// If its slice is the same as before, or has gone, it is not the object that has changed.
	left := !w.inf.share.keeps(it.slice) || d != nil && d.slice != 0 && d.slice == it.slice
	event := Event[T]{Type: Deleted, Key: it.key, UID: it.uid, ResourceVersion: it.resourceVersion, Old: it.value,
		FinalStateUnknown: true, Left: left, Listed: d == nil || !d.changed}
	if d != nil && !d.unseen && d.uid == it.uid {
		event.ResourceVersion, event.Old, event.FinalStateUnknown = d.resourceVersion, d.value, false
		event.Left = false // the server has deleted it
	}
	l.touch(event.Key)
	w.store.Remove(row)
	w.events = append(w.events, event)
}

// leaveLocked is removeLocked for what leaves the store with its slice.
func leaveLocked[T any](w *writer[T], l *listWatch[T], row store.Row) {
	w.removeLocked(l, row, nil)
	w.events[len(w.events)-1].Left = true
}

// repeated is the event of an object that has not changed.
func repeated[T any](it item[T]) Event[T] {
	return Event[T]{Type: Updated, Key: it.key, UID: it.uid, ResourceVersion: it.resourceVersion, Old: it.value,
		New: it.value, Resync: true}
}

// tell hands events to every listener, and repeats to those that want every change. No key is in both. Then it tells
// what has changed in what Invalid returns.
func (w *writer[T]) tell() {
	if len(w.events)+len(w.repeats) > 0 {
		w.tellEvents()
	}
	w.tellInvalidChanges()
}

func (w *writer[T]) tellEvents() {
	if w.detector != nil {
		for _, e := range w.events {
			w.detector.saw(e, w.health)
		}
	}
	stored := w.store.Len()
	// Listeners keep the events, even one that is removed while it is told. Inline ones do not: if all are inline,
	// the array is used again.
	kept := slices.ContainsFunc(w.listeners, func(l *listener[T]) bool { return !l.inline })
	for _, l := range w.listeners {
		w.push(l, stored, w.events)
		if l.every && len(w.repeats) > 0 {
			w.push(l, stored, w.repeats)
		}
	}
	w.forgetRemoved()
	if kept {
		w.events = nil
	}
	clear(w.events) // or they would keep objects alive
	w.events, w.repeats = w.events[:0], nil
}

// push hands events to one listener.
func (w *writer[T]) push(l *listener[T], stored int, events []Event[T]) {
	if !l.inline {
		l.push(stored, events...)
		return
	}
	w.inside.Store(l)
	l.callInline(w.log, &w.pulse, events)
	w.inside.Store(nil)
}

// join tells a listener of everything that the store holds, which it adds to those that are told of changes. The
// store does not change meanwhile, so there is neither a gap nor a repeat between the two.
func (w *writer[T]) join(l *listener[T]) error {
	w.inf.mu.Lock()
	ending := w.inf.ending
	if w.inf.listen != nil {
		w.inf.listen(l)
	}
	w.inf.mu.Unlock()
	if ending {
		return ErrStopped
	}
	stored := w.store.Rows()
	var joined []Event[T]
	for row := range store.Row(stored) {
		it := w.store.item(row)
		joined = append(joined, Event[T]{Type: Added, Key: it.key, UID: it.uid, ResourceVersion: it.resourceVersion,
			New: it.value, Initial: true})
		if len(joined) == chunk {
			w.push(l, stored, joined)
			joined = nil
		}
	}
	if w.inf.HasSynced() {
		joined = append(joined, Event[T]{}) // the mark: see listener
	}
	w.push(l, stored, joined)
	for key, r := range w.store.invalid {
		w.pulse.does(storing)
		l.tellInvalid(w.log, invalidChange{key: key, now: r.InvalidError})
	}
	w.forgetRemoved() // where nothing changes, tell does not do it
	w.listeners = append(w.listeners, l)
	w.every.Store(w.every.Load() || l.every)
	if l.resync != nil && w.inf.HasSynced() {
		w.reminder.Reset(0)
	}
	return nil
}

// forgetRemoved forgets the listeners that have been removed.
func (w *writer[T]) forgetRemoved() {
	listening := len(w.listeners)
	w.listeners = slices.DeleteFunc(w.listeners, (*listener[T]).isRemoved)
	if len(w.listeners) != listening {
		w.every.Store(slices.ContainsFunc(w.listeners, func(l *listener[T]) bool { return l.every }))
	}
}

// finish makes true what a batch says once all of its deltas have been applied: a list is complete, a version has
// been reached.
func (w *writer[T]) finish(l *listWatch[T], o outcome) {
	if o.sweep != 0 {
		w.sweep(l, o.sweep, o.growth)
		l.swept = o.sweep
	}
	if o.complete != 0 {
		l.health.knows(withheldSweep, w.withheld(l, o.complete))
	}
	l.health.progressed(o.came)
	if o.growth != 0 {
		l.filled.Store(o.growth)
	}
	if o.complete >= l.due {
		l.reached.move(o.resourceVersion) // first, so that whoever sees that the list is complete sees its version
		l.health.listed(o.complete)
	}
	if o.resourceVersion != "" {
		l.newest = o.resourceVersion
		if l.health.complete() {
			w.reach(l, o.resourceVersion)
		}
	}
	w.sync()
}

// reach makes known that the store has reached that version of a list-watch; empty: it holds nothing of it any more.
func (w *writer[T]) reach(l *listWatch[T], resourceVersion string) {
	l.reached.move(resourceVersion)
	for _, listener := range w.listeners {
		listener.reach(w.log, l.id(), resourceVersion)
	}
}

// sync closes Synced, and tells the listeners the mark, once every list-watch is complete in the store.
func (w *writer[T]) sync() {
	w.inf.share.arrived()
	c := w.inf.followed.Load()
	if w.reminder == nil || closed(c.synced) || len(incomplete(c.listWatches)) > 0 {
		return // without a reminder Run has not begun
	}
	close(c.synced)
	w.events = append(w.events, Event[T]{}) // the mark: see listener
	w.tell()
	w.remind()
}

// sweep removes what a list-watch's list of that epoch did not contain. Of slices that have come since the growth the
// list says nothing: what is here of them has left with them, before they came again.
func (w *writer[T]) sweep(l *listWatch[T], epoch, growth uint64) {
	w.store.Lock()
	for key, r := range w.store.invalid {
		if r.epoch < epoch && l.sweeps(key) {
			w.store.clearInvalidLocked(key, true)
		}
	}
	w.store.Unlock()
	removeRows(w, w.unseenSince(l, epoch), func(row store.Row) {
		if w.inf.share.fills(w.store.Facts(row).slice, growth) {
			leaveLocked(w, l, row)
		} else {
			w.removeLocked(l, row, nil)
		}
	})
}

// removeRows takes rows out of the store, which are in order, by a function that is called with the lock.
func removeRows[T any](w *writer[T], all []store.Row, locked func(store.Row)) {
	slices.Reverse(all) // what moves into the gap of a row that was removed stood behind it, and stays
	for rows := range slices.Chunk(all, chunk) {
		w.store.Lock()
		for _, row := range rows {
			locked(row)
		}
		w.store.Unlock()
		w.tell()
	}
	w.tell() // what is untold, if nothing was removed
}

// shrink takes out of the store what Options.Shard keeps no longer. It may be wanted again by the time that it goes:
// then a list brings it back, and until then it has left all the same.
func shrink[T any](w *writer[T]) {
	share, c := w.inf.share, w.inf.followed.Load()
	w.store.Lock()
	for key, r := range w.store.invalid {
		if !share.keeps(r.slice) {
			w.store.clearInvalidLocked(key, true)
		}
	}
	w.store.Unlock()
	var left []store.Row
	for row := range store.Row(w.store.Rows()) {
		if !share.keeps(w.store.Facts(row).slice) {
			left = append(left, row)
		}
	}
	removeRows(w, left, func(row store.Row) { leaveLocked(w, c.listWatch(w.store.Key(row)), row) })
}

// unseenSince returns the rows of a list-watch whose objects no list from that epoch on, or the watch after it, has
// seen, be it in a state that could not be taken.
func (w *writer[T]) unseenSince(l *listWatch[T], epoch uint64) (rows []store.Row) {
	for row, end := l.rows(w.store); row < end; row++ {
		key := w.store.Key(row)
		if max(uint64(w.store.Facts(row).epoch), w.store.invalid[key].epoch) < epoch && l.sweeps(key) {
			rows = append(rows, row)
		}
	}
	return rows
}

// withheld returns why the store keeps what a complete list of that epoch did not contain, or nil if it keeps
// nothing.
func (w *writer[T]) withheld(l *listWatch[T], epoch uint64) error {
	if l.swept >= epoch {
		return nil
	}
	kept := len(w.unseenSince(l, epoch))
	if kept == 0 {
		return nil
	}
	return fmt.Errorf("the latest list held objects whose names could not be read; so %d that it did not name are "+
		"kept, though they may have been deleted", kept)
}
