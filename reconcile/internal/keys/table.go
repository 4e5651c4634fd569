package keys

import (
	"container/list"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Key is the namespace and the name of an object.
type Key = informer.Key

// Table has all that is known of the keys of one controller. Named is called for each change that names a key, Begin
// and End around each call of Reconcile.
type Table struct {
	resourceOf func(*url.URL) string // the resource that a request is about, for texts; never changed

	nPaused atomic.Int64 // keys; changed with mu held. A worker takes no lock for a pause if there is none
	mu      sync.Mutex
	// Guarded by mu. An entry exists while its key has causes, is held, runs, or has a record, and as long as its stats
	// matter.
	keys    map[Key]*entry
	held    map[Key]*entry // those with holds
	parked  list.List      // of those, the parked ones; the first has been so for longest
	spare   []*entry       // for reuse, so that naming a key rarely allocates
	sweptTo int            // the number of keys after the last sweep
	past    past
	loops
}

// New makes a table that remembers that many runs, and none if runs is negative.
func New(allowHotLoops bool, runs int, resourceOf func(*url.URL) string) *Table {
	return &Table{resourceOf: resourceOf, keys: make(map[Key]*entry), held: make(map[Key]*entry),
		past: past{limit: runs}, loops: newLoops(allowHotLoops)}
}

// Remembers reports whether the table keeps records of runs.
func (t *Table) Remembers() bool { return t.past.limit >= 0 }

// entry is what is known of one key, guarded by the Table's mu.
type entry struct {
	causes      Causes
	othersActed bool // one of the causes is not a write of the key's own last runs
	fleeting    bool // one of the causes is no object that is in a cache and names the key still
	due         bool // a worker has taken the key while it was paused
	run         *Run // the run that goes on, or nil; the entry of a key with a run is never forgotten
	// holds are what keeps the key from running, one for each reason: WaitPaused, WaitParked, and WaitBackoff with the
	// time until which the server has asked it to wait. What keeps a key in a hot loop is in stats.
	holds  []status.Wait
	parked *list.Element // its place in Table.parked while it is parked
	// stats is nil until a run writes, asks for the next one at once, or has a change whose author is unclear. Most
	// keys never need it: their runs find that there is nothing to do.
	stats   *repeatStats
	contest *list.Element // its place in loops.contests, or nil
	// record has the key's last runs. It is nil if none of them had anything to say.
	record *record
}

// idleLocked reports whether nothing but a record is known of the key.
func (e *entry) idleLocked() bool {
	return e.causes.n == 0 && e.run == nil && e.stats == nil && len(e.holds) == 0
}

// needStats returns the entry's stats, and makes them if there are none.
func (e *entry) needStats() *repeatStats {
	if e.stats == nil {
		e.stats = &repeatStats{}
	}
	return e.stats
}

// WriteID identifies a write in the change that it brings about: the object and its new version, or the object alone
// if the write deleted it.
type WriteID struct {
	UID             types.UID
	ResourceVersion string
}

// Named records that a source names a key because of a change of an object. It reports whether the caller must call
// Compare.
func (t *Table) Named(key Key, source string, object Key, resourceVersion string, v Sighting) (compare bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entryOfLocked(key, now)
	e.causes.add(source, object, resourceVersion, now.UnixNano())
	e.fleeting = e.fleeting || !v.Stays
	return t.observeLocked(e, v)
}

// Unname forgets what has named a key that a worker has taken, and that does not run here. It reports whether the
// objects that are in the caches name the key still.
func Unname(t *Table, key Key) (stays bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.keys[key]
	if !ok || e.run != nil {
		return false
	}
	stays = e.causes.n > 0 && !e.fleeting
	e.causes, e.othersActed, e.fleeting = Causes{}, false, false
	if e.idleLocked() {
		t.forgetLocked(key, e)
	}
	return stays
}

// Begin starts a run of a key that a worker has taken, and moves the key's causes to the worker's turn; the turn has
// begun. If the key is held, or rests in a hot loop, no run has started, and left is how long it must wait: zero if it
// waits for Free.
func (t *Table) Begin(r *Run) (left time.Duration, held bool) {
	now := r.Turn.Began
	t.mu.Lock()
	e := t.entryOfLocked(r.Key, now)
	if left, held = t.mustWaitLocked(r.Key, e, now); held {
		t.mu.Unlock()
		return left, true
	}
	var write func(klog.Logger)
	if st := e.stats; st != nil {
		t.endOldContestLocked(e, now)
		t.countLastRunLocked(e)
		if st.hot() && !e.othersActed {
			left = max(st.restsUntil.Sub(now), 0)
		}
		write = t.dueLineLocked(e, left)
		if left == 0 {
			st.selfCaused = !e.othersActed && (e.causes.n > 0 || st.requeuedSoon)
			st.earlier, st.last = st.last, pastRun{}
		}
	}
	if left == 0 {
		r.Turn.entry, r.Turn.causes = e, e.causes.moveOut()
		e.othersActed, e.fleeting, e.run = false, false, r
		t.setContestLocked(e)
	} else {
		t.remembersLocked(r.Key, e, status.Wait{For: status.WaitHotLoop, From: now, To: now.Add(left)})
	}
	t.mu.Unlock()
	if write != nil {
		write(r.Log())
	}
	return left, left > 0
}

// Outcome is how a run has ended.
type Outcome struct {
	Result string        // as in status.Run
	Error  *status.Error // nil for a success
	After  time.Duration // the delay that the run has asked for, or zero
	Pause  time.Duration // that the server has asked for, or zero: no change ends it
	Where  string        // as in status.Run
	// Invalid says that Reconcile was not called.
	Invalid bool
	// Of the key in the queue.
	Priority int
	Group    string
	// Report asks for the record of the run.
	Report bool
}

// End ends a run that Begin started, and whose call has returned. It returns the record of the run if
// o asks for it, or nil if the run found nothing to do.
func (t *Table) End(r *Run, o Outcome, now time.Time) (added *status.Run) {
	details := r.seen()
	writes, writeNames := details.written()
	requeuedSoon := !t.allowHotLoops && o.Error == nil && o.After > 0 && o.After < soonDelay
	t.mu.Lock()
	e := r.Turn.entry
	added = t.rememberLocked(e, r, details, o, now)
	e.run = nil
	if o.Pause > 0 {
		t.holdLocked(r.Key, e, status.Wait{For: status.WaitBackoff, From: now, To: now.Add(o.Pause)})
	}
	if e.stats == nil && len(writes) == 0 && !requeuedSoon {
		if e.causes.n == 0 {
			t.forgetLocked(r.Key, e)
		}
		t.mu.Unlock()
		return added
	}
	st := e.needStats()
	st.endedAt, st.last.writes, st.writeNames = now, writes, writeNames
	st.changed, st.requeuedSoon = t.noteWritesLocked(st, now), requeuedSoon
	if len(st.undecided) > 0 {
		t.resolveUndecidedLocked(e)
	}
	quiet := !st.changed && !st.requeuedSoon
	if quiet {
		st.repeats, st.replacements, st.written, st.earlier.writes, st.writeNames = 0, 0, nil, nil, nil
	}
	t.updateHotLocked(e)
	write := t.dueLineLocked(e, 0)
	if e.causes.n == 0 && quiet && !st.hot() {
		t.forgetLocked(r.Key, e)
	}
	t.mu.Unlock()
	if write != nil {
		write(r.Log())
	}
	return added
}

// entryOfLocked returns the key's entry, and adds one if there is none.
func (t *Table) entryOfLocked(key Key, now time.Time) *entry {
	if e, ok := t.keys[key]; ok {
		return e
	}
	if len(t.keys) >= max(2*t.sweptTo, 1024) {
		t.sweepLocked(now)
	}
	var e *entry
	if n := len(t.spare); n > 0 {
		e, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		e = &entry{}
	}
	t.keys[key] = e
	return e
}

// forgetLocked removes the stats of a key without causes, and all of the key unless it is held or has a record.
func (t *Table) forgetLocked(key Key, e *entry) {
	if e.stats != nil {
		delete(t.hotKeys, e)
		e.stats = nil
		t.setContestLocked(e)
	}
	if e.record != nil || len(e.holds) > 0 {
		return
	}
	delete(t.keys, key)
	if len(t.spare) < 1024 {
		*e = entry{}
		t.spare = append(t.spare, e)
	}
	if len(t.keys) == 0 && t.sweptTo > 1024 { // a map never shrinks
		t.keys, t.sweptTo = make(map[Key]*entry), 0
	}
}

// sweepLocked forgets keys whose last run wrote something, ended more than forgetAfter ago, and was followed by no
// cause.
func (t *Table) sweepLocked(now time.Time) {
	for key, e := range t.keys {
		if st := e.stats; e.causes.n == 0 && e.run == nil && st != nil && now.Sub(st.endedAt) > forgetAfter {
			t.forgetLocked(key, e)
		}
	}
	t.sweptTo = len(t.keys)
}
