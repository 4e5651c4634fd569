package reconcile

import (
	"slices"
	"time"
)

// What a key that may go in circles has written is remembered by hashes: of the UIDs of objects, of the names of their
// fields, and of values. How many are kept has a limit, for each key and for each controller; past it the detector
// knows less, and takes up no more room.
const (
	maxWrittenObjects = 64             // objects that a key has written
	maxRises          = 1000           // steps that a rising number may take before it counts as one that never ends
	maxContested      = 1024           // objects that a controller has written, and somebody else perhaps
	maxFieldsKept     = 2 * maxChanges // fields of one object
	contestWindow     = time.Minute    // how long after a write somebody else may undo it for the two to be a circle
	// how far a key goes in a circle before each of its writes is looked at field by field
	compareAfter      = hotAfter / 2
	soonDelay         = hotFloor / 10            // a RequeueAfter below this is one of nearly nothing
	forgetAfter       = 2 * hotCap               // after that long without a run nothing is known of a key any more
	slowContestWindow = contestWindow + 2*hotCap // the same for two that are slowed down: each rests after the other
)

// trace is what is known of one object that the key has written in a row of runs that nobody else has brought about.
type writtenObject struct {
	version    uint64 // the hash of what the last write has made it
	lastRun    int    // the number of the last run that wrote it
	created    bool   // by the key itself, and not deleted since
	updates    int    // how often it was written, its creation aside
	fields     []changingField
	progressed bool // there has been progress in them since the last verdict
}

// moving is a field that changes.
type changingField struct {
	path      uint64
	direction int8 // which way an integer moves
	rises     int  // how often it has risen in a row
}

// look compares a write with the ones before it. There is progress in fields that have not changed before, in numbers
// that fall towards zero, and, for a while, in those that rise. A field that changes again in any other way is none,
// whatever its new value is: the time of day has a new one each time.
func (t *writtenObject) addChanges(changes []change) {
	first := t.fields == nil
	for _, c := range changes {
		i := slices.IndexFunc(t.fields, func(f changingField) bool { return f.path == c.path })
		if i < 0 {
			if len(t.fields) < maxFieldsKept {
				t.fields = append(t.fields, changingField{path: c.path, direction: c.step})
				t.progressed = t.progressed || !first
			}
			continue
		}
		f := &t.fields[i]
		switch {
		case c.step == 0 || c.step != f.direction:
			f.direction, f.rises = c.step, 0
		case c.step < 0:
			t.progressed = t.progressed || !c.below
		case f.rises < maxRises:
			f.rises++
			t.progressed = true
		}
	}
}

// traces are those of one key, by the hashes of the objects' UIDs.
type writtenObjects map[uint64]*writtenObject

// of returns the trace of an object, and whether it is new. If there are too many, the ones that were not written
// lately go first, then those that were only made, and of equal ones those with the largest hash: so what is written
// again and again in one run after the other is kept, or a sample of it. It returns nil if the new one is what has to
// go.
func (ts writtenObjects) of(id uint64, made bool, run int) (t *writtenObject, isNew bool) {
	if t, ok := ts[id]; ok {
		return t, false
	}
	t = &writtenObject{lastRun: run, created: made}
	if len(ts) >= maxWrittenObjects {
		out, worst := id, t
		for other, o := range ts {
			if o.worth(run) < worst.worth(run) || o.worth(run) == worst.worth(run) && other > out {
				out, worst = other, o
			}
		}
		if out == id {
			return nil, true
		}
		delete(ts, out)
	}
	ts[id] = t
	return t, true
}

func (t *writtenObject) worth(run int) int {
	switch {
	case run-t.lastRun > 2:
		return 0
	case t.created && t.updates == 0:
		return 1
	default:
		return 2
	}
}

// rival is an object that the controller has written, and perhaps somebody else as well.
type contestedObject struct {
	lastWrite      time.Time // when the controller wrote it
	touchedByOther bool      // somebody else has written it since
	rounds         int       // how often the controller has written what somebody else had touched
	reverts        int       // how often it has thereby set a field to the value that it had given it before
	fields         []heldField
}

// claimed is a field that the controller has written.
type heldField struct {
	path, value uint64
	undone      bool // somebody else has given it another value since
}

// hold is told what an own write has changed. It reports whether it has brought back what somebody else had undone.
func (r *contestedObject) ownChanges(changes []change) (again bool) {
	for _, c := range changes {
		i := slices.IndexFunc(r.fields, func(f heldField) bool { return f.path == c.path })
		switch {
		case i >= 0:
			again = again || r.fields[i].undone && r.fields[i].value == c.now
			r.fields[i] = heldField{path: c.path, value: c.now}
		case len(r.fields) < maxFieldsKept:
			r.fields = append(r.fields, heldField{path: c.path, value: c.now})
		}
	}
	return again
}

// undo is told what somebody else has changed. It reports whether that was nothing but what the controller had written.
func (r *contestedObject) otherChanges(changes []change) (only bool) {
	only = true
	for _, c := range changes {
		i := slices.IndexFunc(r.fields, func(f heldField) bool { return f.path == c.path && f.value == c.old })
		if i < 0 {
			only = false
			continue
		}
		r.fields[i].undone = true
	}
	return only
}

// rivals are those of one controller, by the hashes of their UIDs.
type contestedObjects struct {
	byUID map[uint64]*contestedObject
	ring  []uint64 // the same, in the order in which they came
	next  int      // the place in the ring that is given away next
}

// find returns the rival of that UID, or nil.
func (rs *contestedObjects) find(t *keyHistory, v writeID) *contestedObject {
	if len(rs.byUID) == 0 {
		return nil
	}
	return rs.byUID[t.hashUID(v)]
}

// wrote takes note of an own write.
func (rs *contestedObjects) noteWrite(id uint64, now time.Time) {
	r, ok := rs.byUID[id]
	if !ok {
		r = &contestedObject{}
		rs.add(id, r, now)
	}
	patience := contestWindow
	if r.reverts > hotAfter {
		patience = slowContestWindow // both of the two may be resting
	}
	if now.Sub(r.lastWrite) > patience {
		*r = contestedObject{}
	}
	if r.touchedByOther {
		r.touchedByOther = false
		r.rounds++
	}
	r.lastWrite = now
}

// add gives a new one a place. One that somebody else keeps writing, too, is passed over a few times.
func (rs *contestedObjects) add(id uint64, r *contestedObject, now time.Time) {
	if rs.byUID == nil {
		rs.byUID = make(map[uint64]*contestedObject)
	}
	rs.byUID[id] = r
	if len(rs.ring) < maxContested {
		rs.ring = append(rs.ring, id)
		return
	}
	for range 8 {
		old := rs.byUID[rs.ring[rs.next]]
		if old.rounds == 0 || now.Sub(old.lastWrite) > slowContestWindow {
			break
		}
		rs.next = (rs.next + 1) % maxContested
	}
	delete(rs.byUID, rs.ring[rs.next])
	rs.ring[rs.next] = id
	rs.next = (rs.next + 1) % maxContested
}
