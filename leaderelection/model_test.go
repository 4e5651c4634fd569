package leaderelection

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The model: one server record, a few electors, what they have in flight, and clocks that drift; and an adversary, who
// chooses what happens next: time passes, a message arrives, is lost or is given up, somebody sends, crashes, restarts,
// or edits the Lease by hand. explore visits every state that can be reached and checks in each that at most one
// elector works (I15), that a release is only ever applied for work that has ended (I16), that nobody's record is
// replaced before it stood for the full wait (I17), and that somebody leads in time once the adversary has had enough
// (I18).
//
// What makes the model finite: all times are relative and stop counting where they stop mattering, and of a
// resourceVersion it is only kept whether it is still the current one, for a version that was replaced never comes
// back.
//
// What a challenger does with what it sees is not written down a second time here: the model asks observation.wait.

// Durations, in ticks of true time. An elector's clock may be one tick ahead or behind at any moment, so each duration
// comes out wrong by one tick at most: drift 1 in 4. (deadline + grace) + 1 <= duration - 1 is the checked inequality.
//
// An elector may be configured with durations of its own, longer ones.
const (
	mDeadline     = 2
	mGrace        = 1
	mDuration     = 5
	mLongDeadline = 3
	mLongDuration = 6
)

// Who the Lease names, in the server or as an elector saw it.
const (
	nobody   = iota // released
	absent          // deleted, or never there
	stranger        // a crashed process, or what somebody wrote by hand
	first           // first+i is elector i, by a claim of its own
)

type phase uint8

const (
	down       phase = iota
	challenger       // campaigns
	leading          // works
	stopping         // still works, its tenure lost
	releasing        // has stopped
)

type kindOf uint8

const (
	none kindOf = iota
	get
	write // take, renew or release: to whom the Lease is to belong is in names
)

// A message is on its way to the server, or back.
type message struct {
	kind     kindOf
	answered bool  // of a get always: when it was asked does not matter, only when the answer was read
	failed   bool  // the answer says conflict
	current  bool  // a write: its precondition holds; an answer: it shows what is there now
	creates  bool  // a write: its precondition is that there is no Lease, which has no version
	names    uint8 // a write: the holder that it writes; the answer of a get: the holder that it found
	long     bool  // and whether that record asks for the longer duration
	age      uint8 // the sender's clock since it was sent, up to its deadline
}

type model struct {
	phase   phase
	ahead   bool    // its clock is one tick ahead
	long    bool    // its durations are the longer ones
	longest bool    // it remembers that a holder has asked for the longer duration
	knows   bool    // it has seen the present tenure, if that is of the longer duration: see hidden
	seen    bool    // it knows a state of the Lease
	names   uint8   // what it saw, if seen
	asks    bool    // and whether that record asks for the longer duration
	current bool    // and whether that is what is there now: for a leader, whether the version it holds is
	follows bool    // if it is not: whether only metadata have changed since, of which the watch is about to tell
	age     uint8   // its clock since it saw it, up to its wait; stopping: since it lost; leading: since it sent
	asked   message // the request that it waits for
	stray   message // a write that it does not wait for any more
}

type state struct {
	holder uint8
	long   bool  // the record asks for the longer duration
	stood  uint8 // true time since the last write, up to mDuration
	faults uint8 // how many the adversary has left: losses of answers, crashes, edits
	e      [3]model
}

// A rules value is the protocol to explore. The zero value is ours; each field is a bug.
type rules struct {
	electors      int
	faults        int
	unequal       bool   // the first elector has the longer durations
	keepsAge      bool   // a record of the same holder keeps its age, though nobody has told of what came between
	forgets       bool   // a duration is forgotten with the record that asked for it
	fromAnswer    bool   // the tenure counts from the answer
	releaseFirst  bool   // the Lease is released when the work is told to stop, not when it has
	lookFromSend  bool   // a challenger counts from when it asked
	takeAbsent    bool   // an absent Lease is taken at once
	waitForAbsent bool   // an absent Lease is taken after a wait, as if it could stand unchanged
	takeWiped     bool   // a Lease without a holder is taken at once, however it came to be
	reviveLate    bool   // an answer after the deadline brings the tenure back
	blindRelease  bool   // release is not conditional
	shortWait     bool   // LeaseDuration does not cover StopGrace
	neverTake     bool   // a Lease that names somebody is not taken, however long it has stood
	only          string // the invariant to look for; empty: all of them
}

