package keys

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A key is in a hot loop if its runs repeat themselves, and nothing but these runs brings it up. A run counts as a
// repetition if both hold:
//
//   - The run before it caused it, and nothing else did: by a write, or by a RequeueAfter below soonDelay.
//   - It repeats what such runs have done: it deletes an object that they created, or it writes an object again that
//     they wrote, and none of the objects that it writes shows progress. Progress is an object created or deleted, a
//     field that has not changed before, a number that keeps falling towards zero, or one that keeps rising, for at
//     most MaxRises times. A write that does not change the resourceVersion is not counted.
//
// A run also counts, whatever caused it, if it sets fields to the values that it had given them before and that
// another writer has undone within contestWindow.
//
// A few repetitions are how a Reconcile converges, so HotAfter of them are free. After that the key rests after each
// run: for HotFloor, then, as long as it writes, for twice as long each time, up to hotCap. A change by anyone else,
// such as an edit of the spec, ends a rest at once, unless it only undoes a write of the key.
//
// The hot loop ends with progress, or with a run that writes nothing and does not ask for the next one at once. One of
// two writers ends when neither has undone the other for slowContestWindow.
//
// A source has to show a write for its fields to be compared. Without one, each further write of an object is a
// repetition.
const (
	HotAfter = 20
	HotFloor = time.Second
	hotCap   = 5 * time.Minute

	soonDelay    = HotFloor / 10 // a RequeueAfter below it asks for the next run at once
	compareAfter = HotAfter / 2  // the level from which writes are compared field by field
	forgetAfter  = 2 * hotCap    // how long a key without runs is remembered
)

// loops are the hot loops of a controller. The Table's mu guards what changes.
type loops struct {
	allowHotLoops bool         // never changed
	seed          maphash.Seed // of all hashes; never changed
	hotKeys       map[*entry]struct{}
	hotLoops      int // that have ever begun
	// contests has those of hotKeys that are hot by their reverts and do not run; the first has not run for longest.
	contests  list.List
	contested contestedObjects
}

func newLoops(allowed bool) loops {
	return loops{allowHotLoops: allowed, seed: maphash.MakeSeed(), hotKeys: make(map[*entry]struct{})}
}

// hashUID returns what is kept of a UID.
func (l *loops) hashUID(v WriteID) uint64 { return maphash.String(l.seed, string(v.UID)) }

// repeatStats counts the repetitions of one key. It is zero for a key that has not run for a while.
type repeatStats struct {
	undecided  []Sighting // changes that came while a run goes on, and whose author is unclear
	selfCaused bool       // only the run before it caused this one; if none goes on, this is of the last run

	last, earlier pastRun        // the last run and the one before it, whose events may be late
	changed       bool           // the last run changed an object
	requeuedSoon  bool           // the last run asked for the next one at once
	endedAt       time.Time      // when the last run ended
	writeNames    []status.Write // the first writes of the last run, for the log

	counted      int            // runs that countLastRunLocked has counted
	repeats      int            // repetitions in a row; progress takes them back to compareAfter
	replacements int            // runs that deleted an object which the key had created
	reverts      int            // runs that set again what another writer had undone
	written      writtenObjects // what the counted runs wrote

	restsUntil     time.Time
	logged         bool   // the log says that the key is in a hot loop
	changingFields string // an object and its fields that change in the loop, for the log; empty while unknown
}

// pastRun is what a run that has ended wrote.
type pastRun struct {
	writes  map[WriteID]bool // true for objects that the run created
	counted bool             // the writes are in repeatStats.written
}

// level is how far the key has gone. Beyond HotAfter it is in a hot loop.
func (st *repeatStats) level() int { return max(st.repeats, st.replacements, st.reverts) }

func (st *repeatStats) hot() bool { return st.level() > HotAfter }

// restAfter returns how long a key of that level rests after a run that has written.
func restAfter(level int) time.Duration {
	if level <= HotAfter {
		return 0
	}
	return min(HotFloor<<min(level-HotAfter-1, 30), hotCap)
}

// rest returns how long the key rests after its last run.
func (st *repeatStats) rest() time.Duration {
	if st.changed {
		return restAfter(st.level())
	}
	return min(restAfter(st.level()), HotFloor)
}

// countLastRunLocked counts the last run, once. It is called as late as possible, when the sources have shown what the
// run wrote.
func (l *loops) countLastRunLocked(e *entry) {
	st := e.stats
	if st.last.counted || !st.selfCaused || !st.changed && !st.requeuedSoon {
		return
	}
	st.last.counted = true
	st.counted++
	if st.written == nil {
		st.written = make(writtenObjects)
	}
	if !st.earlier.counted {
		for v, created := range st.earlier.writes {
			if o, _ := st.written.of(l.hashUID(v), created, st.counted); o != nil && v.ResourceVersion != "" {
				o.version = maphash.String(l.seed, v.ResourceVersion)
			}
		}
	}
	sum := effect{repeated: !st.changed}
	for v, created := range st.last.writes {
		sum = sum.and(l.countWriteLocked(st, v, created))
	}
	switch {
	case sum.replaced:
		st.replacements++
	case sum.progressed:
		st.repeats = min(st.repeats, compareAfter)
	case sum.repeated:
		st.repeats++
	}
	l.updateHotLocked(e)
}

