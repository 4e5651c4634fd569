package reconcile

import (
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// trail follows the keys of one controller from what names them to what they do: who has named a key that waits, and
// whether that was the key itself.
type keyHistory struct {
	mu sync.Mutex
	// Guarded by mu. A key is in it while it has causes, while it is reconciled, and for as long as its loop has
	// something to remember.
	keys    map[Key]*keyEntry
	spare   []*keyEntry // for reuse, so that naming a key allocates nothing as a rule
	sweptTo int         // how many keys there were after the last sweep
	// What is known of circles: the keys that are slowed down, how many have been, ever, and what was written lately.
	hotKeys   map[*keyEntry]struct{}
	hotLoops  int
	contested contestedObjects

	allowHotLoops bool         // keys may go in circles
	seed          maphash.Seed // of all hashes
}

func newKeyHistory(off bool) *keyHistory {
	return &keyHistory{keys: make(map[Key]*keyEntry), hotKeys: make(map[*keyEntry]struct{}), allowHotLoops: off, seed: maphash.MakeSeed()}
}

// step is what the trail has of one key.
type keyEntry struct {
	causes causes
	// foreign is true if one of the causes is not a write of the key's last run.
	othersActed bool
	stats       *repeatStats // of a key that is reconciled, or was a moment ago
}

// echo is what a write is recognised by when it comes back as a change: the object and its version, or the object alone
// if that was deleted.
type writeID struct {
	uid             types.UID
	resourceVersion string
}

// note records that a source names a key because of a change of an object. It reports whether explain shall find out
// what has changed.
func (t *keyHistory) recordCause(key Key, source string, object Key, resourceVersion string, v sighting) (explain bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.entryOf(key, now)
	s.causes.add(source, object, resourceVersion, now.UnixNano())
	return t.observe(s, v)
}

// stepOf returns the key's step. mu is held.
func (t *keyHistory) entryOf(key Key, now time.Time) *keyEntry {
	if s, ok := t.keys[key]; ok {
		return s
	}
	if len(t.keys) >= max(2*t.sweptTo, 1024) {
		t.sweep(now)
	}
	var s *keyEntry
	if n := len(t.spare); n > 0 {
		s, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		s = &keyEntry{}
	}
	t.keys[key] = s
	return s
}

// drop forgets the key. mu is held.
func (t *keyHistory) forget(key Key, s *keyEntry) {
	delete(t.keys, key)
	delete(t.hotKeys, s)
	if s.stats != nil {
		*s.stats = repeatStats{} // which is as good as none, and spares the next key the allocation
	}
	*s = keyEntry{stats: s.stats}
	if len(t.spare) < 1024 {
		t.spare = append(t.spare, s)
	}
	if len(t.keys) == 0 && t.sweptTo > 1024 { // a map keeps the size that it once had
		t.keys, t.sweptTo = make(map[Key]*keyEntry), 0
	}
}

// begin is the start of a run, which is given the causes; unless the key has to rest because it goes in circles: then
// it says for how long, and nothing begins.
func (t *keyHistory) beginRun(r *run) (rest time.Duration) {
	now := r.worker.began
	t.mu.Lock()
	s := t.entryOf(r.key, now)
	if s.stats == nil {
		s.stats = &repeatStats{}
	}
	l := s.stats
	t.endOldContest(s, now)
	t.countLastRun(s)
	if l.hot && !s.othersActed {
		rest = max(l.restsUntil.Sub(now), 0)
	}
	tell := t.dueLine(s, rest)
	if rest == 0 {
		l.selfCaused = !s.othersActed && (s.causes.n > 0 || l.requeuedSoon)
		r.worker.entry, r.worker.causes = s, s.causes.moveOut()
		s.othersActed, l.run = false, r
		l.earlierWrites, l.lastWrites, l.earlierCounted = l.lastWrites, nil, l.counted
	}
	t.mu.Unlock()
	if tell != nil {
		tell(r.log())
	}
	return rest
}

// end is the end of a run.
func (t *keyHistory) endRun(r *run, o outcome, now time.Time) {
	t.mu.Lock()
	s := r.worker.entry
	l := s.stats
	l.run, l.endedAt, l.counted = nil, now, false
	l.lastWrites, l.writeNames = r.written()
	l.changed, l.requeuedSoon = t.noteWrites(l, now), !t.allowHotLoops && o.kind == doneAfter && o.after < soonDelay
	if len(l.undecided) > 0 {
		t.resolveUndecided(s)
	}
	quiet := !l.changed && !l.requeuedSoon
	if quiet {
		l.repeats, l.replacements, l.written, l.earlierWrites, l.writeNames = 0, 0, nil, nil, nil
	}
	t.updateHot(s, now)
	tell := t.dueLine(s, 0)
	if s.causes.n == 0 && quiet && !l.hot {
		t.forget(r.key, s)
	}
	t.mu.Unlock()
	if tell != nil {
		tell(r.log())
	}
}

// sweep forgets the keys that wrote something last, some time ago, and were never named again. mu is held.
func (t *keyHistory) sweep(now time.Time) {
	for key, s := range t.keys {
		if l := s.stats; s.causes.n == 0 && l != nil && l.run == nil && now.Sub(l.endedAt) > forgetAfter {
			t.forget(key, s)
		}
	}
	t.sweptTo = len(t.keys)
}

// id is what is kept of a UID.
func (t *keyHistory) hashUID(v writeID) uint64 { return maphash.String(t.seed, string(v.uid)) }