// A sight is all that a challenger's wait depends on.
type sight struct {
	names               uint8 // first stands for itself, and first+1 for every other
	long, asks, longest bool
}

func (r rules) wait(s sight) int {
	o := observation{known: true}
	holder, cfg := "x", Config{}.withDefaults()
	duration := func(long bool) time.Duration {
		if long {
			return 18 * time.Second
		}
		return 15 * time.Second
	}
	cfg.LeaseDuration = duration(s.long)
	if s.longest && !r.forgets {
		o.longest = duration(true)
	}
	switch {
	case s.names == absent:
		if !r.waitForAbsent {
			return 0
		}
		return mDuration
	case s.names == nobody:
		o.lease = released(&coordinationv1.Lease{}, time.Unix(0, 0))
	default:
		o.mine = s.names == first
		o.lease = acquired(nil, metav1.ObjectMeta{}, holder, duration(s.asks), time.Unix(0, 0))
		if r.takeWiped && s.names == stranger {
			return 0
		}
	}
	wait := o.wait(cfg)
	switch {
	case wait == 0:
		return 0
	case r.shortWait:
		return mDuration - mGrace - 1
	case r.neverTake:
		return math.MaxInt
	case wait > duration(false):
		return mLongDuration
	}
	return mDuration
}

// waits has what rules.wait says to everything that there is to see.
type waits map[sight]int

func (r rules) waits() waits {
	all := waits{}
	for i := range 5 * 8 {
		s := sight{names: uint8(i / 8), long: i&1 > 0, asks: i&2 > 0, longest: i&4 > 0}
		all[s] = r.wait(s)
	}
	return all
}

func (w waits) of(e model, i int) int {
	s := sight{names: e.names, long: e.long, asks: e.asks, longest: e.longest}
	if e.names >= first {
		s.names = first + 1
		if int(e.names) == first+i {
			s.names = first
		}
	}
	return w[s]
}

func (m model) works() bool { return m.phase == leading || m.phase == stopping }

func (m model) deadline() uint8 {
	if m.long {
		return mLongDeadline
	}
	return mDeadline
}

// remembers notes what a look has shown.
func (m *model) remembers(i int, seen message) {
	switch {
	case seen.names == nobody, int(seen.names) == first+i:
		m.longest = false
	case seen.long:
		m.longest = true
	}
	m.knows = m.knows || seen.long && seen.current
}

// hidden reports whether an elector with the longer durations works, or is about to, without a record that says so. Who
// has not seen the record cannot know, which is why the adversary starts nobody with the shorter ones then, and hides
// no record from those who have not seen it yet: that is the one case that a Lease cannot guard against.
func (s state) hidden() bool {
	for i, e := range s.e {
		claimed := e.asked.kind == write && e.asked.answered && !e.asked.failed && int(e.asked.names) == first+i
		if e.long && (e.works() || claimed) && !(s.long && int(s.holder) == first+i) {
			return true
		}
	}
	return false
}

func (s state) unaware() bool {
	for i, e := range s.e {
		if s.long && s.holder >= first && int(s.holder) != first+i && e.phase != down && !e.long && !e.knows {
			return true
		}
	}
	return false
}

// explore returns how many states there are, and the shortest history that breaks an invariant, if there is one.
func explore(r rules) (states int, history []string) {
	waits := r.waits()
	type step struct {
		from state
		what string
	}
	start := state{holder: nobody, stood: mDuration, faults: uint8(r.faults)}
	for i := range r.electors {
		start.e[i].phase = challenger
		start.e[i].long = r.unequal && i == 0
	}
	came := map[state]step{start: {}}
	queue := []state{start}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		broken := ""
		visit := func(next state, what string, args ...any) {
			next = canonical(next, r)
			if _, known := came[next]; known {
				return
			}
			came[next] = step{at, fmt.Sprintf(what, args...)}
			queue = append(queue, next)
			workers := 0
			for _, e := range next.e {
				if e.works() {
					workers++
				}
			}
			switch {
			case workers > 1 && strings.HasPrefix("I15", r.only):
				broken = "I15: two work"
			case strings.HasPrefix("I18", r.only) && !progresses(next, r, waits):
				broken = "I18: nobody leads though all could"
			}
			if broken != "" && history == nil {
				for s := next; s != start; s = came[s].from {
					history = append(history, came[s].what)
				}
				slices.Reverse(history)
				history = append(history, broken)
			}
		}
		successors(at, r, waits, visit, &broken)
		if history != nil {
			break
		}
	}
	return len(came), history
}