// effect is what a write, or all writes of a run, come to.
type effect struct{ repeated, replaced, progressed bool }

func (x effect) and(y effect) effect {
	return effect{x.repeated || y.repeated, x.replaced || y.replaced, x.progressed || y.progressed}
}

// countWriteLocked counts one write of the last run.
func (l *loops) countWriteLocked(st *repeatStats, v WriteID, created bool) (x effect) {
	uid := l.hashUID(v)
	if v.ResourceVersion == "" { // a deletion
		o := st.written[uid]
		delete(st.written, uid)
		own := o != nil && o.created
		return effect{replaced: own, progressed: !own}
	}
	if _, deleted := st.last.writes[WriteID{UID: v.UID}]; deleted {
		return x // the answer to the deletion: it has a version, too
	}
	o, isNew := st.written.of(uid, created, st.counted)
	if o == nil { // too many objects to remember this one
		return effect{progressed: created}
	}
	version := maphash.String(l.seed, v.ResourceVersion)
	switch {
	case o.version == version:
		return x // the write changed nothing
	case isNew:
		x.progressed = created
	case o.created && o.updates == 0: // the first update of an own object is part of creating it
		o.updates++
	default:
		o.updates++
		x = effect{repeated: !o.progressed, progressed: o.progressed}
	}
	o.version, o.lastRun, o.progressed = version, st.counted, false
	return x
}

// noteWritesLocked reports whether the last run changed anything, and counts its writes as the controller's own in
// contested objects.
func (l *loops) noteWritesLocked(st *repeatStats, now time.Time) (changed bool) {
	if l.allowHotLoops {
		return false
	}
	for v := range st.last.writes {
		if _, same := st.earlier.writes[v]; same && v.ResourceVersion != "" {
			continue
		}
		uid := l.hashUID(v)
		if o := st.written[uid]; o != nil && o.version == maphash.String(l.seed, v.ResourceVersion) {
			continue
		}
		changed = true
		l.contested.noteWrite(uid, now)
	}
	return changed
}

// updateHotLocked lets the key's rest and its place in hotKeys follow its level.
func (l *loops) updateHotLocked(e *entry) {
	st := e.stats
	_, was := l.hotKeys[e]
	switch {
	case st.hot():
		if until := st.endedAt.Add(st.rest()); until.After(st.restsUntil) {
			st.restsUntil = until
		}
		if !was {
			l.hotKeys[e] = struct{}{}
			l.hotLoops++
		}
	case was:
		delete(l.hotKeys, e)
	}
	l.setContestLocked(e)
}

// setContestLocked lets the key's place in contests follow its run and its stats.
func (l *loops) setContestLocked(e *entry) {
	if e.contest != nil {
		l.contests.Remove(e.contest)
		e.contest = nil
	}
	if st := e.stats; st != nil && st.reverts > HotAfter && e.run == nil {
		e.contest = insertByAge(&l.contests, e, func(e *entry) time.Time { return e.stats.endedAt })
	}
}

// endOldContestsLocked is endOldContestLocked for all keys.
func (l *loops) endOldContestsLocked(now time.Time) {
	for first := l.contests.Front(); first != nil; first = l.contests.Front() {
		e := first.Value.(*entry)
		if l.endOldContestLocked(e, now); e.contest == first {
			return // the others have run later
		}
	}
}

// endOldContestLocked ends the hot loop of two writers when the key has not run for slowContestWindow.
func (l *loops) endOldContestLocked(e *entry, now time.Time) {
	if st := e.stats; st.reverts > 0 && now.Sub(st.endedAt) > slowContestWindow {
		st.reverts = 0
		l.updateHotLocked(e)
	}
}

// dueLineLocked returns what writes the log line that is due when the key rests this long, or nil. A hot loop is logged
// when it first costs the key a rest, and when it has ended.
func (l *loops) dueLineLocked(e *entry, rest time.Duration) (write func(klog.Logger)) {
	st := e.stats
	switch {
	case st.hot() && !st.logged && rest > 0:
		st.logged = true
		message := "Hot loop: only its own runs bring this key up, so it is slowed down"
		if st.reverts > max(st.repeats, st.replacements) {
			message = "Hot loop: another writer undoes each write of this key's runs, so it is slowed down"
		}
		values := []any{"runs", HotAfter + 1, "writes", fmt.Sprint(st.writeNames), "changes", st.changingFields,
			"causes", e.causes.String(), "rests", rest, "atMost", hotCap}
		return func(log klog.Logger) { log.Error(nil, message, values...) }
	case !st.hot() && st.logged:
		st.logged, st.changingFields = false, ""
		return func(log klog.Logger) { log.Error(nil, "The hot loop of this key has ended") }
	default:
		return nil
	}
}
