package sharding

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// begin is the state from which all starts: all processes are up, and nothing else is there.
func begin(ru rules) *modelState {
	s := &modelState{leases: map[string]version{}, faults: ru.faults, wrote: make([]int, ru.slices),
		told: make([]bool, ru.slices)}
	for i := range ru.processes {
		s.p = append(s.p, &process{work: map[int]int{}})
		s.start(ru, i)
	}
	return s
}

// calm lets all go well for some time.
func (s *modelState) calm(ru rules, ticks int) {
	for range ticks {
		for range 3 * len(s.p) {
			for i, p := range s.p {
				s.settle(ru, i, p)
			}
		}
		s.tick(ru, 0)
	}
	for range 3 * len(s.p) {
		for i, p := range s.p {
			s.settle(ru, i, p)
		}
	}
}

// settle lets what a process has in flight arrive, and then the process act.
func (s *modelState) settle(ru rules, i int, p *process) {
	for _, q := range p.strays {
		s.arrive(ru, q)
	}
	p.strays = nil
	if p.r == nil {
		return
	}
	for slice := range p.work {
		if h := p.r.holds[slice]; h == nil || h.phase != working {
			p.ends(ru, slice)
		}
	}
	if p.r.over != nil && len(p.work) == 0 {
		if p.r.leaving {
			delete(s.leases, p.r.name)
			p.r = nil
			return
		}
		p.giveUp()
		p.old = p.r
		delete(s.leases, p.old.name)
		s.start(ru, i)
	}
	if p.renewal == nil && p.r.valid(p.now()) && p.clock > p.lastSent() {
		p.renewal = &request{renews: true, name: p.r.name, at: p.tried, sent: p.clock}
	}
	for _, q := range []*request{p.renewal, p.asked} {
		if q != nil {
			if !q.arrived {
				q = s.arrive(ru, q)
			}
			p.answered(ru, q)
		}
	}
	p.look = nil
	if p.r.over == nil {
		p.observe(ru, s.world(ru), p.now())
		p.r.prepared(p.r.wanted(p.now()))
		if p.asked == nil {
			p.acts(s, ru)
		}
		for _, slice := range p.unopened(ru) {
			s.opens(p, slice)
		}
	}
}

// stalls reports a slice that nobody works on though all goes well.
func (s *modelState) stalls(ru rules) string {
	s = s.clone()
	s.calm(ru, 5*mDuration)
	up := slices.ContainsFunc(s.p, func(p *process) bool { return p.r != nil })
	for slice := range ru.slices {
		if up && !slices.ContainsFunc(s.p, func(p *process) bool { _, works := p.work[slice]; return works }) {
			return fmt.Sprintf("nobody works on slice %d", slice)
		}
	}
	return s.broken()
}

// explore returns how many states there are within so many steps, and the shortest history that breaks an invariant, if
// there is one.
func explore(ru rules, start *modelState, most int) (states int, history []string) {
	type step struct {
		from string
		what string
	}
	type waiting struct {
		key string
		*modelState
	}
	first := start.String()
	came := map[string]step{first: {}}
	queue := []waiting{{first, start}}
	for len(queue) > 0 && len(came) < most && history == nil {
		from, at := queue[0].key, queue[0].modelState
		queue[0] = waiting{} // the state is garbage when its moves have been tried
		queue = queue[1:]
		at.moves(ru, func(what string, _ bool, f func(*modelState)) {
			if history != nil {
				return
			}
			next := at.clone()
			f(next)
			key := next.String()
			if _, known := came[key]; known {
				return
			}
			came[key] = step{from, what}
			queue = append(queue, waiting{key, next})
			broken := next.broken()
			if broken == "" && len(came)%97 == 0 {
				broken = next.stalls(ru)
			}
			if broken != "" {
				for s := key; s != first; s = came[s].from {
					history = append(history, came[s].what)
				}
				slices.Reverse(history)
				history = append(history, broken)
			}
		})
	}
	return len(came), history
}