// canonical forgets what makes no difference, so that states that can only go on alike are one state: an observation
// that is out of date (a take that is based on it fails), a write whose precondition is broken, an answer that says
// nothing new, and the order of the electors.
func canonical(s state, r rules) state {
	n := r.electors
	if s.holder < stranger {
		s.stood = mDuration
	}
	for i := range n {
		e := &s.e[i]
		e.stray.age = 0
		blind := func(m message) bool { return r.blindRelease && m.names == nobody }
		if e.stray.kind == write && !e.stray.current && !e.stray.creates && !blind(e.stray) {
			e.stray = message{}
		}
		switch m := &e.asked; {
		case m.kind == write && (!m.answered && !m.current && !m.creates && !blind(*m) || m.answered && m.failed),
			m.kind == get && !m.current && (e.phase == challenger || int(m.names) == first+i),
			e.phase == down || e.phase == stopping && m.kind == get:
			*m = message{}
		case e.phase == releasing:
			m.age = 0
		}
		if e.phase == challenger && (!e.seen || !e.current && !e.follows && !r.keepsAge) {
			e.seen, e.current, e.names, e.asks, e.age = false, false, 0, false, 0
		}
		if e.phase != challenger || !e.seen || e.current {
			e.follows = false
		}
		if e.long || e.phase == down { // it waits as long in any case, or forgets
			e.longest, e.knows = false, false
		}
		e.knows = e.knows && s.long && s.holder >= first
		if e.phase == releasing && !e.current && e.asked.kind == none && !r.blindRelease {
			again(e)
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compare(s, a, b) })
	moved := [6]uint8{nobody, absent, stranger}
	for to, from := range order {
		moved[first+from] = uint8(first + to)
	}
	next := s
	next.holder = moved[s.holder]
	for to, from := range order {
		e := s.e[from]
		e.names, e.asked.names, e.stray.names = moved[e.names], moved[e.asked.names], moved[e.stray.names]
		next.e[to] = e
	}
	return next
}

func compare(s state, a, b int) int {
	x, y := key(s, a), key(s, b)
	return slices.Compare(x[:], y[:])
}

// key describes an elector without the others' numbers, as far as that goes: two keys may be equal though the electors
// differ, which only makes a few states count twice.
func key(s state, i int) [16]uint8 {
	e := s.e[i]
	own := func(n uint8) uint8 {
		switch {
		case n < first:
			return n
		case int(n) == first+i:
			return first
		}
		return first + 1
	}
	b := func(v bool) uint8 {
		if v {
			return 1
		}
		return 0
	}
	m := func(m message) (uint8, uint8) {
		flags := b(m.creates)<<7 | uint8(m.kind)<<5 | b(m.answered)<<4 | b(m.failed)<<3 | b(m.current)<<2
		return flags | m.age, own(m.names) | b(m.long)<<7
	}
	a1, a2 := m(e.asked)
	s1, s2 := m(e.stray)
	more := b(e.knows)<<4 | b(e.long)<<3 | b(e.longest)<<2 | b(e.asks)<<1 | b(e.follows)
	return [16]uint8{
		own(s.holder), uint8(e.phase), b(e.ahead), b(e.seen), own(e.names), b(e.current), e.age, a1, a2, s1, s2, more,
	}
}

