package reconcile

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// A key goes in circles if what it does recurs, and its own doing is all that brings it up. The rule: a run counts if
// nobody but the run before it has brought it about, by its writes or by a RequeueAfter of nearly nothing, and if it
// repeats what such runs have done before: it deletes what they have made, or it writes an object again that they have
// written, and in none of the objects that it writes there is progress. Progress is an object that is made or deleted,
// a field that has not changed before, and a number that goes on falling towards zero, or rising, the latter for a
// thousand times. A write that changes no resourceVersion is none. A run also counts, whoever has brought it about, if
// it gives fields the very values again that it had given them before and that somebody else has undone within a
// minute.
//
// A run or two of that kind is how a Reconcile converges; so hotAfter of them are free. From then on the key rests
// after each run: for hotFloor, and as long as it writes for twice as long each time, up to hotCap. What anybody else
// does, such as a change of the spec, brings the key up at once all the same, unless it is nothing but the undoing. The
// circle ends with a run that writes nothing and does not ask for the next at once, or with progress; that of two
// writers when none has undone the other for a minute.
//
// Own writes are recognised by what TrackWrites, Wrote and Deleted report, and their changes seen by the sources that
// name the key because of them. Where no source shows a write, any further write of the object is a repetition.
const (
	hotAfter = 20
	hotFloor = time.Second
	hotCap   = 5 * time.Minute
)

// loop is how far a key is in such a circle. A key that has not been reconciled for a while has a zero one, or none.
type repeatStats struct {
	run *run // that is going on; nil in between. While there is one nobody forgets the step
	// unjudged is what named the key while the run went on: the event may be faster than the answer, so that only the
	// end of the run tells whose doing it was.
	undecided []sighting
	// of the last run, while nothing else has come to pass: true for objects that are seen to be new
	lastWrites map[writeID]bool
	// those of the run before it: an event may come when the cache has had its object for a moment
	earlierWrites  map[writeID]bool
	earlierCounted bool           // they are in seen
	writeNames     []writeName    // the writes of the last run by name
	selfCaused     bool           // the run, or the last, was brought about by nobody but the run before it
	changed        bool           // the last run has changed something
	requeuedSoon   bool           // the last run has asked for another at once
	counted        bool           // the last run has been counted
	countedRuns    int            // that have been judged
	repeats        int            // runs that count, less those with progress
	replacements   int            // runs that deleted what the key had made
	reverts        int            // runs that brought back what somebody else had undone
	written        writtenObjects // what such runs have written
	changingFields string         // an object, and its fields that change in the circle; empty while nobody knows
	hot            bool           // the key is slowed down
	logged         bool           // and the log says so
	restsUntil     time.Time      // until when
	endedAt        time.Time      // when the last run did
}

// sight is a change of an object that names the key.
type sighting struct {
	writeID
	created    bool        // it is new
	updated    bool        // it was there before, so that there are two states to compare
	comparing  bool        // explain is about to compare them
	comparison *comparison // nil until explain has compared them
}

// finding is what explain has to say of a change.
type comparison struct {
	object  string   // by name
	changes []change // where its two states differ
	failed  bool     // nobody can tell
}

// owner says whose doing a change is.
type author uint8

const (
	byOther author = iota
	byKey
	unclear // until the run ends
)

// maxUnjudged bounds what a run has to judge at its end; with more, somebody else is taken to be at work.
const maxUndecided = 64

// whose says who has brought about a change.
func (l *repeatStats) authorOf(v writeID) author {
	if l == nil {
		return byOther
	}
	_, isLast := l.lastWrites[v]
	_, isOlder := l.earlierWrites[v]
	switch {
	case isLast, isOlder, l.run != nil && l.run.hasWritten(v):
		return byKey
	case l.run == nil:
		return byOther
	default:
		return unclear
	}
}

// isNew takes note of an own write whose object is seen to be new.
func (l *repeatStats) markCreated(v writeID) {
	for _, writes := range []map[writeID]bool{l.lastWrites, l.earlierWrites} {
		if _, ok := writes[v]; ok {
			writes[v] = true
			return
		}
	}
	l.run.markCreated(v)
}

// level is how far the key has gone.
func (l *repeatStats) level() int { return max(l.repeats, l.replacements, l.reverts) }

// restAfter is how long a key of that level rests after a run that has written.
func restAfter(level int) time.Duration {
	if level <= hotAfter {
		return 0
	}
	return lifecycle.Doubled(hotFloor, level-hotAfter-1, hotCap)
}

