package sharding

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/internal/election"
)

// A replica is the rules of one replica, without requests, goroutines or clocks: what it has seen, what it may do, and
// what it should write next. The tests explore this very code. It is one tenure long: under one name, with one Lease,
// and in one life of the table. Whoever goes on after a loss is a new replica.
type replica struct {
	// Never changed.
	name, seat string
	slices     int
	by         string // the fingerprint of Options.By
	timing     timing
	prepares   bool // it asks for slices only when [replica.prepared] has named them

	// Its own Lease, as of the last acknowledged write, and when that was sent.
	lease version
	sent  election.Instant
	over  error // why the tenure has ended; it never begins again

	// In the table.
	number  int       // zero before it has seen itself there
	life    string    // of that table
	joined  time.Time // when it saw itself there
	leaving bool      // it asks for no slices, is given none, and works on its own until others have asked for them
	ending  bool      // of one that leaves: no work begins any more
	ready   map[int]bool
	holds   map[int]*hold // the slices whose work has begun and has not been seen to be somebody else's

	// What it knows of the others.
	seen    world
	gone    map[string]time.Time // Leases that a read by name did not find, and when it has said so
	stopped map[string]bool      // replicas whose work has certainly ended
	clear   time.Time            // since when no Lease was seen of one who is not in the table, or the table is there
	longest time.Duration        // the longest duration that a Lease has recorded
}

// timing has the durations that the proof is about.
type timing struct{ lease, renewDeadline time.Duration }

// maxDuration bounds how long a Lease can make others wait, if it was edited.
const maxDuration = 5 * time.Minute

// A hold is a slice that this replica owns, or has owned.
type hold struct {
	phase phase
	epoch int64
	// heard says that what earlier owners have left was seen. From then on it is this replica that knows what the next
	// owner has to see.
	heard bool
}

type phase int

const (
	working  phase = iota // its keys may be worked on
	stopping              // no new work begins; some goes on
	ended                 // there is none
)

var (
	errLeft    = errors.New("sharding: this replica has left")
	errRemoved = errors.New("sharding: others have waited for this replica's Lease, and have removed it")
	errTable   = errors.New("sharding: the table was deleted or edited")
	errExpired = errors.New("sharding: no renewal was acknowledged in time")
	errDeleted = errors.New("sharding: this replica's Lease was deleted or edited")
	errStuck   = errors.New("sharding: work of this replica has not ended in time")
)

func newReplica(name, seat string, n int, t timing, prepares bool) *replica {
	return &replica{name: name, seat: seat, slices: n, timing: t, prepares: prepares, ready: map[int]bool{},
		holds: map[int]*hold{}, gone: map[string]time.Time{}, stopped: map[string]bool{}}
}

// remember takes over what an earlier replica of this process, whose work has ended, has learned of the others: it is
// about their Leases, and as true in this tenure as in that one. The table, and how long it was watched, it has to see
// by itself.
func remember(r, earlier *replica) {
	r.stopped, r.gone, r.longest = maps.Clone(earlier.stopped), maps.Clone(earlier.gone), earlier.longest
	r.stopped[earlier.name] = true
	r.seen.leases = maps.Clone(earlier.seen.leases)
}

// renewed notes an acknowledged write of the replica's Lease. An answer that comes after the deadline does not bring
// the tenure back.
func (r *replica) renewed(sent, now election.Instant, at version) {
	if r.lease == (version{}) || r.valid(now) {
		r.lease, r.sent = at, sent
	}
}

// left is how much of the tenure is left, counted from when the last acknowledged renewal was sent.
func (r *replica) left(now election.Instant) time.Duration {
	return election.Left(r.timing.renewDeadline, r.sent, now)
}

// valid reports whether the tenure goes on.
func (r *replica) valid(now election.Instant) bool {
	return r.over == nil && r.lease != (version{}) && r.left(now) > 0
}

// expire ends the tenure if its time is over.
func (r *replica) expire(now election.Instant) {
	if r.lease != (version{}) && r.left(now) <= 0 {
		r.lose(errExpired)
	}
}

// lose ends the tenure: all work has to stop.
func (r *replica) lose(why error) {
	if r.over == nil {
		r.over = why
	}
	for _, h := range r.holds {
		h.phase = max(h.phase, stopping)
	}
}

// leave begins the end of the tenure: the others prepare for its slices, whose work goes on until they have asked for
// them.
func (r *replica) leave() {
	r.leaving = true
	endIfDone(r)
}