// successors calls visit for each thing that can happen next.
func successors(s state, r rules, waits waits, visit func(state, string, ...any), broken *string) {
	// Time passes. Each clock advances by one, or makes up or loses a tick.
	for drift := range 1 << r.electors {
		next, possible := s, true
		next.stood = min(s.stood+1, mDuration)
		for i := range r.electors {
			e := &next.e[i]
			by := uint8(1)
			if drift>>i&1 == 1 {
				if e.phase == down {
					possible = false
					break
				}
				e.ahead = !e.ahead
				by = 0
				if e.ahead {
					by = 2
				}
			}
			pass(e, by)
		}
		if possible {
			visit(next, "tick %b", drift)
		}
	}
	for i := range r.electors {
		e := s.e[i]
		change := func(what string, f func(s *state, e *model)) {
			next := s
			f(&next, &next.e[i])
			visit(next, what+" %d", i)
		}
		fault := func(what string, f func(s *state, e *model)) {
			if s.faults > 0 {
				change(what, func(s *state, e *model) { s.faults--; f(s, e) })
			}
		}
		// What is in flight arrives, is given up, or is lost.
		if e.asked.kind != none && !e.asked.answered {
			change("arrive", func(s *state, e *model) { *broken = apply(s, r, i, &e.asked) })
			*broken = ""
		}
		if e.stray.kind != none {
			change("arrive late", func(s *state, e *model) {
				*broken = apply(s, r, i, &e.stray)
				e.stray = message{}
			})
			*broken = ""
			change("lost", func(s *state, e *model) { e.stray = message{} })
		}
		if e.asked.kind != none {
			if e.asked.answered {
				change("answer", func(s *state, e *model) { answered(s, r, i) })
			}
			fault("give up", func(s *state, e *model) {
				if e.asked.kind == write && !e.asked.answered {
					e.stray = e.asked
				}
				e.asked = message{}
			})
		}
		// The elector acts.
		switch e.phase {
		case down:
			if e.long || !s.hidden() {
				fault("restart", func(s *state, e *model) {
					*e = model{phase: challenger, long: e.long,
						stray: e.stray}
				})
			}
		case challenger:
			if e.follows {
				change("event", func(s *state, e *model) { e.current, e.follows = true, false })
			}
			if e.asked.kind == none {
				change("look", look)
				if e.seen && int(e.age) >= waits.of(e, i) {
					change("take", func(s *state, e *model) { take(r, i, e) })
				}
			}
		case leading:
			if e.asked.kind == none {
				change("renew", func(s *state, e *model) {
					e.asked = message{kind: write, current: e.current, names: uint8(first + i), long: e.long}
				})
				change("check", look)
			}
			change("work done", func(s *state, e *model) { end(e) })
			if r.releaseFirst && e.asked.kind == none {
				change("release first", func(s *state, e *model) {
					asked := message{kind: write, current: e.current, names: nobody}
					*e = model{phase: stopping, ahead: e.ahead, long: e.long, stray: e.stray, asked: asked}
				})
			}
		case stopping:
			change("work done", func(s *state, e *model) { end(e) })
		case releasing:
			if e.asked.kind == none {
				change("release", func(s *state, e *model) { release(e) })
				change("do not release", func(s *state, e *model) { again(e) })
			}
		}
		if e.phase != down {
			fault("crash", func(s *state, e *model) {
				if e.asked.kind == write && !e.asked.answered {
					e.stray = e.asked
				}
				stray := e.stray
				if int(stray.names) == first+i {
					stray.names = stranger // it will come back under another name
				}
				*e = model{phase: down, long: e.long, stray: stray}
				if int(s.holder) == first+i {
					s.holder = stranger
				}
				for j := range s.e {
					if o := &s.e[j]; j != i {
						for _, names := range []*uint8{&o.names, &o.asked.names} {
							if int(*names) == first+i {
								*names = stranger
							}
						}
					}
				}
			})
		}
	}
	// Somebody edits the Lease by hand: the holder, so that it asks for the shorter duration; the duration alone; or
	// its metadata.
	if s.faults == 0 || s.unaware() {
		return
	}
	next := s
	next.faults--
	for _, to := range []uint8{absent, stranger} {
		if s.holder != to || s.long {
			next := next
			put(&next, to, false)
			visit(next, "edit to %d", to)
		}
	}
	if s.long && s.holder >= stranger {
		next := next
		put(&next, s.holder, false)
		visit(next, "edit the duration")
	}
	if s.holder != absent {
		follows := [3]bool{}
		for i, e := range next.e {
			follows[i] = e.phase == challenger && e.seen && (e.current || e.follows)
		}
		stood := next.stood
		put(&next, s.holder, s.long)
		next.stood = stood // the record has not changed
		for i := range next.e {
			next.e[i].follows = follows[i]
		}
		visit(next, "edit metadata")
	}
}

// pass moves an elector's clock on, and does what its timers do.
func pass(e *model, by uint8) {
	if e.asked.kind == write {
		e.asked.age = min(e.asked.age+by, e.deadline())
	}
	switch e.phase {
	case challenger:
		most := uint8(mDuration)
		if e.long || e.longest || e.asks {
			most = mLongDuration
		}
		e.age = min(e.age+by, most)
	case leading:
		if e.age += by; e.age >= e.deadline() { // the local timer
			late := e.age - e.deadline()
			e.phase, e.age = stopping, 0
			if late > 0 {
				pass(e, late)
			}
		}
	case stopping:
		if e.age += by; e.age >= mGrace { // it has returned, or the process is gone
			end(e)
		}
	}
}

