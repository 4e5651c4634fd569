package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

const (
	usualBudget = 2 * time.Second
	budgetEnv   = "RECONCILETEST_BUDGET"
	limitEnv    = "RECONCILETEST_LIMIT"
	// replays is how often a schedule that fails is run again if the program is not deterministic, and mustFail how
	// often it has to fail then.
	replays, mustFail = 10, 9
	// collectAfter is how slow the garbage collector is. It is slower than in other tests: a program whose cache is
	// late makes anew what the collector takes, which is no hot loop if it ends with the cache's delay.
	collectAfter = time.Second
)

// Check runs a program through a scenario again and again, each time with other things going wrong, and fails the test
// if one of the runs breaks a rule. It prints that run, shrunk to what is needed for it, and the line that replays it.
//
// First nothing goes wrong. Then one thing does, at each request and each step that there was. Then the program misses
// a step, and later meets an old cache. Then two things go wrong, the second at a request that the program makes
// because of the first, such as a retry, until half of the budget is used up. The other half is for random schedules of
// two and three. Every run is in a bubble of testing/synctest with a [Server] of its own, so the program's waiting
// takes no time, and its work does: the number of runs grows with the steps and with the writes that the program makes.
// Of its renewals of a Lease, its Events and its questions about rights only the first two are disturbed. With go test
// -v Check logs how many runs there were, and how many a second.
//
// The rules, for every run:
//
//   - The program comes to rest after each step: it makes at most 400 writes and 8,000 requests, and stops writing
//     within 10 minutes. Writes that change nothing, Leases and Events do not count as writes.
//   - It converges: 10 minutes after the last disturbance Settled returns nil, and the server holds what it holds when
//     nothing goes wrong. Leases, Events, times, and what Mask removes are not compared.
//   - It repeats a write that failed. Check says so in place of the rule before if the server has refused a write (429,
//     500, 504, a conflict of an update or a patch), and no incarnation has made the same request again. It is silent
//     if the end is right all the same, and about a creation that another one of the same resource follows.
//   - It is idempotent: a restart in the end changes nothing.
//   - It is level-triggered: a start after all steps leads to the same end; a step that is done twice as well.
//   - Always returns nil after each of its writes.
//   - What a third party has put on an object stays: an annotation, on the objects of some writes.
//   - It waits as long as the server asks with 429 and Retry-After: at most 3 times in a row the same request may come
//     too early. Check is silent about creations, since their requests do not name the object. A request with another
//     content is another one, since several keys may write one object.
//   - It does not insist on a conflict: at most 30 in a row for one request of one incarnation.
//   - It is quiet at rest: at most 10 requests a second in the 30 s after the last write. Check looks at that in the
//     end only, and not at Leases and Events.
//   - It runs until its ctx ends, and ends then, within a minute; no goroutine that it has started is left.
//   - It has the rights that it needs: the roles allow each request. Check is silent without Scenario.User.
//
// With go test -v, Check logs what it has tried, which rights of the roles no run has used, and the smallest roles for
// what the program did. It does not judge rights that only a real server asks for, such as bind and escalate.
//
// Check only tests: that it finds nothing is no proof. Programs must do nothing that leaves the bubble, such as network
// connections of their own; tests that call Check must not be parallel with each other, since it replaces the error
// handlers of k8s.io/apimachinery/pkg/util/runtime while it runs.
func Check(t *testing.T, sc Scenario) {
	t.Helper()
	if found := Search(t, sc); found != nil {
		t.Errorf("reconciletest.Check: %s", found)
	}
}

// Finding is what a run of a program has shown to be wrong.
type Finding struct {
	// Rule is the rule that the program breaks, and Detail how.
	Rule   string
	Detail []string
	// Timeline is what happened, in at most 20 lines: steps, disturbances, writes and their answers. A line begins with
	// the time since the begin of the run, and writes with the incarnation that made them.
	Timeline []string
	// Replay is for [Scenario.Replay].
	Replay string
	// Runs and Took say how many runs and how much real time it took to find and shrink it.
	Runs int
	Took time.Duration
}