// endIfDone ends the work of a replica that leaves if there is nobody to prepare for it, or all that is left to do for
// others is to end it.
func endIfDone(r *replica) {
	works := false
	for _, h := range r.holds {
		works = works || h.phase == working
	}
	if r.leaving && !(works && hasHeirs(r)) {
		r.end()
	}
}

// end lets no work begin any more. The tenure ends as soon as the work has ended, and the others know it.
func (r *replica) end() {
	r.leaving, r.ending = true, true
	for _, h := range r.holds {
		h.phase = max(h.phase, stopping)
	}
}

// hasHeirs reports whether there is somebody to have the slices of a replica that leaves.
func hasHeirs(r *replica) bool {
	t := r.seen.table
	return t != nil && slices.ContainsFunc(t.working(), func(m member) bool { return m.Number != r.number })
}

// owns reports whether the work of a slice may begin, or write, at this moment.
func (r *replica) owns(slice int, now election.Instant) bool {
	h := r.holds[slice]
	return h != nil && h.phase == working && r.valid(now)
}

// workEnded notes that the work of a slice, which was stopping, has ended.
func (r *replica) workEnded(slice int) {
	if h := r.holds[slice]; h != nil && h.phase == stopping {
		h.phase = ended
	}
}

// isIdle reports that no slice is worked on.
func isIdle(r *replica) bool {
	for _, h := range r.holds {
		if h.phase != ended {
			return false
		}
	}
	return true
}

// unheard reports whether what earlier owners of a slice have left is still to be seen, before its work begins.
func unheard(r *replica, slice int) bool {
	h := r.holds[slice]
	return h != nil && !h.heard
}

// tells returns the slices that a replica gives away by a change of the table and knows about what the next owner
// has to see: those whose work has begun here. What it has found about others stays.
func tells(r *replica, from, next *table) []int {
	if r.number == 0 {
		return nil
	}
	return slices.DeleteFunc(given(from, next, r.number), func(slice int) bool {
		return r.holds[slice] == nil || unheard(r, slice)
	})
}

// prepared notes the slices that this replica is prepared for, so that it may ask their owners for them.
func (r *replica) prepared(slices []int) {
	for _, slice := range slices {
		r.ready[slice] = true
	}
}

// observe takes in what there is to see. now is when the answer arrived.
func (r *replica) observe(seen world, now election.Instant) {
	last := r.seen
	seen = seen.after(last, now.Mono)
	for _, s := range seen.leases {
		r.longest = max(r.longest, min(time.Duration(s.seconds)*time.Second, maxDuration))
	}
	r.seen = seen
	r.follow(now)
	fresh := last.table == nil || seen.table == nil || last.table.Life != seen.table.Life
	if fresh || r.seen.outsiders(r.stopped) {
		r.clear = now.Mono
	}
	r.forget()
}

// follow does what the table says: it begins and stops the work of slices.
func (r *replica) follow(now election.Instant) {
	t := r.seen.table
	if r.over != nil {
		return
	}
	if r.number != 0 && (t == nil || t.Life != r.life) {
		r.lose(errTable)
		return
	}
	if t == nil {
		return
	}
	me, ok := t.member(r.name)
	switch {
	case !ok && r.number == 0:
		return
	case !ok && r.leaving:
		r.lose(errLeft)
		return
	case !ok:
		r.lose(errRemoved)
		return
	case r.number == 0:
		r.number, r.life, r.joined = me.Number, t.Life, now.Mono
	}
	for slice, owner := range t.Owners {
		h, mine := r.holds[slice], owner == r.number
		switch {
		case h == nil && mine && r.valid(now) && !r.leaving:
			r.holds[slice] = &hold{epoch: t.Epochs[slice]}
			delete(r.ready, slice)
		case h == nil:
		case !mine && h.phase == ended:
			delete(r.holds, slice)
		case !mine || t.Next[slice] != 0:
			h.phase = max(h.phase, stopping)
		case h.phase == ended && !r.ending:
			// Whoever has asked for it has gone. A write that would give it away, and may still be under way, was based
			// on a version of the table in which it was asked for. So that is an earlier one, and the write fails.
			*h = hold{epoch: t.Epochs[slice], heard: h.heard}
		}
	}
	endIfDone(r)
}

