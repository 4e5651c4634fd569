package reconcile

import (
	"slices"
	"time"
)

// What a key that may go in circles has written is remembered by hashes: of the UIDs of objects, of the names of their
// fields, and of values. How many are kept has a limit, for each key and for each controller; past it the detector
// knows less, and takes up no more room.
const (
	maxTraces = 64             // objects that a key has written
	maxClimb  = 1000           // steps that a rising number may take before it counts as one that never ends
	maxRivals = 1024           // objects that a controller has written, and somebody else perhaps
	maxPaths  = 2 * maxChanges // fields of one object
	rivalry   = time.Minute    // how long after a write somebody else may undo it for the two to be a circle
	// how far a key goes in a circle before each of its writes is looked at field by field
	wary      = hotAfter / 2
	hotSoon   = hotFloor / 10      // a RequeueAfter below this is one of nearly nothing
	forgotten = 2 * hotCap         // after that long without a run nothing is known of a key any more
	keepsPace = rivalry + 2*hotCap // the same for two that are slowed down: each rests after the other
)

// trace is what is known of one object that the key has written in a row of runs that nobody else has brought about.
type trace struct {
	version uint64 // the hash of what the last write has made it
	run     int    // the number of the last run that wrote it
	made    bool   // by the key itself, and not deleted since
	updates int    // how often it was written, its creation aside
	fields  []moving
	moved   bool // there has been progress in them since the last verdict
}

// moving is a field that changes.
type moving struct {
	path   uint64
	step   int8 // which way an integer moves
	climbs int  // how often it has risen in a row
}

// look compares a write with the ones before it. There is progress in fields that have not changed before, in numbers
// that fall towards zero, and, for a while, in those that rise. A field that changes again in any other way is none,
// whatever its new value is: the time of day has a new one each time.
func (t *trace) look(changes []change) {
	first := t.fields == nil
	for _, c := range changes {
		i := slices.IndexFunc(t.fields, func(f moving) bool { return f.path == c.path })
		if i < 0 {
			if len(t.fields) < maxPaths {
				t.fields = append(t.fields, moving{path: c.path, step: c.step})
				t.moved = t.moved || !first
			}
			continue
		}
		f := &t.fields[i]
		switch {
		case c.step == 0 || c.step != f.step:
			f.step, f.climbs = c.step, 0
		case c.step < 0:
			t.moved = t.moved || !c.below
		case f.climbs < maxClimb:
			f.climbs++
			t.moved = true
		}
	}
}

// traces are those of one key, by the hashes of the objects' UIDs.
type traces map[uint64]*trace

// of returns the trace of an object, and whether it is new. If there are too many, the ones that were not written
// lately go first, then those that were only made, and of equal ones those with the largest hash: so what is written
// again and again in one run after the other is kept, or a sample of it. It returns nil if the new one is what has to
// go.
func (ts traces) of(id uint64, made bool, run int) (t *trace, isNew bool) {
	if t, ok := ts[id]; ok {
		return t, false
	}
	t = &trace{run: run, made: made}
	if len(ts) >= maxTraces {
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

func (t *trace) worth(run int) int {
	switch {
	case run-t.run > 2:
		return 0
	case t.made && t.updates == 0:
		return 1
	default:
		return 2
	}
}

// rival is an object that the controller has written, and perhaps somebody else as well.
type rival struct {
	last    time.Time // when the controller wrote it
	touched bool      // somebody else has written it since
	rounds  int       // how often the controller has written what somebody else had touched
	fights  int       // how often it has thereby set a field to the value that it had given it before
	fields  []claimed
}

// claimed is a field that the controller has written.
type claimed struct {
	path, value uint64
	undone      bool // somebody else has given it another value since
}

// hold is told what an own write has changed. It reports whether it has brought back what somebody else had undone.
func (r *rival) hold(changes []change) (again bool) {
	for _, c := range changes {
		i := slices.IndexFunc(r.fields, func(f claimed) bool { return f.path == c.path })
		switch {
		case i >= 0:
			again = again || r.fields[i].undone && r.fields[i].value == c.now
			r.fields[i] = claimed{path: c.path, value: c.now}
		case len(r.fields) < maxPaths:
			r.fields = append(r.fields, claimed{path: c.path, value: c.now})
		}
	}
	return again
}

// undo is told what somebody else has changed. It reports whether that was nothing but what the controller had written.
func (r *rival) undo(changes []change) (only bool) {
	only = true
	for _, c := range changes {
		i := slices.IndexFunc(r.fields, func(f claimed) bool { return f.path == c.path && f.value == c.old })
		if i < 0 {
			only = false
			continue
		}
		r.fields[i].undone = true
	}
	return only
}

// rivals are those of one controller, by the hashes of their UIDs.
type rivals struct {
	of   map[uint64]*rival
	ring []uint64 // the same, in the order in which they came
	next int      // the place in the ring that is given away next
}

// find returns the rival of that UID, or nil.
func (rs *rivals) find(t *trail, v echo) *rival {
	if len(rs.of) == 0 {
		return nil
	}
	return rs.of[t.id(v)]
}

// wrote takes note of an own write.
func (rs *rivals) wrote(id uint64, now time.Time) {
	r, ok := rs.of[id]
	if !ok {
		r = &rival{}
		rs.add(id, r, now)
	}
	patience := rivalry
	if r.fights > hotAfter {
		patience = keepsPace // both of the two may be resting
	}
	if now.Sub(r.last) > patience {
		*r = rival{}
	}
	if r.touched {
		r.touched = false
		r.rounds++
	}
	r.last = now
}

// add gives a new one a place. One that somebody else keeps writing, too, is passed over a few times.
func (rs *rivals) add(id uint64, r *rival, now time.Time) {
	if rs.of == nil {
		rs.of = make(map[uint64]*rival)
	}
	rs.of[id] = r
	if len(rs.ring) < maxRivals {
		rs.ring = append(rs.ring, id)
		return
	}
	for range 8 {
		old := rs.of[rs.ring[rs.next]]
		if old.rounds == 0 || now.Sub(old.last) > keepsPace {
			break
		}
		rs.next = (rs.next + 1) % maxRivals
	}
	delete(rs.of, rs.ring[rs.next])
	rs.ring[rs.next] = id
	rs.next = (rs.next + 1) % maxRivals
}