// String returns the finding as Check prints it.
func (f *Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "after %d runs in %s: the program breaks the rule %q\n", f.Runs, f.Took.Round(time.Millisecond),
		f.Rule)
	for _, line := range f.Detail[:min(len(f.Detail), timelineLines)] {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	fmt.Fprintf(&b, "what happened:\n")
	for _, line := range f.Timeline {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	fmt.Fprintf(&b, "again, alone: Replay: %q", f.Replay)
	return b.String()
}

// Search does what [Check] does, and returns what it has found in place of failing the test; nil: nothing. It fails the
// test at once if the scenario is wrong.
func Search(t *testing.T, sc Scenario) *Finding {
	t.Helper()
	if err := sc.validate(); err != nil {
		t.Fatalf("reconciletest.Check: %v", err)
	}
	budget, limit, err := sc.durations()
	if err != nil {
		t.Fatalf("reconciletest.Check: %v", err)
	}
	handlers := utilruntime.ErrorHandlers
	// The ones of the package remember the time of the last error, which is one of another bubble.
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	c := newCheck(t, &sc, limit)
	if sc.Replay != "" {
		return c.replay(sc.Replay)
	}
	found := c.reference()
	if found == nil {
		found = c.singles()
	}
	if found == nil {
		found = c.pairs()
	}
	if found == nil {
		found = c.causal(c.within(budget / 2))
	}
	if found == nil {
		found = c.random(c.within(budget / 2))
	}
	if found == nil {
		t.Log(c.report())
	}
	return found
}

// durations returns Budget and Limit, or what the environment has in place of them.
func (sc *Scenario) durations() (budget, limit time.Duration, err error) {
	budget, limit = cmp.Or(sc.Budget, usualBudget), sc.Limit
	for name, d := range map[string]*time.Duration{budgetEnv: &budget, limitEnv: &limit} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		if *d, err = time.ParseDuration(text); err != nil || *d < 0 {
			return 0, 0, fmt.Errorf("%s is %q: it is a duration such as 10m", name, text)
		}
	}
	return budget, limit, nil
}

// check is one call of Check.
type check struct {
	t        *testing.T
	scenario *Scenario
	began    time.Time
	ideal    *ending // of the run in which nothing goes wrong
	jitters  bool    // two runs of one schedule differ
	differs  string  // where, if they do without disturbances
	runs     int
	covered  *coverage
	// consequences are what single disturbances have caused.
	consequences []consequence
	limit        time.Time // after it no schedule begins; zero: there is no limit
	leftOut      string    // what was not run because of that
}

func newCheck(t *testing.T, sc *Scenario, limit time.Duration) *check {
	c := &check{t: t, scenario: sc, began: time.Now(), covered: newCoverage()}
	if limit > 0 {
		c.limit = c.began.Add(limit)
	}
	return c
}

// over reports whether the limit is reached.
func (c *check) over() bool { return !c.limit.IsZero() && !time.Now().Before(c.limit) }

// within returns when a time that begins now is over, or the limit, if that is earlier.
func (c *check) within(d time.Duration) time.Time {
	until := time.Now().Add(d)
	if !c.limit.IsZero() {
		until = earlier(until, c.limit)
	}
	return until
}

// ending is what is left of a run.
type ending struct {
	failure   *breach
	timeline  []string
	trace     []line
	seen      map[string]int
	places    map[string]int
	made      map[string]bool
	watched   map[string]bool
	asked     []string
	happened  map[disturbance]bool
	used      usage
	afterStep []snapshot
	last      snapshot
}

