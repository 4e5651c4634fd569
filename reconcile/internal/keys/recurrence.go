package keys

import (
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
)

// What the runs of a key write is remembered by hashes: of the UIDs of objects, of the names of their fields, and of
// values. Each key and each controller remembers a limited number of them. Beyond it, hot loops may go undetected, but
// memory does not grow.
const (
	maxWrittenObjects = 64                  // objects remembered for a key
	maxContested      = 1024                // objects remembered for a controller, which another writer may write, too
	maxFieldsKept     = 2 * diff.MaxChanges // fields of one object
	MaxRises          = 1000                // steps up of a number that count as progress

	// contestWindow is how long after a write its undoing by another writer makes the two a loop. When they are slowed
	// down, each in turn, it is slowContestWindow.
	contestWindow     = time.Minute
	slowContestWindow = contestWindow + 2*hotCap
)

// writtenObject is an object that a key has written in runs that only the runs before them caused.
type writtenObject struct {
	version    uint64 // the hash of the resourceVersion after the last write
	lastRun    int    // the number of the last run that wrote it
	created    bool   // by the key, and not deleted since
	updates    int    // the number of writes after its creation
	fields     []changingField
	progressed bool // a field has shown progress since a run was counted last
}

// changingField is a field that changes.
type changingField struct {
	path      uint64
	direction int8 // of an integer: 1, -1, or 0
	rises     int  // steps up in a row
}

// addChanges compares a write with the ones before it. A field that changes for the first time, a number that falls
// towards zero, and, for MaxRises steps, a number that rises are progress. Any other change of a field that has
// changed before is not, even to a value that it never had: the time of day has a new one each time.
func (t *writtenObject) addChanges(changes []diff.Change) {
	first := t.fields == nil
	for _, c := range changes {
		i := slices.IndexFunc(t.fields, func(f changingField) bool { return f.path == c.Path })
		if i < 0 {
			if len(t.fields) < maxFieldsKept {
				t.fields = append(t.fields, changingField{path: c.Path, direction: c.Step})
				t.progressed = t.progressed || !first
			}
			continue
		}
		f := &t.fields[i]
		switch {
		case c.Step == 0 || c.Step != f.direction:
			f.direction, f.rises = c.Step, 0
		case c.Step < 0:
			t.progressed = t.progressed || !c.Below
		case f.rises < MaxRises:
			f.rises++
			t.progressed = true
		}
	}
}

// writtenObjects are those of one key, by the hashes of their UIDs.
type writtenObjects map[uint64]*writtenObject

// of returns the entry of an object, and whether it is new. If there are too many, objects go that were not written
// lately, then those that were only created, and among equals the one with the largest hash: so the objects that each
// run writes stay, or a sample of them. It returns nil if the new object is the one to go.
func (ws writtenObjects) of(id uint64, created bool, run int) (t *writtenObject, isNew bool) {
	if t, ok := ws[id]; ok {
		return t, false
	}
	t = &writtenObject{lastRun: run, created: created}
	if len(ws) >= maxWrittenObjects {
		out, worst := id, t
		for other, o := range ws {
			if o.worth(run) < worst.worth(run) || o.worth(run) == worst.worth(run) && other > out {
				out, worst = other, o
			}
		}
		if out == id {
			return nil, true
		}
		delete(ws, out)
	}
	ws[id] = t
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

// contestedObject is an object that the controller has written, and that another writer may write, too.
type contestedObject struct {
	lastWrite      time.Time // when the controller wrote it
	touchedByOther bool      // another writer has written it since
	rounds         int       // writes by the controller after one by another writer
	reverts        int       // of these, how many set a field to a value that the other had undone
	fields         []setField
}

// setField is a field that the controller has set.
type setField struct {
	path, value uint64
	undone      bool // another writer has changed it since
}

// ownChanges takes what an own write has changed. It reports whether the write brought back what another writer had
// undone.
func (r *contestedObject) ownChanges(changes []diff.Change) (again bool) {
	for _, c := range changes {
		i := slices.IndexFunc(r.fields, func(f setField) bool { return f.path == c.Path })
		switch {
		case i >= 0:
			again = again || r.fields[i].undone && r.fields[i].value == c.Now
			r.fields[i] = setField{path: c.Path, value: c.Now}
		case len(r.fields) < maxFieldsKept:
			r.fields = append(r.fields, setField{path: c.Path, value: c.Now})
		}
	}
	return again
}

// otherChanges takes what another writer has changed, and reports whether that only undoes what the controller has
// set.
func (r *contestedObject) otherChanges(changes []diff.Change) (only bool) {
	only = true
	for _, c := range changes {
		i := slices.IndexFunc(r.fields, func(f setField) bool { return f.path == c.Path && f.value == c.Old })
		if i < 0 {
			only = false
			continue
		}
		r.fields[i].undone = true
	}
	return only
}

// contestedObjects are those of one controller, by the hashes of their UIDs.
type contestedObjects struct {
	byUID map[uint64]*contestedObject
	ring  []uint64 // the same, in the order in which they were added
	next  int      // the index in the ring of the next one to be replaced
}

// find returns the object of that UID, or nil.
func (rs *contestedObjects) find(l *loops, v WriteID) *contestedObject {
	if len(rs.byUID) == 0 {
		return nil
	}
	return rs.byUID[l.hashUID(v)]
}

// noteWrite records an own write.
func (rs *contestedObjects) noteWrite(id uint64, now time.Time) {
	r, ok := rs.byUID[id]
	if !ok {
		r = &contestedObject{}
		rs.add(id, r, now)
	}
	window := contestWindow
	if r.reverts > HotAfter {
		window = slowContestWindow // both writers may be resting
	}
	if now.Sub(r.lastWrite) > window {
		*r = contestedObject{}
	}
	if r.touchedByOther {
		r.touchedByOther = false
		r.rounds++
	}
	r.lastWrite = now
}

// add adds an object, and drops an old one if there are too many. Objects that another writer keeps writing, too, are
// passed over, at most eight of them.
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