// rest is how long the key rests after its last run.
func (l *repeatStats) rest() time.Duration {
	if l.changed {
		return restAfter(l.level())
	}
	return min(restAfter(l.level()), hotFloor)
}

// sees takes note of a change that names the key, and says whether explain shall find out what has changed. mu is held.
func (t *keyHistory) observe(s *keyEntry, v sighting) (explain bool) {
	if t.allowHotLoops {
		return false
	}
	l := s.stats
	whose := l.authorOf(v.writeID)
	r := t.contested.find(t, v.writeID)
	explain = v.updated && (whose != byOther && l.repeats >= compareAfter || r != nil && r.rounds >= compareAfter)
	switch whose {
	case byKey:
		if v.created {
			l.markCreated(v.writeID)
		}
	case unclear:
		if len(l.undecided) == maxUndecided {
			t.resolveUndecided(s)
		}
		if len(l.undecided) < maxUndecided {
			v.comparing = explain
			l.undecided = append(l.undecided, v)
			return explain
		}
		s.othersActed = true
		return false
	case byOther:
		if r != nil {
			r.touchedByOther = true
		}
		// If the key is slowed down because somebody else undoes what it does, explain tells whether this is more of
		// the same.
		s.othersActed = s.othersActed || !explain || l == nil || l.reverts <= hotAfter
	}
	return explain
}

// explain finds out what has changed in an object that a key may go in circles about.
func compareStates[T any](t *keyHistory, key Key, source string, v sighting, e informer.Event[T]) {
	f := &comparison{object: fmt.Sprintf("%s %s", source, e.Key)}
	err := lifecycle.Apart(func() { f.changes = changesOf(t.seed, e.Old, e.New) }) // the types are the user's
	v.comparison, f.failed = f, err != nil
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.keys[key]
	if !ok || s.stats == nil {
		return // forgotten in between
	}
	switch s.stats.authorOf(v.writeID) {
	case byKey:
		t.comparedOwn(s, v)
	case byOther:
		t.comparedOther(s, v)
	case unclear:
		for i, u := range s.stats.undecided {
			if u.writeID == v.writeID {
				s.stats.undecided[i] = v
			}
		}
	}
}

// learn is told what an own write has changed. mu is held.
func (t *keyHistory) comparedOwn(s *keyEntry, v sighting) {
	l, id := s.stats, t.hashUID(v.writeID)
	if v.comparison.failed {
		return // the write is a repetition as long as nobody knows better
	}
	text := fmt.Sprintf("%s: %s", v.comparison.object, strings.Join(names(v.comparison.changes), ", "))
	if tr := l.written[id]; tr != nil && l.repeats >= compareAfter {
		if tr.addChanges(v.comparison.changes); !tr.progressed {
			l.changingFields = text
		}
	}
	if r := t.contested.byUID[id]; r != nil && r.rounds >= compareAfter && r.ownChanges(v.comparison.changes) {
		r.reverts++
		l.reverts, l.changingFields = max(l.reverts, r.reverts), text
		t.updateHot(s, l.endedAt)
	}
}

// hear is told what somebody else has changed. mu is held.
func (t *keyHistory) comparedOther(s *keyEntry, v sighting) {
	r := t.contested.byUID[t.hashUID(v.writeID)]
	more := r != nil && !v.comparison.failed && r.otherChanges(v.comparison.changes) // of the same
	s.othersActed = s.othersActed || !more || s.stats.reverts <= hotAfter
}

// judge counts the last run, once, when the sources have shown what it wrote. mu is held.
func (t *keyHistory) countLastRun(s *keyEntry) {
	l := s.stats
	if l.counted || !l.selfCaused || !l.changed && !l.requeuedSoon {
		return
	}
	l.counted = true
	l.countedRuns++
	if l.written == nil {
		l.written = make(writtenObjects)
	}
	for v, made := range l.earlierWrites {
		if l.earlierCounted {
			break
		}
		if tr, _ := l.written.of(t.hashUID(v), made, l.countedRuns); tr != nil && v.resourceVersion != "" {
			tr.version = maphash.String(t.seed, v.resourceVersion)
		}
	}
	again, undone, progress := !l.changed, false, false
	for v, made := range l.lastWrites {
		id := t.hashUID(v)
		if v.resourceVersion == "" { // deleted
			if tr := l.written[id]; tr != nil && tr.created {
				undone = true
			} else {
				progress = true
			}
			delete(l.written, id)
			continue
		}
		if _, gone := l.lastWrites[writeID{uid: v.uid}]; gone {
			continue // the deletion's answer has a version, too
		}
		tr, isNew := l.written.of(id, made, l.countedRuns)
		if tr == nil {
			progress = progress || made
			continue
		}
		version := maphash.String(t.seed, v.resourceVersion)
		switch {
		case tr.version == version:
			continue // nothing was changed
		case isNew:
			progress = progress || made
		case tr.created && tr.updates == 0:
			tr.updates++
		default:
			tr.updates++
			again = again || !tr.progressed
			progress = progress || tr.progressed
		}
		tr.version, tr.lastRun, tr.progressed = version, l.countedRuns, false
	}
	switch {
	case undone:
		l.replacements++
	case progress:
		l.repeats = min(l.repeats, compareAfter)
	case again:
		l.repeats++
	}
	t.updateHot(s, l.endedAt)
}