// forget keeps of the others only what is still there to be known.
func (r *replica) forget() {
	isPast := func(name string) bool {
		_, lease := r.seen.leases[name]
		_, member := r.seen.memberOf(name)
		return !lease && !member
	}
	maps.DeleteFunc(r.gone, func(name string, _ time.Time) bool { return isPast(name) })
	maps.DeleteFunc(r.stopped, func(name string, _ bool) bool { return isPast(name) })
}

// wait is how long the Lease of a replica has to stand unchanged, or to be gone, until its work has certainly ended.
func (r *replica) wait(m member) time.Duration {
	return max(r.timing.lease, time.Duration(m.Seconds)*time.Second)
}

// notFound notes that a read by name has not found a replica's Lease. It never comes back: a replica makes one Lease
// only, and renews that.
func (r *replica) notFound(name string, now election.Instant) {
	if _, known := r.gone[name]; !known {
		r.gone[name] = now.Mono
	}
}

// removed notes that the Lease of a replica was removed, on the condition that it is as it was for the whole wait.
func (r *replica) removed(name string) { r.stopped[name] = true }

// A step is what a replica should do next.
type step struct {
	kind   stepKind
	name   string  // of the Lease to read or to remove
	at     version // what it must be: of that Lease, or of the table to replace; zero: there is no table
	table  *table  // to write
	from   *table  // that it was made from; nil: none
	shared bool    // every replica wants the same, so one after the other tries
}

type stepKind int

const (
	nothing     stepKind = iota
	writeTable           // create the table, or replace it if it is as it was seen
	readLease            // by name, from the server: then call notFound, if it is so
	removeLease          // if it is as it was seen: then call removed
)

func (s step) String() string {
	switch s.kind {
	case writeTable:
		return fmt.Sprintf("write table, turn %d of %s", s.table.Turn, s.table.Life)
	case readLease:
		return "read " + s.name
	case removeLease:
		return "remove " + s.name
	}
	return "nothing"
}

// next returns what to do now. life is for a table that has to be made anew.
func (r *replica) next(now election.Instant, life string) step {
	if !r.seen.known || !r.valid(now) {
		return step{}
	}
	t := r.seen.table
	switch {
	case t == nil && r.leaving:
		r.lose(errLeft)
		return step{}
	case t == nil:
		return step{kind: writeTable, at: r.seen.at, shared: true,
			table: freshTable(life, r.slices).changed(func(t *table) { t.join(r.member()) })}
	case r.number == 0 && r.leaving:
		r.lose(errLeft)
		return step{}
	case r.number == 0:
		return r.write(func(t *table) { t.join(r.member()) })
	case r.leaving && isIdle(r):
		return r.write(func(t *table) { t.remove(r.name) })
	}
	if s := r.prove(now); s.kind != nothing {
		return s
	}
	if slices := r.handable(); len(slices) > 0 || unsaid(r) {
		return r.write(func(t *table) {
			if r.leaving {
				t.retire(r.number, r.ending)
			}
			t.handOver(slices)
		})
	}
	if r.leaving {
		return step{}
	}
	stopped := slices.ContainsFunc(t.Members, func(m member) bool { return r.stopped[m.Name] })
	if opens := !t.Open && r.mayOpen(now); opens || stopped || t.Open && t.free() {
		s := r.write(func(t *table) { t.Open = t.Open || opens })
		s.shared = true
		return s
	}
	if slices := r.claimable(now); len(slices) > 0 {
		return r.write(func(t *table) { t.claim(slices, r.number) })
	}
	return step{}
}

func (r *replica) member() member {
	return member{Name: r.name, Seat: r.seat, Seconds: int(r.timing.lease / time.Second), By: r.by}
}

// write is a change of the table as it was seen, and what is to be done in any case: who has stopped is removed, and
// what is free is assigned.
func (r *replica) write(change func(*table)) step {
	stopped := maps.Clone(r.stopped)
	return step{kind: writeTable, at: r.seen.at, from: r.seen.table, table: r.seen.table.changed(func(t *table) {
		for _, m := range slices.Clone(t.Members) {
			if stopped[m.Name] {
				t.remove(m.Name)
			}
		}
		change(t)
		t.assign()
	})}
}

