package sharding

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/internal/election"
)

// The model: a server with the Leases and the table, a few processes, what they have in flight, and clocks that drift;
// and an adversary, who chooses what happens next: time passes, a request arrives, its answer does or is given up, a
// process looks, acts, renews, crashes, restarts or leaves, and somebody deletes or edits objects by hand. The rules of
// the processes are not written down here a second time: each has a replica of the package.
//
// With rules.words the work of a slice begins by a move of its own, and writes. Whoever gives a slice away leaves word
// of what was written there last, and whoever opens one has to find that word, or none: then it would list.
//
// explore visits every state that can be reached with so many faults, and wander takes random ways with more of all. In
// each state no two processes work on one slice; from the states that are tried, all slices are worked on once there
// are no more faults.

// Durations, in ticks of true time. A clock may be one tick ahead or behind at any moment, so each duration comes out
// wrong by one tick at most. (deadline + grace) + 1 <= duration - 1 is the inequality that New checks.
const (
	mDeadline = 3
	mGrace    = 1
	mDuration = 6
)

// A rules value has the bugs to plant. The zero value is what the package does.
type rules struct {
	processes, slices, faults int
	prepares                  bool
	// fine lets a request, an answer and a look take their time, each for itself. Else each is one step, unless a fault
	// comes between: that has fewer states, so the search goes deeper. slowLooks and slowRenewals are fine in part.
	fine, slowLooks, slowRenewals bool
	words                         bool     // slices are opened, written to, and handed over with a word
	ahead                         bool     // the owner's clock is ahead at the start
	only                          []string // how the names of the moves begin that are tried; nil: all

	fromAnswer    bool // the tenure counts from the answer
	reviveLate    bool // the tenure begins anew with an answer after the deadline
	shortWait     bool // LeaseDuration does not cover the stop
	lookFromSend  bool // others are waited for from when they were asked about
	blindRemoval  bool // a Lease is removed although it was renewed
	blindWrite    bool // a table is written although it has changed
	releaseFirst  bool // a slice is handed over when its work is told to stop
	goneAtOnce    bool // who has no Lease is taken to have stopped
	openAtOnce    bool // a new table is opened without the wait
	ignoreOutside bool // Leases that the table does not have are not waited for
	staleTable    bool // an old table is believed
	otherLife     bool // work goes on under another life of the table
	believeEdits  bool // an edited table is believed
	nobodyRemoves bool // nobody is ever found to have stopped
	keepsWords    bool // who gives a slice away leaves the word that it has found, if there is one
	trustsDead    bool // the word about a slice outlasts an owner who has died
	speaksUnheard bool // who has not opened a slice leaves a word of its own
	losesWords    bool // who writes the table leaves all words out
	resumes       bool // who ends begins again with a slice that nobody asks for
	givesUnasked  bool // who leaves, and would begin again, gives away what nobody asks for
}

// A process is one replica and its surroundings.
type process struct {
	r       *replica // nil: it is down
	old     *replica // the one before, whose work has ended, until this one starts
	names   int
	clock   int
	ahead   bool
	tried   version     // of its Lease, to renew
	work    map[int]int // slices that are worked on, and for how long after the loss of the tenure
	knows   map[int]int // of slices that it has opened: the write that it made there
	look    *world      // an answer under way, of a look
	looked  int         // when that was asked for
	asked   *request
	renewal *request
	strays  []*request
}

type request struct {
	renews  bool
	step    step
	name    string // for a renewal
	at      version
	sent    int
	arrived bool
	ok      bool
	exists  bool
	now     version // of the Lease or table, after it has arrived
	me      int     // the number of who writes the table
	ours    []int   // slices that this gives away with a word
}

type modelState struct {
	versions int
	lives    int
	table    *table // nil with a version: edited
	tableAt  version
	leases   map[string]version
	p        []*process
	faults   int

	writes int    // how many there were
	wrote  []int  // of each slice: the last
	told   []bool // of each slice: its last owner has left a word
	wrong  string // what is wrong with a word; empty: nothing
}