// atWork is a group that has worked for a while.
func atWork(ru rules) *modelState {
	s := begin(ru)
	s.calm(ru, 3*mDuration)
	return s
}

// aboutToMove is a group whose last replica has joined the others, and wants its share.
func aboutToMove(ru rules) *modelState {
	s := begin(ru)
	last := s.p[len(s.p)-1]
	delete(s.leases, last.r.name)
	last.r = nil
	s.calm(ru, 3*mDuration)
	s.start(ru, len(s.p)-1)
	s.calm(ru, mDuration-1)
	return s
}

// newLife is a group about to move, whose table was deleted: the owner has made another one, and joined it.
func newLife(ru rules) *modelState {
	s := aboutToMove(ru)
	s.table, s.tableAt = nil, version{}
	a := s.p[0]
	a.observe(ru, s.world(ru), a.now())
	a.acts(s, ru)
	a.answered(ru, s.arrive(ru, a.asked))
	return s
}

// wander takes one random way, with the faults that come, and looks whether all is well at its end.
func wander(ru rules, seed uint64, steps int) (history []string) {
	random := rand.New(rand.NewPCG(seed, 41))
	s := begin(ru)
	switch random.IntN(4) {
	case 0: // nothing is there yet
	case 1:
		s = atWork(ru)
	default:
		s = aboutToMove(ru)
	}
	var mood uint64 // how often things of each kind happen, for a while: so some wait for long while others go on
	for range steps {
		if random.IntN(60) == 0 || mood == 0 {
			mood = random.Uint64()
		}
		type move struct {
			what   string
			weight float64
			f      func(*modelState)
		}
		var moves []move
		sum := 0.0
		s.faults = 1
		s.moves(ru, func(what string, fault bool, f func(*modelState)) {
			weight := weightOf(what, mood, fault, len(s.p))
			sum += weight
			moves = append(moves, move{what, weight, f})
		})
		at, m := random.Float64()*sum, move{}
		for _, m = range moves {
			if at -= m.weight; at < 0 {
				break
			}
		}
		m.f(s)
		history = append(history, m.what)
		if broken := s.broken(); broken != "" {
			return append(history, broken)
		}
	}
	if broken := s.stalls(ru); broken != "" {
		return append(history, broken)
	}
	return nil
}

// weightOf is how likely something is to happen next.
func weightOf(what string, mood uint64, fault bool, processes int) float64 {
	kind, _, _ := strings.Cut(what, ",")
	weight := [...]float64{0.001, 0.1, 0.5, 1, 1, 2, 4, 4}[mix(sum([]byte(kind+what[len(what)-1:]))^mood)%8]
	switch {
	case fault:
		return weight * 0.02
	case strings.HasPrefix(what, "tick"): // in a tick there is time for most of what wants to happen
		return 0.5 * max(weight, 0.2) / float64(int(1)<<processes)
	case strings.HasPrefix(what, "ends work"):
		return weight * 0.2
	}
	return weight
}

func soak() bool { return os.Getenv("THERMOSTAT_SOAK") != "" }

// TestNoTwoWorkOnASlice visits the states around the first start, and around a group at work.
func TestNoTwoWorkOnASlice(t *testing.T) {
	most := 2_000
	switch {
	case raceEnabled:
		most = 1_000
	case soak():
		most = 3_000_000
	}
	for _, ru := range []rules{
		{processes: 2, slices: 1, fine: true},
		{processes: 2, slices: 1, faults: 1},
		{processes: 2, slices: 2, faults: 1},
		{processes: 2, slices: 2, faults: 2, prepares: true},
		{processes: 2, slices: 2, faults: 2, words: true},
	} {
		for name, start := range map[string]*modelState{"nothing": begin(ru), "a group at work": atWork(ru),
			"a move": aboutToMove(ru)} {
			states, history := explore(ru, start, most)
			require.Empty(t, history, "%s", strings.Join(history, "\n"))
			t.Logf("%d slices, %d faults, fine %v, from %s: %d states", ru.slices, ru.faults, ru.fine, name, states)
		}
	}
}