// prove returns what is to be done to know that others have stopped: to read the Lease of a member that is not seen any
// more, and to remove one that has stood for its wait. The removal fails if it was renewed after all, and ends all
// renewals if it was not.
func (r *replica) prove(now election.Instant) step {
	for _, m := range r.seen.table.Members {
		if m.Name == r.name || r.stopped[m.Name] {
			continue
		}
		s, present := r.seen.leases[m.Name]
		since, gone := r.gone[m.Name]
		switch {
		case gone && now.Mono.Sub(since) >= r.wait(m):
			r.stopped[m.Name] = true
		case gone:
		case !present:
			return step{kind: readLease, name: m.Name}
		case now.Mono.Sub(s.since) >= r.wait(m):
			return step{kind: removeLease, name: m.Name, at: s.version, shared: true}
		}
	}
	for name, s := range r.seen.leases {
		_, isMember := r.seen.memberOf(name)
		if !isMember && name != r.name && !r.stopped[name] && now.Mono.Sub(s.since) >= r.longestWait() {
			return step{kind: removeLease, name: name, at: s.version, shared: true}
		}
	}
	return step{}
}

func (r *replica) longestWait() time.Duration { return max(r.timing.lease, r.longest) }

// mayOpen reports whether nobody can be at work under an earlier life of the table. Whoever worked then had a Lease
// when this life began. It has been seen since, and has joined this life, which nobody does who works under another; or
// it was gone before, and the wait for that is over.
func (r *replica) mayOpen(now election.Instant) bool {
	return !r.seen.outsiders(r.stopped) && now.Mono.Sub(r.clear) >= r.longestWait()
}

// unsaid reports whether this replica leaves, or ends, and the table does not say so, though others would act on it.
func unsaid(r *replica) bool {
	me, _ := r.seen.memberOf(r.name)
	return r.leaving && hasHeirs(r) && (!me.Leaving || r.ending && !me.Ending)
}

// handable returns the slices that this replica may give away now. Of the slices whose work has ended these are those
// that others have asked for, since the work of another one may begin again: only a replica that ends gives away all of
// them. One that leaves or ends also gives away those whose work has not begun, since it never will. What nobody has
// asked for stays as long as there is nobody to have it.
func (r *replica) handable() (all []int) {
	t := r.seen.table
	heirs := hasHeirs(r)
	for slice, owner := range t.Owners {
		h := r.holds[slice]
		gives := false
		switch {
		case owner != r.number:
		case h == nil:
			gives = r.leaving && heirs
		case h.phase == ended:
			gives = t.Next[slice] != 0 || r.ending && heirs
		}
		if gives {
			all = append(all, slice)
		}
	}
	return all
}

// wanted returns the slices of others that should be this replica's, and that it has not asked for. It asks no member
// that stays until it has been one for LeaseDuration: a replica that crashes again and again costs nobody a slice. One
// that leaves or ends is going to give its slices away in any case.
func (r *replica) wanted(now election.Instant) (all []int) {
	t := r.seen.table
	if t == nil || r.number == 0 || r.leaving || !r.valid(now) {
		return nil
	}
	asks := map[int]bool{} // of the owners
	for _, m := range t.Members {
		asks[m.Number] = m.Leaving || now.Mono.Sub(r.joined) >= r.timing.lease
	}
	for slice, target := range t.targets() {
		owner := t.Owners[slice]
		if target == r.number && owner != r.number && t.Next[slice] != r.number && asks[owner] {
			all = append(all, slice)
		}
	}
	return all
}

// cached returns the slices whose objects the caches of a replica should keep, of which they have some: those that
// it owns, has asked for or wants, and those that they have and nobody owns. While it is not in the table these are
// what they have. It is prepared for no other slice.
func cached(r *replica, had map[int]bool, now election.Instant) map[int]bool {
	t := r.seen.table
	if t == nil || r.number == 0 || r.over != nil {
		return had
	}
	keep := map[int]bool{}
	for slice, owner := range t.Owners {
		if owner == r.number || r.holds[slice] != nil || t.Next[slice] == r.number || owner == 0 && had[slice] {
			keep[slice] = true
		}
	}
	for _, slice := range r.wanted(now) {
		keep[slice] = true
	}
	maps.DeleteFunc(r.ready, func(slice int, _ bool) bool { return !keep[slice] })
	return keep
}

// claimable returns those of the wanted slices that this replica is prepared for.
func (r *replica) claimable(now election.Instant) []int {
	all := r.wanted(now)
	if r.prepares {
		all = slices.DeleteFunc(all, func(slice int) bool { return !r.ready[slice] })
	}
	return all
}