// run runs a schedule in a bubble of its own. With a nil ideal the end is compared with nothing.
func (c *check) run(s schedule, ideal *ending) (o *ending) {
	c.runs++
	o = &ending{}
	defer func() {
		if r := recover(); r != nil {
			left := &breach{ruleEnds, []string{fmt.Sprint(r), "goroutines of the program are left"}}
			if o.timeline == nil {
				left.detail = append(left.detail, string(debug.Stack()))
			}
			o.failure = cmp.Or(o.failure, left)
		}
		c.covered.add(s, o, c.ideal)
	}()
	synctest.Test(c.t, func(t *testing.T) {
		options := c.scenario.Server
		options.Seed = s.seed
		options.CollectAfter = cmp.Or(options.CollectAfter, collectAfter)
		time.Sleep(time.Duration(s.seed % uint64(time.Second))) // the clock seeds the random numbers of this library
		server := NewServer(t, options)
		r := newRun(t.Context(), c.scenario, s, server)
		r.play()
		if r.failure == nil && ideal != nil {
			if different := r.last.differences(ideal.last); len(different) > 0 {
				r.fail(ruleSameEnd, different...)
			}
		}
		verdict{r}.blame()
		*o = ending{failure: r.failure, timeline: r.timeline(), trace: r.trace, seen: r.seen, places: r.places,
			watched: r.watched, afterStep: r.afterStep, last: r.last, made: map[string]bool{},
			asked: r.asked, happened: r.happened, used: r.used}
		for _, id := range r.made {
			o.made[id.resource] = true
		}
	})
	return o
}

// reference runs the scenario without disturbances.
func (c *check) reference() *Finding {
	all := schedule{seed: c.scenario.Seed, steps: len(c.scenario.Steps)}
	c.ideal = c.run(all, nil)
	for range replays { // a failure that needs luck is left to the other schedules
		if c.ideal.failure == nil {
			break
		}
		failed := c.ideal
		c.ideal = c.run(all, nil)
		c.jitters = c.jitters || difference(failed.trace, c.ideal.trace) != ""
		if c.stands(all, nil) {
			return c.finding(all, failed)
		}
	}
	again := c.run(all, nil)
	c.differs = difference(c.ideal.trace, again.trace)
	c.jitters = c.jitters || c.differs != ""
	for i, step := range c.scenario.Steps {
		for j, earlier := range c.scenario.Steps[:i] {
			if step.documents == nil || !slices.Equal(step.documents, earlier.documents) {
				continue
			}
			if different := c.ideal.afterStep[i].differences(c.ideal.afterStep[j]); len(different) > 0 {
				c.ideal.failure = &breach{fmt.Sprintf("is reversible: step %d ends as step %d did, which was the same",
					i+1, j+1), different}
				return c.finding(all, c.ideal)
			}
		}
	}
	return nil
}

// singles runs every schedule with one disturbance, until one finds something, or until the limit.
func (c *check) singles() *Finding {
	all := c.possible()
	for i, d := range all {
		if c.over() {
			c.leftOut = fmt.Sprintf("%d of the %d schedules with one disturbance, and all with several", len(all)-i,
				len(all))
			return nil
		}
		s := schedule{seed: c.scenario.Seed, steps: len(c.scenario.Steps), disturbances: []disturbance{d}}
		o := c.run(s, c.ideal)
		if found := c.judge(s, o); found != nil {
			return found
		}
		c.note(d, o)
	}
	return nil
}

// possible returns the disturbances that the reference run has had a place for.
func (c *check) possible() []disturbance {
	var all []disturbance
	for _, what := range []string{coldStart, slow} {
		all = append(all, disturbance{what: what})
	}
	for n := range c.scenario.Steps {
		for _, what := range atSteps {
			if what != coldStart && what != slow {
				all = append(all, disturbance{what: what, n: n + 1})
			}
		}
		for _, resource := range slices.Sorted(maps.Keys(c.ideal.watched)) {
			all = append(all, disturbance{late, resource, n + 1}, disturbance{frozen, resource, n + 1})
		}
		for _, resource := range slices.Sorted(maps.Keys(c.ideal.made)) {
			all = append(all, disturbance{stray, resource, n + 1})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.ideal.places)) {
		kinds := atReads
		if (Request{Verb: verbOf(kind)}).Writes() {
			kinds = atWrites
		}
		places := c.ideal.places[kind]
		if alike(kind) {
			places = min(places, 2)
		}
		for n := range places {
			for _, what := range kinds {
				all = append(all, disturbance{what, kind, n + 1})
			}
		}
	}
	// Each kind of disturbance once before any of them again.
	slices.SortStableFunc(all, func(a, b disturbance) int { return cmp.Compare(a.n, b.n) })
	return all
}

