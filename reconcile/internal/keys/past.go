package keys

import (
	"container/list"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A run that has something to say is remembered in full: it wrote, failed, was held back before it began, or took long.
// Most runs find that there is nothing to do. Of these only the latest of the whole controller are remembered, in a
// ring, so that they cost no allocation; if the key has a record already, they are in it as well.
const (
	MaxRunsOfKey   = 8
	maxWaitsOfKey  = 8
	maxWritesOfRun = 16
	slowRun        = time.Second
)

// past is what a Table remembers of runs. The Table's mu guards it.
type past struct {
	limit int // how many runs are remembered in full; none if it is negative. Never changed

	// Each record is in one of the two lists. The runs of those in byAge are counted in full, and are limit at most;
	// the record whose last run is the oldest is the first to be forgotten. If that run has failed for good, then it
	// says why the key rests, so it alone is kept, among the last: limit of them at most.
	byAge, last list.List
	full        int
	recent      []status.RunSummary // a ring
	next        int                 // the index in the ring of the next one to be replaced, once it is full
	runs        uint64              // that have ended
	failures    uint64              // of these
	failed      int                 // keys that their last run has left as status.KeyFailed
	invalid     int                 // keys that their last run has left as status.KeyInvalid
}

// record is what is remembered of a key.
type record struct {
	key   Key
	runs  []status.Run  // the latest last; what they refer to never changes
	waits []status.Wait // since the last run
	place *list.Element
	final bool // in last, not in byAge
}

// rememberLocked adds a run that has ended to the history, and returns its record if o asks for it and it is not quiet.
// d are its details, or nil.
func (t *Table) rememberLocked(e *entry, r *Run, d *details, o Outcome, now time.Time) (added *status.Run) {
	p := &t.past
	if p.limit < 0 {
		return nil
	}
	w := r.Turn
	took, writes := now.Sub(w.Began), 0
	if d != nil {
		writes = len(d.requests) + d.moreRequests
	}
	p.runs++
	if o.Error != nil {
		p.failures++
	}
	p.addRecent(status.RunSummary{Namespace: r.Key.Namespace, Name: r.Key.Name, Started: w.Began, Took: took,
		Result: o.Result, Writes: writes})
	quiet := writes == 0 && o.Error == nil && took < slowRun && (e.record == nil || len(e.record.waits) == 0)
	if quiet && e.record == nil {
		return nil
	}
	run := status.Run{Started: w.Began, Took: took, Result: o.Result, Error: o.Error, Where: o.Where,
		Invalid: o.Invalid}
	run.Causes, run.MoreCauses = w.causes.list(), w.causes.more
	d.describe(&run)
	if o.After > 0 {
		run.Again = now.Add(o.After)
	}
	k := t.recordOfLocked(e, r.Key)
	run.Waits = k.waitsOf(w.Began, w.causes, status.Wait{Priority: o.Priority, Group: o.Group})
	k.waits = nil
	p.add(k, run, quiet)
	t.forgetOldRunsLocked()
	if o.Report && !quiet {
		added = new(status.Run)
		*added = run
	}
	return added
}

// recordOfLocked returns the record of a key, and makes one if there is none.
func (t *Table) recordOfLocked(e *entry, key Key) *record {
	if e.record == nil {
		e.record = &record{key: key}
		e.record.place = t.past.byAge.PushBack(e.record)
	}
	return e.record
}

// addRecent adds a run to the ring.
func (p *past) addRecent(r status.RunSummary) {
	if len(p.recent) < status.MaxRecent {
		p.recent = append(p.recent, r)
		return
	}
	p.recent[p.next] = r
	p.next = (p.next + 1) % status.MaxRecent
}

// add adds a run to the record of its key, and makes this the last to be forgotten.
func (p *past) add(k *record, r status.Run, quiet bool) {
	p.countState(k, -1)
	defer p.countState(k, 1)
	if k.final {
		p.last.Remove(k.place)
		k.place, k.final = p.byAge.PushBack(k), false
		p.full += len(k.runs)
	}
	p.byAge.MoveToBack(k.place)
	if n := len(k.runs); n > 0 && quiet && quietRun(&k.runs[n-1]) {
		r.Repeated = k.runs[n-1].Repeated + 1
		k.runs[n-1] = r
		return
	}
	if len(k.runs) == MaxRunsOfKey {
		k.dropOne(r.Error != nil)
		p.full--
	}
	k.runs = append(k.runs, r)
	p.full++
}

// dropOne forgets the oldest run, or the second one if the oldest began the row of failures that goes on: that one has
// the cause.
func (k *record) dropOne(failed bool) {
	if failed && !slices.ContainsFunc(k.runs, func(r status.Run) bool { return r.Error == nil }) {
		k.runs[0].Forgotten++
		k.runs = slices.Delete(k.runs, 1, 2)
		return
	}
	k.runs = slices.Delete(k.runs, 0, 1)
}

// countState adds n to the number of the keys that are in the state in which the last run has left k.
func (p *past) countState(k *record, n int) {
	if len(k.runs) == 0 {
		return
	}
	switch leaves(&k.runs[len(k.runs)-1]) {
	case status.KeyFailed:
		p.failed += n
	case status.KeyInvalid:
		p.invalid += n
	}
}

// leaves returns the state of a key after the run, unless the key is in the queue.
func leaves(r *status.Run) status.KeyState {
	switch {
	case r.Result != "terminal":
		return status.KeySettled
	case r.Invalid:
		return status.KeyInvalid
	}
	return status.KeyFailed
}

// quietRun reports whether the run found nothing to do.
func quietRun(r *status.Run) bool {
	return len(r.Writes) == 0 && r.Error == nil && r.Took < slowRun && len(r.Waits) <= 1
}

// forgetOldRunsLocked forgets the oldest records if there are too many, and the keys of which nothing else is known.
func (t *Table) forgetOldRunsLocked() {
	p := &t.past
	forget := func(k *record) { // which is in no list any more
		p.countState(k, -1)
		e := t.keys[k.key]
		e.record = nil
		if e.idleLocked() {
			t.forgetLocked(k.key, e)
		}
	}
	for p.full > p.limit || p.byAge.Len() > p.limit {
		k := p.byAge.Remove(p.byAge.Front()).(*record)
		p.full -= len(k.runs)
		if n := len(k.runs); n > 0 && k.runs[n-1].Result == "terminal" {
			k.runs = slices.Clone(k.runs[n-1:])
			k.place, k.final = p.last.PushBack(k), true
			continue
		}
		forget(k)
	}
	for p.last.Len() > p.limit {
		forget(p.last.Remove(p.last.Front()).(*record))
	}
}

// remembersLocked records a time in which a key could not run. Several of the same kind in a row are one.
func (t *Table) remembersLocked(key Key, e *entry, wait status.Wait) {
	if t.past.limit < 0 {
		return
	}
	k := t.recordOfLocked(e, key)
	if n := len(k.waits); n > 0 && k.waits[n-1].For == wait.For && wait.For != status.WaitParked {
		k.waits[n-1].To = wait.To
		return
	}
	if len(k.waits) == maxWaitsOfKey {
		k.waits = slices.Delete(k.waits, 0, 1)
	}
	k.waits = append(k.waits, wait)
	t.forgetOldRunsLocked()
}

// Retries records when a run that has failed is tried again.
func (t *Table) Retries(key Key, began time.Time, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.keys[key]
	if e == nil || e.record == nil {
		return
	}
	runs := e.record.runs
	for i := range runs {
		if r := &runs[i]; r.Started.Equal(began) {
			r.Again = r.Started.Add(r.Took + after)
		}
	}
}

// waitsOf returns how the key spent the time from its last run to the one that began at that time: the delay that the
// last run, or the rate limiter, asked for; the times in which it was held back; and the wait for a worker, which turn
// describes.
func (k *record) waitsOf(began time.Time, cs Causes, turn status.Wait) (waits []status.Wait) {
	ready := time.Time{}
	if cs.n > 0 {
		ready = time.Unix(0, cs.first.from)
	}
	if n := len(k.runs); n > 0 && !k.runs[n-1].Again.IsZero() {
		r := k.runs[n-1]
		to := r.Again
		if !ready.IsZero() && ready.Before(to) {
			to = ready // something has named the key before
		}
		ended := r.Started.Add(r.Took)
		reason := status.WaitRequeue
		if r.Error != nil {
			reason = status.WaitBackoff
		}
		if to.After(ended) {
			waits = append(waits, status.Wait{For: reason, From: ended, To: to})
		}
		ready = to
	}
	for _, wait := range k.waits {
		if wait.To.After(began) {
			wait.To = began
		}
		waits = append(waits, wait)
		ready = wait.To
	}
	if !ready.IsZero() && began.After(ready) {
		turn.For, turn.From, turn.To = status.WaitQueue, ready, began
		waits = append(waits, turn)
	}
	return waits
}