// twoLeave has the moves of three of which two leave, one after the other. One of the first two has a slice that the
// third has asked for.
func twoLeave(givesUnasked bool) rules {
	only := []string{"sees", "acts a", "acts b", "acts c", "ends work", "leaves", "acts, late,", "arrives late"}
	return rules{processes: 3, slices: 3, faults: 3, givesUnasked: givesUnasked, only: only}
}

// TestTwoLeaveAtOnce visits the states that there are within these moves, and finds the mistake that is planted.
func TestTwoLeaveAtOnce(t *testing.T) {
	most := 30_000
	switch {
	case raceEnabled:
		most = 1_000
	case soak():
		most = 3_000_000
	}
	ru := twoLeave(false)
	states, history := explore(ru, aboutToMove(ru), most)
	require.Empty(t, history, "%s", strings.Join(history, "\n"))
	t.Logf("%d states", states)
	if raceEnabled {
		return
	}
	ru = twoLeave(true)
	states, history = explore(ru, aboutToMove(ru), 300_000)
	require.NotEmpty(t, history, "nothing found in %d states", states)
	t.Logf("a leaver that gives away what nobody asks for: found after %d states: %s", states,
		strings.Join(history, ", "))
}

// anyRules are those of a random way, without bugs.
func anyRules(seed uint64) rules {
	return rules{processes: 2 + int(seed/3%3)/2, slices: 1 + int(seed%3), prepares: seed/9%2 == 0, fine: seed%2 == 0,
		words: seed%5 == 0}
}

// TestRandomWays takes more of them with THERMOSTAT_SOAK=1. THERMOSTAT_SEED=n repeats one.
func TestRandomWays(t *testing.T) {
	ways := uint64(500)
	switch {
	case raceEnabled:
		ways = 100
	case soak():
		ways = 200_000
	}
	first := uint64(0)
	if seed, err := strconv.ParseUint(os.Getenv("THERMOSTAT_SEED"), 10, 64); err == nil {
		first, ways = seed, 1
	}
	for seed := first; seed < first+ways; seed++ {
		ru := anyRules(seed)
		history := wander(ru, seed, 300)
		require.Empty(t, history, "seed %d\n%s", seed, strings.Join(history, "\n"))
	}
}

// allPlanted is set by make test-long.
var allPlanted = flag.Bool("all-planted", false, "TestEachPlantedBugIsFound looks also for what takes long to find")