// end is the return of the work.
func end(e *model) {
	e.phase, e.age = releasing, 0
	if e.asked.kind == write && !e.asked.answered {
		e.stray = e.asked
	}
	e.asked = message{}
}

// again makes a challenger of an elector that led.
func again(e *model) {
	*e = model{phase: challenger, ahead: e.ahead, long: e.long, longest: e.longest, knows: e.knows, stray: e.stray}
}

// put makes a new version of the Lease: every other is out of date.
func put(s *state, holder uint8, long bool) {
	s.holder, s.long, s.stood = holder, long && holder >= stranger, 0
	for i := range s.e {
		e := &s.e[i]
		e.follows = false
		e.current = e.seen && e.names == absent && e.phase == challenger // it can not tell one absence from another
		e.asked.current = e.asked.kind == get && e.asked.names == absent
		e.stray.current = false
	}
}

// apply is the server's part.
func apply(s *state, r rules, i int, m *message) (broken string) {
	ok := !m.creates && m.current || m.creates && s.holder == absent || r.blindRelease && m.names == nobody &&
		s.holder != absent
	if !ok {
		m.answered, m.failed = true, true
		return ""
	}
	if m.names == nobody && s.e[i].works() {
		broken = "I16: released under the work"
	}
	switch another := s.holder >= stranger && int(s.holder) != first+i; {
	case m.names == nobody && !m.current:
		broken = "I17: a release replaced another's record"
	case int(m.names) == first+i && another && s.stood < mDuration-1:
		broken = "I17: a take replaced another's record early"
	}
	if !strings.HasPrefix(broken, r.only) {
		broken = ""
	}
	names, long := m.names, m.long
	for j := range s.e {
		s.e[j].knows = s.e[j].knows && names == s.holder
	}
	put(s, names, long)
	m.answered, m.current = true, true
	return broken
}

// answered is the elector's part when an answer arrives.
func answered(s *state, r rules, i int) {
	e := &s.e[i]
	m := e.asked
	e.asked = message{}
	switch {
	case m.kind == get:
		switch e.phase {
		case challenger:
			// The same version keeps its age.
			if !(e.seen && (e.current && m.current || r.keepsAge) && e.names == m.names) {
				e.seen, e.names, e.asks, e.current, e.follows, e.age = true, m.names, m.long, m.current, false, 0
				e.remembers(i, m)
				if r.lookFromSend {
					e.age = 1 + uint8(mDuration-mDeadline)
				}
			}
			e.current = e.current || m.current
		case leading:
			if int(m.names) != first+i { // foreign: stop at once
				e.remembers(i, m)
				e.phase, e.age, e.current = stopping, 0, false
				return
			}
			e.current = m.current
		}
	case m.failed: // a conflict; it looks next
	case e.phase == challenger && m.names == uint8(first+i):
		e.longest = false
		if m.age >= e.deadline() && !r.fromAnswer { // too late to lead
			return
		}
		e.phase, e.age, e.current, e.seen = leading, m.age, m.current, false
		if r.fromAnswer {
			e.age = 0
		}
	case e.phase == leading:
		e.current = m.current
		if m.age < e.age {
			e.age = m.age
		}
		if r.fromAnswer {
			e.age = 0
		}
	case e.phase == stopping && r.reviveLate && m.names == uint8(first+i):
		e.phase, e.age, e.current = leading, m.age, m.current
		if m.age >= e.deadline() {
			e.age = e.deadline() - 1
		}
	case e.phase == releasing:
		again(e)
	}
}

// progresses reports whether somebody leads in time if from now on nothing goes wrong: no more faults, true clocks, and
// what is in flight arrives before the next tick. The time is that of an old tenure and the full wait. Who is down can
// do nothing about it.
func progresses(s state, r rules, waits waits) bool {
	up := func(e model) bool { return e.phase != down }
	leads := func(e model) bool { return e.phase == leading }
	for range mLongDeadline + mGrace + mLongDuration + 1 {
		for range 8 { // a release, a look and a take have two steps each, and another's may come between
			for i := range r.electors {
				calm(&s, r, i, waits)
			}
		}
		if slices.ContainsFunc(s.e[:], leads) {
			return true
		}
		s.stood = min(s.stood+1, mDuration)
		for i := range r.electors {
			pass(&s.e[i], 1)
		}
	}
	return !slices.ContainsFunc(s.e[:], up)
}

