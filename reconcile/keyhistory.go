package reconcile

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// keyHistory follows the keys of one controller: which sources have named a waiting key, who caused that, and whether
// the key is in a hot loop (see hotloop.go). recordCause is called for each change that names a key, beginRun and
// endRun around each call of Reconcile.
type keyHistory struct {
	// Never changed.
	allowHotLoops bool
	seed          maphash.Seed  // of all hashes
	errorTexts    bool          // whether records have the texts of errors; set before the Manager starts
	bodies        *rate.Limiter // of the bytes of writes that are read for their paths

	mu sync.Mutex
	// Guarded by mu. An entry exists while its key has causes, runs, or has a record, and as long as its stats matter.
	keys      map[Key]*keyEntry
	spare     []*keyEntry // for reuse, so that naming a key rarely allocates
	sweptTo   int         // the number of keys after the last sweep
	hotKeys   map[*keyEntry]struct{}
	hotLoops  int // that have ever begun
	contested contestedObjects
	past      runHistory
}

// newKeyHistory makes a history that remembers that many runs, and none if runs is negative.
func newKeyHistory(allowHotLoops bool, runs int) *keyHistory {
	return &keyHistory{allowHotLoops: allowHotLoops, seed: maphash.MakeSeed(),
		bodies: rate.NewLimiter(bodyRate, bodyBurst), keys: make(map[Key]*keyEntry),
		hotKeys: make(map[*keyEntry]struct{}), past: runHistory{limit: runs}}
}

// keyEntry is the history of one key, guarded by the keyHistory's mu.
type keyEntry struct {
	causes      causes
	othersActed bool // one of the causes is not a write of the key's own last runs
	run         *run // the run that goes on, or nil; the entry of a key with a run is never forgotten
	// stats is nil until a run writes, asks for the next one at once, or has a change whose author is unclear. Most
	// keys never need it: their runs find that there is nothing to do.
	stats *repeatStats
	// record has the key's last runs. It is nil if none of them had anything to say.
	record *keyRecord
}

// needStats returns the entry's stats, and makes them if there are none.
func (e *keyEntry) needStats() *repeatStats {
	if e.stats == nil {
		e.stats = &repeatStats{}
	}
	return e.stats
}

// writeID identifies a write in the change that it brings about: the object and its new version, or the object alone
// if the write deleted it.
type writeID struct {
	uid             types.UID
	resourceVersion string
}

// recordCause records that a source names a key because of a change of an object. It reports whether the caller must
// call compareStates.
func (h *keyHistory) recordCause(key Key, source string, object Key, resourceVersion string,
	v sighting) (compare bool) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entryOf(key, now)
	e.causes.add(source, object, resourceVersion, now.UnixNano())
	return h.observe(e, v)
}

// beginRun starts a run and moves the key's causes to its worker. If the key is in a hot loop and must rest, beginRun
// returns for how long, and no run has started.
func (h *keyHistory) beginRun(r *run) (rest time.Duration) {
	now := r.worker.began
	h.mu.Lock()
	e := h.entryOf(r.key, now)
	var write func(klog.Logger)
	if st := e.stats; st != nil {
		h.endOldContest(e, now)
		h.countLastRun(e)
		if st.hot() && !e.othersActed {
			rest = max(st.restsUntil.Sub(now), 0)
		}
		write = h.dueLine(e, rest)
		if rest == 0 {
			st.selfCaused = !e.othersActed && (e.causes.n > 0 || st.requeuedSoon)
			st.earlier, st.last = st.last, pastRun{}
		}
	}
	if rest == 0 {
		r.worker.entry, r.worker.causes = e, e.causes.moveOut()
		e.othersActed, e.run = false, r
	}
	h.mu.Unlock()
	if write != nil {
		write(r.log())
	}
	return rest
}

// endRun ends a run that beginRun started, and that has ended.
func (h *keyHistory) endRun(r *run, o outcome, result string, now time.Time) {
	details := r.seen()
	writes, writeNames := details.written()
	requeuedSoon := !h.allowHotLoops && o.kind == doneAfter && o.after < soonDelay
	h.mu.Lock()
	e := r.worker.entry
	h.remember(e, r, details, o, result, now)
	e.run = nil
	if e.stats == nil && len(writes) == 0 && !requeuedSoon {
		if e.causes.n == 0 {
			h.forget(r.key, e)
		}
		h.mu.Unlock()
		return
	}
	st := e.needStats()
	st.endedAt, st.last.writes, st.writeNames = now, writes, writeNames
	st.changed, st.requeuedSoon = h.noteWrites(st, now), requeuedSoon
	if len(st.undecided) > 0 {
		h.resolveUndecided(e)
	}
	quiet := !st.changed && !st.requeuedSoon
	if quiet {
		st.repeats, st.replacements, st.written, st.earlier.writes, st.writeNames = 0, 0, nil, nil, nil
	}
	h.updateHot(e)
	write := h.dueLine(e, 0)
	if e.causes.n == 0 && quiet && !st.hot() {
		h.forget(r.key, e)
	}
	h.mu.Unlock()
	if write != nil {
		write(r.log())
	}
}

// entryOf returns the key's entry, and adds one if there is none. mu is held.
func (h *keyHistory) entryOf(key Key, now time.Time) *keyEntry {
	if e, ok := h.keys[key]; ok {
		return e
	}
	if len(h.keys) >= max(2*h.sweptTo, 1024) {
		h.sweep(now)
	}
	var e *keyEntry
	if n := len(h.spare); n > 0 {
		e, h.spare = h.spare[n-1], h.spare[:n-1]
	} else {
		e = &keyEntry{}
	}
	h.keys[key] = e
	return e
}

// forget removes the stats of a key without causes, and all of the key unless it has a record. mu is held.
func (h *keyHistory) forget(key Key, e *keyEntry) {
	if e.stats != nil {
		delete(h.hotKeys, e)
		e.stats = nil
	}
	if e.record != nil {
		return
	}
	delete(h.keys, key)
	if len(h.spare) < 1024 {
		*e = keyEntry{}
		h.spare = append(h.spare, e)
	}
	if len(h.keys) == 0 && h.sweptTo > 1024 { // a map never shrinks
		h.keys, h.sweptTo = make(map[Key]*keyEntry), 0
	}
}

// sweep forgets keys whose last run wrote something, ended more than forgetAfter ago, and was followed by no cause. mu
// is held.
func (h *keyHistory) sweep(now time.Time) {
	for key, e := range h.keys {
		if st := e.stats; e.causes.n == 0 && e.run == nil && st != nil && now.Sub(st.endedAt) > forgetAfter {
			h.forget(key, e)
		}
	}
	h.sweptTo = len(h.keys)
}

// hashUID returns what is kept of a UID.
func (h *keyHistory) hashUID(v writeID) uint64 { return maphash.String(h.seed, string(v.uid)) }