func (s *modelState) clone() *modelState {
	c := *s
	c.leases = maps.Clone(s.leases)
	c.wrote, c.told = slices.Clone(s.wrote), slices.Clone(s.told)
	c.p = make([]*process, len(s.p))
	for i, p := range s.p {
		q := *p
		q.work, q.knows = maps.Clone(p.work), maps.Clone(p.knows)
		q.r = cloneReplica(p.r)
		q.look, q.asked, q.renewal = cloned(p.look), cloned(p.asked), cloned(p.renewal)
		q.strays = slices.Clone(p.strays) // never changed
		c.p[i] = &q
	}
	return &c
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func cloneReplica(r *replica) *replica {
	if r == nil {
		return nil
	}
	c := *r
	c.ready, c.gone, c.stopped = maps.Clone(r.ready), maps.Clone(r.gone), maps.Clone(r.stopped)
	c.holds = map[int]*hold{}
	for slice, h := range r.holds {
		c.holds[slice] = cloned(h)
	}
	c.seen.leases = maps.Clone(r.seen.leases)
	return &c
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(clock int) election.Instant {
	t := epoch.Add(time.Duration(clock) * time.Second)
	return election.Instant{Mono: t, Wall: t}
}

func (p *process) now() election.Instant { return at(p.clock) }

func (s *modelState) version(uid string) version {
	s.versions++
	return version{uid, strconv.Itoa(s.versions)}
}

func (s *modelState) life() string {
	s.lives++
	return fmt.Sprint(s.lives)
}

func (s *modelState) start(ru rules, i int) {
	p := s.p[i]
	p.names++
	name := fmt.Sprintf("%c%d", 'a'+i, p.names)
	t := timing{lease: mDuration * time.Second, renewDeadline: mDeadline * time.Second}
	if ru.shortWait {
		t.lease = mDeadline * time.Second
	}
	p.r = newReplica(name, string(rune('a'+i)), ru.slices, t, ru.prepares)
	if p.old != nil {
		remember(p.r, p.old)
	}
	p.tried = s.version(name)
	s.leases[name] = p.tried
	p.r.renewed(p.now(), p.now(), p.tried)
	p.look, p.asked, p.renewal, p.old, p.knows = nil, nil, nil, nil, map[int]int{}
}

// follow lets the work of a process be what its replica says.
func (p *process) follow(ru rules) {
	for slice, h := range p.r.holds {
		if _, works := p.work[slice]; !works && !ru.words && p.r.owns(slice, p.now()) {
			p.work[slice] = 0
		}
		if ru.releaseFirst && h.phase == stopping && p.r.over == nil {
			h.phase = ended // the work goes on
		}
		if _, works := p.work[slice]; !works {
			p.r.workEnded(slice)
		}
	}
}

// world is what a list shows.
func (s *modelState) world(ru rules) *world {
	w := &world{known: true, table: s.table, at: s.tableAt, leases: map[string]sight{}}
	for name, v := range s.leases {
		if _, ok := memberIn(s.table, name); ru.ignoreOutside && !ok {
			continue
		}
		w.leases[name] = sight{version: v, seconds: mDuration}
	}
	return w
}

func memberIn(t *table, name string) (member, bool) {
	if t == nil {
		return member{}, false
	}
	return t.member(name)
}

func (p *process) observe(ru rules, w *world, when election.Instant) {
	if ru.staleTable {
		p.r.seen.at = version{}
	}
	if ru.otherLife && p.r.number != 0 && (w.table == nil || w.table.Life != p.r.life) {
		p.r.number, p.r.life = 0, "" // it joins, and works on
	}
	c := *w
	c.leases = maps.Clone(w.leases)
	if ru.resumes && p.r.number != 0 && len(p.r.holds) > 0 {
		p.r.ending = false
	}
	p.r.observe(c, when)
	if ru.goneAtOnce {
		for name := range p.r.gone {
			p.r.gone[name] = epoch.Add(-time.Hour)
		}
	}
	if ru.openAtOnce {
		p.r.clear = epoch.Add(-time.Hour)
	}
	p.follow(ru)
}

// arrive lets the server process a request.
func (s *modelState) arrive(ru rules, q *request) *request {
	q = cloned(q)
	q.arrived = true
	if q.renews {
		current, exists := s.leases[q.name]
		q.exists, q.now = exists, current
		if q.ok = exists && current == q.at; q.ok {
			q.now = s.version(q.name)
			s.leases[q.name] = q.now
		}
		return q
	}
	switch q.step.kind {
	case writeTable:
		q.ok = q.step.at == s.tableAt || ru.blindWrite
		if q.ok {
			uid := s.tableAt.uid
			if s.tableAt == (version{}) {
				uid = "table" + strconv.Itoa(s.versions)
			}
			s.table, s.tableAt = q.step.table, s.version(uid)
			q.now = s.tableAt
			s.tell(q)
		}
	case readLease:
		_, q.exists = s.leases[q.step.name]
		q.ok = true
	case removeLease:
		current, exists := s.leases[q.step.name]
		if q.ok = exists && (current == q.step.at || ru.blindRemoval); q.ok {
			delete(s.leases, q.step.name)
		}
	}
	return q
}

// tell notes about which slices there is a word now: those that their owner gives away with one. About those of a dead
// one, and in a new table, there is none.
func (s *modelState) tell(q *request) {
	for slice, owner := range q.step.table.Owners {
		switch from := q.step.from; {
		case from == nil:
			s.told[slice] = false
		case slices.Contains(q.ours, slice):
			s.told[slice] = true
		case from.Owners[slice] != 0 && from.Owners[slice] != q.me && from.Owners[slice] != owner:
			s.told[slice] = false
		}
	}
}

// speak adds the words to a table that a process is about to write.
func (p *process) speak(ru rules, q *request) {
	from, t := q.step.from, q.step.table
	q.me = p.r.number
	q.ours = tells(p.r, from, t)
	switch {
	case ru.speaksUnheard && q.me != 0:
		q.ours = given(from, t, q.me)
	case ru.keepsWords:
		q.ours = slices.DeleteFunc(q.ours, func(slice int) bool { _, found := from.wordOf(slice); return found })
	}
	text := ""
	for _, slice := range q.ours {
		text += fmt.Sprintf("%d=%d,", slice, p.knows[slice])
	}
	switch {
	case ru.losesWords:
		t.Words = nil
	case ru.trustsDead:
		t.leave(from, q.me, q.ours, text)
		for _, w := range from.Words {
			for _, slice := range w.Slices {
				if _, ok := t.wordOf(slice); !ok {
					t.Words = append(t.Words, word{w.Text, []int{slice}})
				}
			}
		}
	default:
		t.leave(from, q.me, q.ours, text)
	}
}

// toldOf returns the write that a word tells of, about one slice.
func toldOf(text string, slice int) (write int) {
	for part := range strings.SplitSeq(text, ",") {
		if number, ok := strings.CutPrefix(part, fmt.Sprintf("%d=", slice)); ok {
			write, _ = strconv.Atoi(number)
		}
	}
	return write
}

// opens begins the work of a slice, which writes, when a process has heard what was written before.
func (s *modelState) opens(p *process, slice int) {
	if unheard(p.r, slice) {
		text, ok := p.r.seen.table.wordOf(slice)
		switch {
		case ok && toldOf(text, slice) != s.wrote[slice]:
			s.wrong = fmt.Sprintf("the word about slice %d tells of write %d, and the last was %d", slice,
				toldOf(text, slice), s.wrote[slice])
		case !ok && s.told[slice]:
			s.wrong = fmt.Sprintf("the word about slice %d is lost", slice)
		}
		p.r.holds[slice].heard = true
	}
	s.writes++
	s.wrote[slice], p.knows[slice], p.work[slice] = s.writes, s.writes, 0
}

// unopened returns the slices that a process has to open.
func (p *process) unopened(ru rules) (all []int) {
	for slice := range ru.slices {
		if _, works := p.work[slice]; ru.words && !works && p.r.owns(slice, p.now()) {
			all = append(all, slice)
		}
	}
	return all
}

// answered lets a process have the answer to a request.
func (p *process) answered(ru rules, q *request) {
	r := p.r
	if q.renews {
		p.renewal = nil
		switch {
		case q.ok:
			p.tried = q.now
			sent := at(q.sent)
			if ru.fromAnswer {
				sent = p.now()
			}
			if ru.reviveLate && r.over == errExpired {
				r.over, sent = nil, p.now()
				r.sent = sent
				for slice := range p.work {
					if h := r.holds[slice]; h != nil {
						h.phase, p.work[slice] = working, 0
					}
				}
			}
			r.renewed(sent, p.now(), q.now)
		case q.exists:
			p.tried = q.now // somebody has edited it; what is there is the next to be renewed
		default:
			r.lose(errDeleted)
		}
		p.follow(ru)
		return
	}
	p.asked = nil
	switch {
	case q.step.kind == writeTable && q.ok:
		seen := r.seen
		seen.table, seen.at = q.step.table, q.now
		p.observe(ru, &seen, p.now())
	case q.step.kind == readLease && !q.exists:
		r.notFound(q.step.name, p.now())
	case q.step.kind == removeLease && q.ok:
		r.removed(q.step.name)
	}
}

// tick lets time pass: on the clocks whose bit is set one tick more, or less.
func (s *modelState) tick(ru rules, drift int) {
	for i, p := range s.p {
		by := 1
		if drift>>i&1 == 1 {
			p.ahead = !p.ahead
			by = 0
			if p.ahead {
				by = 2
			}
		}
		for range by {
			p.clock++
			if p.r == nil {
				continue
			}
			for slice := range p.work { // first: the tick in which the tenure ends is none of the grace
				if p.r.over != nil {
					p.work[slice]++
				}
			}
			p.r.expire(p.now())
			for slice, after := range p.work {
				if p.r.over != nil && after >= mGrace {
					p.ends(ru, slice)
				}
			}
		}
	}
}

func (p *process) ends(ru rules, slice int) {
	delete(p.work, slice)
	if p.r != nil {
		p.r.workEnded(slice)
	}
}

// broken says what is wrong with a state.
func (s *modelState) broken() string {
	if s.wrong != "" {
		return s.wrong
	}
	works := map[int]int{}
	for _, p := range s.p {
		for slice := range p.work {
			if works[slice]++; works[slice] > 1 {
				return fmt.Sprintf("two work on slice %d", slice)
			}
		}
	}
	return ""
}

// moves calls do for everything that can happen next.
func (s *modelState) moves(ru rules, try func(what string, fault bool, f func(*modelState))) {
	do := func(what string, fault bool, f func(*modelState)) {
		begins := func(prefix string) bool { return strings.HasPrefix(what, prefix) }
		if ru.only == nil || slices.ContainsFunc(ru.only, begins) {
			try(what, fault, f)
		}
	}
	for drift := range 1 << len(s.p) {
		down := false // whoever is down has no clock to drift
		for i, p := range s.p {
			down = down || drift>>i&1 == 1 && p.r == nil
		}
		if !down {
			do("tick "+strconv.FormatInt(int64(drift), 2), false, func(s *modelState) { s.tick(ru, drift) })
		}
	}
	for i, p := range s.p {
		act := func(what string, f func(s *modelState, p *process)) {
			do(what+" "+string(rune('a'+i)), false, func(s *modelState) { f(s, s.p[i]) })
		}
		fault := func(what string, f func(s *modelState, p *process)) {
			if s.faults > 0 {
				do(what+" "+string(rune('a'+i)), true, func(s *modelState) { s.faults--; f(s, s.p[i]) })
			}
		}
		for j := range p.strays {
			act("arrives late", func(s *modelState, p *process) {
				s.arrive(ru, p.strays[j])
				p.strays = slices.Delete(slices.Clone(p.strays), j, j+1)
			})
		}
		if len(p.strays) > 0 {
			act("lost", func(_ *modelState, p *process) { p.strays = nil })
		}
		if p.r == nil {
			fault("restart", func(s *modelState, p *process) { s.start(ru, i) })
			continue
		}
		p.inFlight(ru, act, fault)
		p.actions(ru, act, fault)
		if p.r.over != nil && len(p.work) == 0 {
			act("goes on as another", func(s *modelState, p *process) { p.giveUp(); p.old = p.r; s.start(ru, i) })
		}
		fault("crash", func(_ *modelState, p *process) {
			p.giveUp()
			p.r, p.work, p.old = nil, map[int]int{}, nil
		})
		if !p.r.leaving && p.r.number != 0 {
			fault("leaves", func(_ *modelState, p *process) { p.r.leave(); p.follow(ru) })
		}
		if p.r.leaving && !p.r.ending {
			act("has waited", func(_ *modelState, p *process) { p.r.end(); p.follow(ru) })
		}
		if _, ok := s.leases[p.r.name]; ok {
			fault("lease deleted", func(s *modelState, p *process) { delete(s.leases, p.r.name) })
			fault("lease edited", func(s *modelState, p *process) { s.leases[p.r.name] = s.version(p.r.name) })
		}
	}
	s.byHand(ru, do)
}

// byHand has what somebody may do to the table.
func (s *modelState) byHand(ru rules, do func(what string, fault bool, f func(*modelState))) {
	if s.faults == 0 || s.tableAt == (version{}) {
		return
	}
	do("table deleted", true, func(s *modelState) { s.faults--; s.table, s.tableAt = nil, version{} })
	do("table edited", true, func(s *modelState) {
		s.faults--
		s.tableAt = s.version(s.tableAt.uid)
		if !ru.believeEdits || s.table == nil {
			s.table = nil
			return
		}
		s.table = s.table.changed(func(t *table) {
			for slice := range t.Owners {
				for _, m := range t.Members {
					if m.Number != t.Owners[slice] {
						t.give(slice, m.Number)
						break
					}
				}
			}
		})
	})
	if s.table != nil {
		do("table touched", true, func(s *modelState) { s.faults--; s.tableAt = s.version(s.tableAt.uid) })
	}
}

// giveUp leaves what is in flight to itself.
func (p *process) giveUp() {
	for _, q := range []*request{p.asked, p.renewal} {
		if q != nil && !q.arrived && len(p.strays) < 2 {
			p.strays = append(slices.Clone(p.strays), q)
		}
	}
	p.asked, p.renewal, p.look = nil, nil, nil
}

func (p *process) inFlight(ru rules, act, fault func(string, func(*modelState, *process))) {
	if p.look != nil {
		act("sees", func(s *modelState, p *process) {
			w, when := p.look, p.now()
			p.look = nil
			if ru.lookFromSend { // the server has read it just now
				w, when = s.world(ru), at(p.looked)
			}
			p.observe(ru, w, when)
		})
	}
	for _, which := range []func(*process) **request{func(p *process) **request { return &p.asked },
		func(p *process) **request { return &p.renewal }} {
		q := *which(p)
		if q == nil {
			continue
		}
		what := "request"
		if q.renews {
			what = "renewal"
		}
		if !q.arrived {
			act(what+" arrives", func(s *modelState, p *process) { *which(p) = s.arrive(ru, *which(p)) })
		} else {
			act(what+" answered", func(_ *modelState, p *process) { p.answered(ru, *which(p)) })
		}
		fault(what+" given up", func(_ *modelState, p *process) {
			if q := *which(p); !q.arrived && len(p.strays) < 2 {
				p.strays = append(slices.Clone(p.strays), q)
			}
			*which(p) = nil
		})
	}
}

func (p *process) actions(ru rules, act, fault func(string, func(*modelState, *process))) {
	if p.r.over == nil && !ru.fine && !ru.slowLooks {
		act("sees", func(s *modelState, p *process) { p.observe(ru, s.world(ru), p.now()) })
	} else if p.look == nil && p.r.over == nil {
		act("looks", func(s *modelState, p *process) { p.look, p.looked = s.world(ru), p.clock })
	}
	if p.renewal == nil && p.r.valid(p.now()) && p.clock > p.lastSent() {
		renewal := func(p *process) *request {
			return &request{renews: true, name: p.r.name, at: p.tried, sent: p.clock}
		}
		atOnce := func(s *modelState, p *process) { p.answered(ru, s.arrive(ru, renewal(p))) }
		if ru.fine || ru.slowRenewals {
			act("renews", func(_ *modelState, p *process) { p.renewal = renewal(p) })
			if ru.slowRenewals {
				act("renews at once", atOnce)
			}
		} else {
			act("renews", atOnce)
			fault("renews, without an answer,", func(s *modelState, p *process) { s.arrive(ru, renewal(p)) })
		}
	}
	if p.asked == nil && p.r.over == nil {
		act("acts", func(s *modelState, p *process) {
			if p.acts(s, ru); !ru.fine && p.asked != nil {
				p.answered(ru, s.arrive(ru, p.asked))
			}
		})
		if !ru.fine {
			fault("acts, without an answer,", func(s *modelState, p *process) {
				if p.acts(s, ru); p.asked != nil {
					s.arrive(ru, p.asked)
					p.asked = nil
				}
			})
			fault("acts, late,", func(s *modelState, p *process) { p.acts(s, ru); p.giveUp() })
		}
	}
	if ru.prepares && p.r.over == nil && p.r.number != 0 {
		act("prepares", func(_ *modelState, p *process) { p.r.prepared(p.r.wanted(p.now())) })
	}
	for _, slice := range p.unopened(ru) {
		act(fmt.Sprintf("opens %d", slice), func(s *modelState, p *process) { s.opens(p, slice) })
	}
	for _, slice := range slices.Sorted(maps.Keys(p.work)) { // in one order, so that a seed repeats its way
		if h := p.r.holds[slice]; h != nil && h.phase != working {
			act(fmt.Sprintf("ends work on %d", slice), func(_ *modelState, p *process) { p.ends(ru, slice) })
		}
	}
}

func (p *process) lastSent() int { return int(p.r.sent.Mono.Sub(epoch) / time.Second) }

func (p *process) acts(s *modelState, ru rules) {
	next := p.r.next(p.now(), s.life())
	if ru.givesUnasked && next.kind == nothing && p.r.leaving && p.r.valid(p.now()) {
		for slice, h := range p.r.holds {
			if h.phase == ended {
				next = p.r.write(func(t *table) { t.handOver([]int{slice}) })
			}
		}
	}
	if next.kind == nothing || ru.nobodyRemoves && next.kind == removeLease {
		return
	}
	p.asked = &request{step: next, sent: p.clock}
	if ru.words && next.from != nil {
		p.speak(ru, p.asked)
	}
	p.follow(ru)
}

// A printer writes a state so that states that can only go on alike are written alike: times as ages that stop counting
// where they stop mattering, versions, names and numbers by their rank.
type printer struct {
	text  strings.Builder
	ranks map[string][]int
	write bool
}

func (p *printer) rank(kind string, n int) {
	if !p.write {
		p.ranks[kind] = append(p.ranks[kind], n)
		return
	}
	i := sort.SearchInts(p.ranks[kind], n)
	p.text.WriteString(strconv.Itoa(i))
	p.text.WriteByte(' ')
}

func (p *printer) say(args ...any) {
	if p.write {
		for _, a := range args {
			switch a := a.(type) {
			case string:
				p.text.WriteString(a)
			case int:
				p.text.WriteString(strconv.Itoa(a))
			case bool:
				if a {
					p.text.WriteByte('t')
				} else {
					p.text.WriteByte('f')
				}
			}
			p.text.WriteByte(' ')
		}
	}
}

func (p *printer) version(v version) {
	if v == (version{}) {
		p.say("-")
		return
	}
	n, _ := strconv.Atoi(v.resourceVersion)
	p.rank("version", n)
}

func (p *printer) name(name string) {
	if name == "" {
		p.say("-")
		return
	}
	n, _ := strconv.Atoi(name[1:])
	p.say(name[:1])
	p.rank("name"+name[:1], n)
}

func (p *printer) table(t *table) {
	if t == nil {
		p.say("none")
		return
	}
	life, _ := strconv.Atoi(t.Life)
	p.rank("life", life)
	p.say(t.Open, "m")
	for _, m := range t.Members {
		p.name(m.Name)
		p.rank("number", m.Number)
		p.say(m.Leaving, m.Ending)
	}
	p.say("o")
	for slice, owner := range t.Owners {
		p.rank("number", owner)
		p.rank("number", t.Next[slice])
		text, ok := t.wordOf(slice)
		p.say(ok)
		p.rank("write", toldOf(text, slice))
	}
}

func (p *printer) age(now int, t time.Time, most int) {
	p.say(min(now-int(t.Sub(epoch)/time.Second), most))
}

func (p *printer) world(now int, w *world) {
	if w == nil || !w.known && len(w.leases) == 0 {
		p.say("unknown")
		return
	}
	p.say(w.known)
	p.version(w.at)
	p.table(w.table)
	for _, name := range slices.Sorted(maps.Keys(w.leases)) {
		p.name(name)
		p.version(w.leases[name].version)
		if since := w.leases[name].since; !since.IsZero() {
			p.age(now, since, mDuration)
		}
	}
}

func (p *printer) request(now int, q *request) {
	if q == nil {
		p.say("-")
		return
	}
	p.say(q.renews, q.arrived, q.ok, q.exists, int(q.step.kind))
	p.name(q.step.name + q.name)
	p.version(q.at)
	p.version(q.step.at)
	p.version(q.now)
	p.table(q.step.table)
	if q.renews {
		p.say(min(now-q.sent, mDeadline+1))
	}
}

func (p *printer) process(q *process) {
	p.say("\n", q.ahead)
	for _, stray := range q.strays {
		p.request(q.clock+mDuration, stray)
	}
	if q.r == nil {
		return
	}
	r := q.r
	p.name(r.name)
	p.version(q.tried)
	p.age(q.clock, r.sent.Mono, mDeadline+1)
	over := ""
	if r.over != nil {
		over = r.over.Error()
	}
	p.say(over, r.leaving, r.ending, len(q.work))
	p.rank("number", r.number)
	if r.number != 0 {
		p.age(q.clock, r.joined, mDuration)
	}
	if r.seen.table != nil && !r.seen.table.Open {
		p.age(q.clock, r.clear, mDuration)
	}
	for slice := range r.slices {
		if h := r.holds[slice]; h != nil {
			p.say(slice, int(h.phase), h.heard)
			p.rank("write", q.knows[slice])
		}
		after, works := q.work[slice]
		p.say(works, after, r.ready[slice])
	}
	p.world(q.clock, &r.seen)
	for _, name := range slices.Sorted(maps.Keys(r.gone)) {
		p.name(name)
		p.age(q.clock, r.gone[name], mDuration)
	}
	for _, name := range slices.Sorted(maps.Keys(r.stopped)) {
		p.name(name)
	}
	p.say("look")
	if q.look != nil {
		p.say(min(q.clock-q.looked, mDuration))
	}
	p.world(q.clock, q.look)
	p.request(q.clock, q.asked)
	p.request(q.clock, q.renewal)
}

func (s *modelState) String() string {
	p := &printer{ranks: map[string][]int{"number": {0}}}
	p.text.Grow(1024)
	for range 2 {
		p.say(s.faults)
		p.version(s.tableAt)
		p.table(s.table)
		for slice, told := range s.told {
			p.say(told)
			p.rank("write", s.wrote[slice])
		}
		for _, name := range slices.Sorted(maps.Keys(s.leases)) {
			p.name(name)
			p.version(s.leases[name])
		}
		for _, q := range s.p {
			p.process(q)
		}
		for kind, all := range p.ranks {
			slices.Sort(all)
			p.ranks[kind] = slices.Compact(all)
		}
		p.write = true
	}
	return p.text.String()
}
