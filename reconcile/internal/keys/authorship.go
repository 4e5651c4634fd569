package keys

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
)

// Who has caused a change that names a key: the key's own runs, or anyone else? TrackWrites, Wrote and Deleted report
// what a run writes, and a change is compared with that. While a run goes on, the event of a write may arrive before
// the answer to it: such a change stays undecided until the run ends.

// Sighting is a change of an object that names the key.
type Sighting struct {
	WriteID
	Created    bool        // the object is new
	Updated    bool        // the object existed before: there are two states to compare
	Stays      bool        // the cache has the object, which names the key as long as it stays so
	comparing  bool        // Compare has yet to compare them
	comparison *comparison // nil until it has
}

// comparison is what Compare has found.
type comparison struct {
	object  string        // by name
	changes []diff.Change // the fields in which the states differ
	failed  bool          // comparing panicked
}

// author says who has caused a change.
type author uint8

const (
	byOther author = iota
	byKey
	unclear // until the run ends
)

// maxUndecided bounds the changes that wait for the end of a run. One more counts as caused by others.
const maxUndecided = 64

// authorOf compares a change with the writes of the run that goes on and of the two before it.
func (e *entry) authorOf(v WriteID) author {
	var inLast, inEarlier bool
	if st := e.stats; st != nil {
		_, inLast = st.last.writes[v]
		_, inEarlier = st.earlier.writes[v]
	}
	switch {
	case inLast, inEarlier, e.run != nil && e.run.hasWritten(v):
		return byKey
	case e.run == nil:
		return byOther
	default:
		return unclear
	}
}

// markCreated records that a write of the key, which authorOf has found, created its object.
func (e *entry) markCreated(v WriteID) {
	if st := e.stats; st != nil {
		for _, past := range []pastRun{st.last, st.earlier} {
			if _, ok := past.writes[v]; ok {
				past.writes[v] = true
				return
			}
		}
	}
	e.run.markCreated(v)
}

// observeLocked records a change that names the key, and reports whether Compare must compare the object's two states:
// only a key that is half-way to a hot loop is worth that.
func (l *loops) observeLocked(e *entry, v Sighting) (compare bool) {
	if l.allowHotLoops {
		return false
	}
	st := e.stats
	author := e.authorOf(v.WriteID)
	r := l.contested.find(l, v.WriteID)
	compare = v.Updated &&
		(author != byOther && st != nil && st.repeats >= compareAfter || r != nil && r.rounds >= compareAfter)
	switch author {
	case byKey:
		if v.Created {
			e.markCreated(v.WriteID)
		}
	case unclear:
		st = e.needStats()
		if len(st.undecided) == maxUndecided {
			l.resolveUndecidedLocked(e)
		}
		if len(st.undecided) == maxUndecided {
			e.othersActed = true
			return false
		}
		v.comparing = compare
		st.undecided = append(st.undecided, v)
	case byOther:
		if r != nil {
			r.touchedByOther = true
		}
		// If the key is in a hot loop because another writer undoes its writes, Compare decides whether this
		// change is one more undoing.
		e.othersActed = e.othersActed || !compare || st == nil || st.reverts <= HotAfter
	}
	return compare
}

// Compare compares an object's states before and after a change that observe was called with.
func Compare[T any](t *Table, key Key, source string, v Sighting, event informer.Event[T]) {
	found := &comparison{object: fmt.Sprintf("%s %s", source, event.Key)}
	// Methods of the user's types are called, and may panic.
	err := lifecycle.Try(func() { found.changes = diff.Of(t.seed, event.Old, event.New) })
	v.comparison, found.failed = found, err != nil
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.keys[key]
	if !ok {
		return // forgotten in between
	}
	e.needStats()
	switch e.authorOf(v.WriteID) {
	case byKey:
		t.comparedOwnLocked(e, v)
	case byOther:
		t.comparedOtherLocked(e, v)
	case unclear:
		for i, u := range e.stats.undecided {
			if u.WriteID == v.WriteID {
				e.stats.undecided[i] = v
			}
		}
	}
}

// comparedOwnLocked takes the comparison of a change that the key caused.
func (l *loops) comparedOwnLocked(e *entry, v Sighting) {
	if v.comparison.failed {
		return // without a comparison the write counts as a repetition
	}
	st, uid := e.stats, l.hashUID(v.WriteID)
	text := fmt.Sprintf("%s: %s", v.comparison.object, strings.Join(diff.Names(v.comparison.changes), ", "))
	if o := st.written[uid]; o != nil && st.repeats >= compareAfter {
		if o.addChanges(v.comparison.changes); !o.progressed {
			st.changingFields = text
		}
	}
	if r := l.contested.byUID[uid]; r != nil && r.rounds >= compareAfter && r.ownChanges(v.comparison.changes) {
		r.reverts++
		st.reverts, st.changingFields = max(st.reverts, r.reverts), text
		l.updateHotLocked(e)
	}
}

// comparedOtherLocked takes the comparison of a change that another writer caused. If it does no more than undo a write
// of the key, a key in a hot loop keeps resting.
func (l *loops) comparedOtherLocked(e *entry, v Sighting) {
	r := l.contested.byUID[l.hashUID(v.WriteID)]
	undoing := r != nil && !v.comparison.failed && r.otherChanges(v.comparison.changes)
	e.othersActed = e.othersActed || !undoing || e.stats.reverts <= HotAfter
}

// resolveUndecidedLocked decides the undecided changes whose author is known by now: after the run all of them.
func (l *loops) resolveUndecidedLocked(e *entry) {
	st := e.stats
	st.undecided = slices.DeleteFunc(st.undecided, func(v Sighting) bool {
		switch e.authorOf(v.WriteID) {
		case byKey:
			if v.Created {
				e.markCreated(v.WriteID)
			}
			if v.comparison != nil {
				l.comparedOwnLocked(e, v)
			}
		case byOther:
			if r := l.contested.find(l, v.WriteID); r != nil {
				r.touchedByOther = true
			}
			switch {
			case v.comparison != nil:
				l.comparedOtherLocked(e, v)
			case !v.comparing: // otherwise Compare calls comparedOtherLocked soon
				e.othersActed = true
			}
		case unclear:
			return false
		}
		return true
	})
}