// calm lets what an elector has in flight arrive, and then the elector act.
func calm(s *state, r rules, i int, waits waits) {
	e := &s.e[i]
	if e.stray.kind != none {
		apply(s, r, i, &e.stray)
		e.stray = message{}
	}
	if e.asked.kind != none {
		if !e.asked.answered {
			apply(s, r, i, &e.asked)
		}
		answered(s, r, i)
	}
	switch e.phase {
	case challenger:
		if e.follows {
			e.current, e.follows = true, false
		}
		if !e.seen || !e.current {
			look(s, e)
		} else if int(e.age) >= waits.of(*e, i) {
			take(r, i, e)
		}
	case releasing:
		if e.current {
			release(e)
		} else {
			again(e)
		}
	}
}

// What a candidate may ask for.

func look(s *state, e *model) {
	e.asked = message{kind: get, answered: true, current: true, names: s.holder, long: s.long}
}

func take(r rules, i int, e *model) {
	e.asked = message{kind: write, current: e.current, creates: e.names == absent, names: uint8(first + i),
		long: e.long}
	if e.names == absent && !r.takeAbsent && !r.waitForAbsent {
		// One that nobody holds: to be waited for like one that somebody does.
		e.asked.names, e.asked.long = stranger, e.longest && !r.forgets
	}
	e.seen = false // it looks again before it tries again
}

func release(e *model) { e.asked = message{kind: write, current: e.current, names: nobody} }

func TestModelHasNoOverlap(t *testing.T) {
	cases := []rules{{electors: 2, faults: 2}, {electors: 2, faults: 2, unequal: true}, {electors: 3}}
	switch {
	case raceEnabled: // it has one goroutine
		cases = []rules{{electors: 2, faults: 1}, {electors: 2, faults: 1, unequal: true}}
	case soak():
		cases = append(cases,
			rules{electors: 2, faults: 6}, rules{electors: 2, faults: 4, unequal: true}, rules{electors: 3, faults: 2})
	}
	for _, r := range cases {
		begin := time.Now()
		states, history := explore(r)
		require.Empty(t, history, "%s", strings.Join(history, "\n"))
		took := time.Since(begin).Round(time.Millisecond)
		t.Logf("%d electors, %d faults, unequal %v: %d states in %v", r.electors, r.faults, r.unequal, states, took)
	}
}

func TestModelFindsEachSeededBug(t *testing.T) {
	for name, r := range map[string]rules{
		"deadline counted from the answer":      {electors: 2, faults: 1, fromAnswer: true, only: "I15"},
		"released when told to stop":            {electors: 2, releaseFirst: true, only: "I15"},
		"released before the work ended":        {electors: 2, releaseFirst: true, only: "I16"},
		"wait counted from before the look":     {electors: 2, faults: 1, lookFromSend: true, only: "I15"},
		"absent lease taken at once":            {electors: 2, faults: 1, takeAbsent: true, only: "I15"},
		"absence waited for":                    {electors: 2, faults: 3, waitForAbsent: true, only: "I15"},
		"lease without a holder taken at once":  {electors: 2, faults: 1, takeWiped: true, only: "I15"},
		"a longer duration forgotten":           {electors: 2, faults: 1, unequal: true, forgets: true, only: "I15"},
		"age kept over a gap":                   {electors: 2, keepsAge: true, only: "I15"},
		"tenure revived after its deadline":     {electors: 2, faults: 1, reviveLate: true, only: "I15"},
		"unconditional release":                 {electors: 2, faults: 2, blindRelease: true, only: "I17"},
		"LeaseDuration does not cover the stop": {electors: 2, shortWait: true, only: "I15"},
		"LeaseDuration not waited for":          {electors: 2, shortWait: true, only: "I17"},
		"crashed holder waited for without end": {electors: 2, faults: 1, neverTake: true, only: "I18"},
	} {
		t.Run(name, func(t *testing.T) {
			states, history := explore(r)
			require.NotEmpty(t, history)
			t.Logf("found after %d states: %s", states, strings.Join(history, ", "))
		})
	}
}