// try runs a schedule, and shrinks it if it finds something.
func (c *check) try(s schedule) *Finding { return c.judge(s, c.run(s, c.ideal)) }

// judge shrinks a schedule that has found something; nil: it has not.
func (c *check) judge(s schedule, o *ending) *Finding {
	if o.failure == nil || !c.stands(s, c.ideal) {
		return nil
	}
	return c.finding(c.shrink(s, o))
}

// stands reports whether a failure is one of the program: it is there again, and again.
func (c *check) stands(s schedule, ideal *ending) bool {
	failed := c.failures(s, ideal)
	if failed < mustFail {
		c.t.Logf("a schedule has failed once, and in %d of %d replays, which is too seldom to be judged: %s", failed,
			replays, s)
	}
	return failed >= mustFail
}

// failures returns how many of some replays of a schedule fail. Two of them stand for all if they are equal. Programs
// that jitter need all, since their failure may need luck.
func (c *check) failures(s schedule, ideal *ending) int {
	if !c.jitters {
		first, second := c.run(s, ideal), c.run(s, ideal)
		if first.failure != nil && difference(first.trace, second.trace) == "" {
			return replays
		}
	}
	c.jitters = true
	failed := 0
	for range replays {
		if c.run(s, ideal).failure != nil {
			failed++
		}
	}
	return failed
}

// random runs random schedules of two and three disturbances, until one finds something, or until a time.
func (c *check) random(until time.Time) *Finding {
	places := c.possible()
	random := rand.New(rand.NewPCG(c.scenario.Seed, 2))
	for time.Now().Before(until) {
		s := schedule{seed: random.Uint64(), steps: len(c.scenario.Steps)}
		for range 2 + random.IntN(2) {
			s.disturbances = append(s.disturbances, places[random.IntN(len(places))])
		}
		if found := c.try(s); found != nil {
			return found
		}
	}
	return nil
}

// shrink takes out of a schedule that fails what is not needed: disturbances, and steps at the end.
func (c *check) shrink(s schedule, o *ending) (schedule, *ending) {
	for i := 0; i < len(s.disturbances) && len(s.disturbances) > 1; {
		less := s
		less.disturbances = slices.Delete(slices.Clone(s.disturbances), i, i+1)
		if smaller := c.fails(less, c.ideal); smaller != nil {
			s, o = less, smaller
			continue
		}
		i++
	}
	for steps := 1; steps < s.steps; steps++ {
		less := s
		less.steps = steps
		ideal := c.run(schedule{seed: c.scenario.Seed, steps: steps}, nil)
		if ideal.failure != nil {
			continue // Settled is about all steps
		}
		if smaller := c.fails(less, ideal); smaller != nil {
			return less, smaller
		}
	}
	return s, o
}

// fails returns how a smaller schedule ends, if it fails as reliably as the larger one; nil: it does not.
func (c *check) fails(s schedule, ideal *ending) *ending {
	o := c.run(s, ideal)
	if o.failure == nil || c.jitters && c.failures(s, ideal) < mustFail {
		return nil
	}
	return o
}

// replay runs one schedule.
func (c *check) replay(text string) *Finding {
	c.t.Helper()
	s, err := parseSchedule(text, len(c.scenario.Steps))
	if err != nil {
		c.t.Fatalf("reconciletest.Check: Scenario.Replay: %v", err)
	}
	if len(s.disturbances) == 0 && s.steps == len(c.scenario.Steps) {
		return c.reference()
	}
	ideal := c.run(schedule{seed: c.scenario.Seed, steps: s.steps}, nil)
	if ideal.failure != nil {
		ideal = nil
	}
	if o := c.run(s, ideal); o.failure != nil {
		return c.finding(s, o)
	}
	return nil
}

func (c *check) finding(s schedule, o *ending) *Finding {
	return &Finding{Rule: o.failure.rule, Detail: o.failure.detail, Timeline: o.timeline, Replay: s.String(),
		Runs: c.runs, Took: time.Since(c.began)}
}