// TestEachPlantedBugIsFound shows that the same search, with the same checks, finds what is wrong. It is told where to
// look: which moves are tried, of the owner of the slice and of the other one.
func TestEachPlantedBugIsFound(t *testing.T) {
	waits := []string{"tick 0", "renews OWNER", "renewal arrives OWNER", "renewal answered OWNER",
		"renews OTHER", "renewal arrives OTHER", "renewal answered OTHER", "sees OTHER", "acts OTHER"}
	late := []string{"tick 0", "tick 11", "renews OWNER", "renewal arrives OWNER", "renewal answered OWNER",
		"renews at once OTHER", "sees OTHER", "acts OTHER"}
	calm := []string{"tick 0", "renews a", "renews b", "sees OTHER", "acts OTHER", "goes on as another OTHER",
		"table deleted", "lease deleted OWNER"}
	moves := []string{"tick 0", "renews a", "renews b", "sees", "acts a", "acts b", "ends work", "opens"}
	for name, bug := range map[string]struct {
		start func(rules) *modelState
		rules
	}{
		"LeaseDuration does not cover the stop": {atWork, rules{shortWait: true, only: waits}},
		"wait counted from before the look": {atWork, rules{slowLooks: true, lookFromSend: true,
			only: append(slices.Clone(waits), "looks OTHER")}},
		"a Lease that is gone is not waited for":  {atWork, rules{faults: 1, goneAtOnce: true, only: calm}},
		"a new table is opened at once":           {atWork, rules{faults: 2, openAtOnce: true, only: calm}},
		"Leases outside of the table are ignored": {atWork, rules{faults: 1, ignoreOutside: true, only: calm}},
		"an edited table is believed":             {atWork, rules{faults: 1, believeEdits: true}},
		"handed over before the work has ended":   {aboutToMove, rules{slices: 2, releaseFirst: true, only: moves}},
		"the deadline is counted from the answer": {atWork, rules{slowRenewals: true, fromAnswer: true,
			ahead: true, only: late}},
		"a late answer begins the tenure anew": {atWork, rules{slowRenewals: true, reviveLate: true, ahead: true,
			only: late}},
		"a Lease is removed although it was renewed": {atWork, rules{blindRemoval: true, only: calm}},
		"a table is written although it has changed": {aboutToMove, rules{slices: 2, faults: 1, blindWrite: true,
			only: append(slices.Clone(moves), "acts, late,", "arrives late")}},
		"an old table is believed": {aboutToMove, rules{slices: 2, slowLooks: true, staleTable: true,
			only: []string{"tick 0", "looks", "sees", "acts a", "acts b", "ends work"}}},
		"work goes on under another life of the table": {newLife, rules{slices: 2, otherLife: true,
			only: []string{"tick 0", "renews a", "renews b", "sees b", "acts b", "goes on as another b"}}},
		"crashed owners waited for without end": {atWork, rules{faults: 1, nobodyRemoves: true}},
		"the word of an earlier owner stays": {aboutToMove, rules{slices: 2, faults: 1, words: true, keepsWords: true,
			only: append(slices.Clone(moves), "leaves b")}},
		"the word about a dead owner's slice stays": {aboutToMove, rules{slices: 2, faults: 1, words: true,
			trustsDead: true, only: append(slices.Clone(moves), "crash b")}},
		"a word of who has not begun": {aboutToMove, rules{slices: 2, faults: 1, words: true, speaksUnheard: true,
			only: append(slices.Clone(moves), "leaves b")}},
		"who ends begins again": {aboutToMove, rules{slices: 2, faults: 2, resumes: true,
			only: append(slices.Clone(moves), "leaves a", "has waited", "acts, late, a", "arrives late")}},
		"a word is lost": {aboutToMove, rules{slices: 2, words: true, losesWords: true, only: moves}},
	} {
		many := bug.ignoreOutside || bug.lookFromSend || bug.slowRenewals || bug.blindWrite || bug.otherLife ||
			bug.keepsWords || bug.speaksUnheard || bug.trustsDead
		if many && !*allPlanted {
			continue // they take from 20,000 to 130,000 states
		}
		t.Run(name, func(t *testing.T) {
			ru := bug.rules
			ru.processes, ru.slices = 2, max(ru.slices, 1)
			start := bug.start(rules{processes: 2, slices: ru.slices, faults: ru.faults, shortWait: ru.shortWait,
				otherLife: ru.otherLife, words: ru.words})
			owner, other := "a", "b"
			start.p[0].ahead = bug.ahead
			if len(start.p[1].work) > 0 && bug.slices < 2 {
				owner, other = "b", "a"
				start.p[0].ahead, start.p[1].ahead = false, bug.ahead
			}
			ru.only = slices.Clone(ru.only)
			for i, prefix := range ru.only {
				ru.only[i] = strings.NewReplacer("OWNER", owner, "OTHER", other).Replace(prefix)
			}
			states, history := explore(ru, start, 300_000)
			require.NotEmpty(t, history, "nothing found in %d states", states)
			t.Logf("found after %d states: %s", states, strings.Join(history, ", "))
		})
	}
}