// heat slows the key down, or no longer. now is when its last run has ended. mu is held.
func (t *keyHistory) updateHot(s *keyEntry, now time.Time) {
	l := s.stats
	was := l.hot
	l.hot = l.level() > hotAfter
	switch {
	case l.hot:
		if rests := now.Add(l.rest()); rests.After(l.restsUntil) {
			l.restsUntil = rests
		}
		if !was {
			t.hotKeys[s] = struct{}{}
			t.hotLoops++
		}
	case was:
		delete(t.hotKeys, s)
	}
}

// makePeace forgets a quarrel that nobody has gone on with for a while. mu is held.
func (t *keyHistory) endOldContest(s *keyEntry, now time.Time) {
	if l := s.stats; l.reverts > 0 && now.Sub(l.endedAt) > slowContestWindow {
		l.reverts = 0
		t.updateHot(s, l.endedAt)
	}
}

// clear judges what was unclear, as far as that is possible by now: at the end of the run all of it. mu is held.
func (t *keyHistory) resolveUndecided(s *keyEntry) {
	l := s.stats
	l.undecided = slices.DeleteFunc(l.undecided, func(v sighting) bool {
		switch l.authorOf(v.writeID) {
		case byKey:
			if v.created {
				l.markCreated(v.writeID)
			}
			if v.comparison != nil {
				t.comparedOwn(s, v)
			}
		case byOther:
			if r := t.contested.find(t, v.writeID); r != nil {
				r.touchedByOther = true
			}
			switch {
			case v.comparison != nil:
				t.comparedOther(s, v)
			case !v.comparing: // otherwise explain says so, soon
				s.othersActed = true
			}
		case unclear:
			return false
		}
		return true
	})
}

// changed reports whether the last run has changed anything, and takes note of it for the rivals. mu is held.
func (t *keyHistory) noteWrites(l *repeatStats, now time.Time) (wrote bool) {
	if t.allowHotLoops || len(l.lastWrites) == 0 {
		return false
	}
	for v := range l.lastWrites {
		if _, same := l.earlierWrites[v]; same && v.resourceVersion != "" {
			continue
		}
		id := t.hashUID(v)
		if tr := l.written[id]; tr != nil && tr.version == maphash.String(t.seed, v.resourceVersion) {
			continue
		}
		wrote = true
		t.contested.noteWrite(id, now)
	}
	return wrote
}

// report returns the line of the log that is due, or nil. mu is held.
func (t *keyHistory) dueLine(s *keyEntry, rest time.Duration) func(klog.Logger) {
	l := s.stats
	switch {
	case l.hot && !l.logged && rest > 0:
		l.logged = true
		message := "Hot loop: only its own runs bring this key up, so it is slowed down"
		if l.reverts > max(l.repeats, l.replacements) {
			message = "Hot loop: another writer undoes each write of this key's runs, so it is slowed down"
		}
		line := []any{"runs", hotAfter + 1, "writes", fmt.Sprint(l.writeNames), "changes", l.changingFields, "causes",
			s.causes.String(),
			"rests", rest, "atMost", hotCap}
		return func(log klog.Logger) { log.Error(nil, message, line...) }
	case !l.hot && l.logged:
		l.logged, l.changingFields = false, ""
		return func(log klog.Logger) { log.Error(nil, "The hot loop of this key has ended") }
	default:
		return nil
	}
}

// circles counts the keys that are slowed down, and those that ever were.
func (t *keyHistory) hotCounts() (now, ever int) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.hotKeys {
		if s.stats.run == nil {
			t.endOldContest(s, at)
		}
	}
	return len(t.hotKeys), t.hotLoops
}
