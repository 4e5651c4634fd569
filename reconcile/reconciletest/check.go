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

	"github.com/thermostat-go/thermostat/internal/world"
)

const (
	usualBudget   = 2 * time.Second
	usualFindings = 10
	budgetEnv     = "RECONCILETEST_BUDGET"
	limitEnv      = "RECONCILETEST_LIMIT"
	// replays is how often a schedule that fails is run again if the program is not deterministic, and mustFail how
	// often it has to fail then; see breach.mustFail.
	replays, mustFail = 10, 9
	// mostDoubts is how often a failure of one sort is replayed that is found not to stand.
	mostDoubts = 3
	// collectAfter is how slow the garbage collector is. It is slower than in other tests: a program whose cache is
	// late makes anew what the collector takes, which is no hot loop if it ends with the cache's delay.
	collectAfter = time.Second
)

// Check runs a program through a scenario again and again, each time with other things going wrong, and fails the test
// for each finding: what runs have shown to be wrong, in the words of the rule that the program breaks. It prints one
// run of each, shrunk to what is needed for it, and the line that replays it.
//
// First nothing goes wrong. Then one thing does, at each request and each step that there was. Then the program misses
// a step, and later meets an old cache; and then it misses the answer to a write, and its cache shows it late. Then two
// things go wrong, the second at a request that the program makes because of the first, such as a retry, until half of
// the budget is used up. The other half is for random schedules of two and three. Every run is in a bubble of
// testing/synctest with a [Server] of its own, so the program's waiting takes no time, and its work does: the number of
// runs grows with the steps and with the writes that the program makes. Of its renewals of a Lease, its Events and its
// questions about rights only the first two are disturbed. With go test -v Check logs how many runs there were, and how
// many a second.
//
// A finding does not end the search, unless nothing has to go wrong for it: then every run would show it. Goroutines
// that are left behind do not end it even so, and those that run the same function are not looked at any more; nor do
// updates that a restart makes when all is settled, and such ones are not looked at any more. Runs that break the same
// rule, with the same kinds of objects and fields, by the same kind of disturbance, are one finding, which has their
// number. [Scenario.Off] switches off a rule or a disturbance by its name.
//
// The rules, for every run, with their names:
//
//   - "comes to rest": after each step a program makes at most 400 writes and 8,000 requests, and stops writing
//     within 10 minutes. Writes that change nothing, or only what Mask removes, Leases and Events do
//     not count as writes.
//   - "converges": 10 minutes after the last disturbance Settled returns nil.
//   - "ends alike": the server holds what it holds when nothing goes wrong, and so does the world outside. Check shows
//     both ends, and does not know which one is right. Leases, Events, times, and what Mask removes are not compared,
//     nor what may differ in a right program, see below.
//   - "is reversible": a step that is done twice ends alike.
//   - "repeats a write that failed": Check says so in place of the rules before, and of the next one, if the server has
//     refused a write (429, 500, 504, a conflict of an update or a patch), no incarnation has made the same request
//     again before the restart in the end, and all objects that are not as they should be are ones that such writes
//     were about. If only some are, the finding names the writes.
//   - "is idempotent", and "stays settled": a restart in the end changes nothing, but what [Scenario.Mask] removes.
//   - "Always": it returns nil after each write of the program.
//   - "leaves alone what belongs to others": what a third party has put on an object stays, an annotation on the
//     objects of some writes. Of several programs, none gives a field back the value that it had before another one has
//     changed it, unless it changes such a field otherwise as well, or does that when nothing goes wrong.
//   - "lets go of what was deleted": 10 minutes after the last disturbance, nothing that a user has deleted is still
//     there by a finalizer that the program puts on objects or takes off.
//   - "is not refused again and again": in the end the server does not refuse the same write with 422 for the sixth
//     time or more, while nothing else happens. Before a user has mended what is wrong it may.
//   - "waits as long as the server asks" with 429 and Retry-After: at most 3 times in a row the same request may come
//     too early. Check is silent about creations, since their requests do not name the object, and about Outside. A
//     request with another content is another one, since several keys may write one object. Of several goroutines with
//     one request each has to wait by itself.
//   - "does not insist on a conflict": at most 75 in a row for one request of one incarnation.
//   - "is quiet at rest": at most 10 requests a second in the 30 s after the last write. Check looks at that in the end
//     only, and not at Leases and Events.
//   - "runs until its ctx ends", and ends then, within a minute. It may end by itself five times because of a
//     disturbance, and is started again as by a kubelet, at once and after 10, 20, 40 and 80 s. "leaves no goroutine
//     behind", but for one that ends when a time comes, within a year, and those that many programs leave to the end of
//     their process: of an EventBroadcaster of client-go, of a watch with a filter, and those that each start leaves,
//     as many each time. More of them with each event, or with what goes wrong, would be a leak. Those of an
//     incarnation that has ended with an error before the end of the run may stay as well, as of one that cannot start,
//     and those of Scenario.Beside. They stay until the test binary ends, with the server of each run: about a megabyte
//     a run.
//   - "has the rights that it needs": the roles allow each request. Check is silent without Scenario.User.
//   - "has its APIs served": Scenario.Outside has each host that a program asks.
//   - "has its webhooks served": there is a handler for each webhook that the server had to call, or a program has
//     listened. Check is silent about webhooks whose failurePolicy is Ignore.
//
// Right programs may end differently as well, and Check learns in what from runs in which nothing goes wrong:
//
//   - By the time. One run begins later, on a server with higher versions, and has 10 minutes more in the end. What
//     differs then is not compared, such as jobs that are named by the time, their number, and a resourceVersion in a
//     status. If the program makes or deletes something in the 10 minutes, writes of these kinds are no sign that it is
//     not idempotent.
//   - By what came first, and by what was tried again: the order of lists in a status, of owners and of finalizers is
//     never compared, nor is a count in a status that is higher, and whose name ends as if it counted tries, such as
//     retryCount or failures.
//   - By names that the program draws itself, such as with the first digits of a UUID: objects that only one of two
//     runs has are the same but for their names, if these differ in parts of the same length.
//   - By what the program has seen. It starts after all steps, or sees no event of them. Annotations, labels of objects
//     and fields of a status that end alike in both, and unlike in the run that sees all, are not compared, such as the
//     last operation or a condition that an earlier step has left. Of labels this holds where one is missing, or is a
//     number, or is on an object of others: another word on an object of its own says what there is. The same holds for
//     what differs after a step that is done twice. A program that is not deterministic sees some of it by luck: it
//     runs three times each, and one of them will do. Nor is it compared then whether a field is there that is empty:
//     false, 0, "", {} or []. A program that writes back what a user has applied drops some of these, and adds others.
//   - By what an object that is made anew has not gone through, such as its generations: the run may also end as one in
//     which nothing goes wrong, and users have not applied that object before.
//   - By what nothing asks for any more, such as a claim of an earlier size: an object from before the last step that
//     is made in neither of these two runs, and not again when it is deleted in the end. In its place there may be
//     another one that an earlier step has left, as the last ten revisions are kept, with the same owners, and with a
//     name that begins alike.
//
// Check logs what it does not compare. A run is not judged in which a third party deletes what a finalizer of others
// keeps, or in which that keeps an object from being made anew, or in which the server refuses a step with 403 or 422
// after a third party has deleted or made anew something: no program can undo that. Where a user deletes something
// before the program has put its finalizer on it, objects of others that the program would have deleted then may stay.
// The end of a run is not compared in which a third party deletes what is controlled by an object that is done, and
// still is in the end: a condition of it such as Complete, Succeeded, Finished or Done is True, or its phase, state or
// status is one of these, as jobStatus of a RayJob may be, or its status has the time of its end, such as
// completionTime, and that is over, or it is a Job that has failed. Nobody has to make anew a Job of something that is
// complete, unless Scenario.Settled asks for it, and a restart may make anew what does nothing by itself, such as a
// ServiceAccount. Where something fails for good with a pod that is deleted, as what runs it only once does, "delete
// pods" has to be in Off.
//
// In place of the search [Scenario.Explore] runs all schedules with so many crashes, stale caches and errors.
//
// With go test -v, Check logs what it has tried of what there is, which rights of the roles no run has used, and the
// smallest roles for what the program did. It does not judge rights that only a real server asks for, such as escalate.
//
// Check only tests: that it finds nothing is no proof. Programs must do nothing that leaves the bubble, such as network
// connections of their own. Virtual time passes only while all of a program waits: one that asks again at once, until
// something that is due right now is over, never comes to that, and Check ends after a minute, and says where. A panic
// on a goroutine that the program has started ends the test binary: the label reconciletest.schedule in the head of its
// stack is what Replay takes. klog.Fatal and klog.Exit end the program only, which is started again; os.Exit ends the
// test binary as well, without a word. Tests that call Check must not be parallel with each other: until the test ends
// it replaces http.DefaultTransport and klog.OsExit, and the error handlers of k8s.io/apimachinery/pkg/util/runtime
// while it runs.
func Check(t *testing.T, sc Scenario) {
	t.Helper()
	c := search(t, sc)
	runner{c}.tell()
	if c.explored.begun && len(c.explored.there) == 0 {
		t.Errorf("reconciletest.Check: Scenario.Explore is %s, and there is no place for such a disturbance: nothing "+
			"is known of the program", sc.Explore)
	}
	if c.explored.timeout && !c.explored.complete() && c.over() && !c.enough() {
		t.Errorf("reconciletest.Check: go test's -timeout is near, and Scenario.Explore is not done: %s were run; a "+
			"Scenario.Limit ends it without an error", c.explored)
	}
	if c.untried {
		t.Errorf("reconciletest.Check: Scenario.Limit is %s, or go test's -timeout is near, in which not one "+
			"disturbance was tried: nothing is known of the program", c.mayTake)
	}
}

// tell fails the test for each finding.
func (c runner) tell() {
	c.t.Helper()
	all := alikeFindings(c.findings)
	for i, alike := range all {
		c.t.Errorf("reconciletest.Check: finding %d of %d, %s%s", i+1, len(all), alike[0], others(alike[1:]))
	}
}

// Search does what [Check] does, and returns what it has found in place of failing the test, in the order in which it
// was found. It fails the test at once if the scenario is wrong.
func Search(t *testing.T, sc Scenario) []*Finding {
	t.Helper()
	return search(t, sc).findings
}

func search(t *testing.T, sc Scenario) *check {
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
	if err := sc.Server.prepare(); err != nil {
		t.Fatalf("reconciletest.Check: Scenario.Server: %v", err)
	}
	c := newCheck(t, &sc, limit)
	if sc.Replay != "" {
		c.replay(sc.Replay)
		return c
	}
	if c.reference() {
		learning{c}.history()
		if sc.Explore != (Exhaustive{}) {
			if sc.Budget == 0 && os.Getenv(budgetEnv) == "" {
				budget = 0
			}
			explorer{c}.exhaust(budget)
		} else {
			c.singles()
			runner{c}.several(budget)
		}
	}
	t.Log(c.report())
	return c
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
	exit     *exit
	began    time.Time
	ideal    *ending // of the run in which nothing goes wrong
	jitters  bool    // two runs of one schedule differ
	differs  string  // where, if they do without disturbances
	runs     int
	covered  *coverage
	// consequences are what single disturbances have caused.
	consequences []consequence
	varies       *variance
	findings     []*Finding
	doubted      map[string]int // how often a failure that luck is needed for was replayed, by what it is about
	mayTake      time.Duration  // the schedules with disturbances; zero: there is no limit
	limit        time.Time      // after it no schedule begins; zero: there is none, or none has begun yet
	leftOut      string         // what was not run because of that
	untried      bool           // that is all
	explored     explored
	// leaves are the functions of the goroutines that the program leaves behind when nothing goes wrong, and rewrites
	// the kinds of updates that a restart makes then. Both are findings, and no reason to end the search; see excuse.
	leaves, rewrites map[string]bool
	shortcuts        *shortcuts
}

func newCheck(t *testing.T, sc *Scenario, limit time.Duration) *check {
	c := &check{t: t, scenario: sc, began: time.Now(), covered: newCoverage(), varies: newVariance(),
		doubted: make(map[string]int), leaves: make(map[string]bool), rewrites: make(map[string]bool),
		mayTake: limit, exit: openExit(t), shortcuts: &shortcuts{ends: make(map[string]*snapshot)}}
	return c
}

// over reports whether the limit is reached.
func (c *check) over() bool { return !c.limit.IsZero() && !time.Now().Before(c.limit) }

// enough reports whether there are as many findings as are wanted. Those that differ only in the disturbance count
// once.
func (c *check) enough() bool {
	return len(alikeFindings(c.findings)) >= cmp.Or(c.scenario.Findings, usualFindings)
}

// schedule returns one of all steps, with these disturbances.
func (c *check) schedule(all ...disturbance) schedule {
	return schedule{seed: c.scenario.Seed, steps: len(c.scenario.Steps), disturbances: all,
		ordered: c.scenario.Explore != (Exhaustive{})}
}

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
	failure    *breach
	timeline   []string
	trace      []line
	seen       map[origin]int
	places     map[origin]int
	from       []map[origin]int // of places: what there was before each step
	hooked     map[disturbance]bool
	made       map[string]bool
	watched    map[outlook]bool
	asked      []origin
	happened   map[disturbance]bool
	used       map[string]usage
	afterStep  []snapshot
	last       snapshot
	idle       map[string]bool // what it writes when there is nothing to do, by kind
	did        map[string]bool // resources that the world has written about
	invalid    map[string]int
	finalizers map[string]bool
	changes    map[string]bool // what each of several programs has changed; see authors
	crowded    bool            // goroutines are left that may be; see leaks
	overlooked bool            // some are left that leaks has not seen
	guarded    map[string]bool // see guards
	stays      map[string]int  // see eachStart
}

// run runs a schedule, and counts it.
func (c *check) run(s schedule, ideal *ending) *ending {
	o := runner{c}.play(s, ideal)
	runner{c}.count(s, o)
	return o
}

func (c runner) count(s schedule, o *ending) {
	c.runs++
	c.covered.add(s, o, c.ideal)
}

// inBubble is play, without looking whether the run stands still.
func (c runner) inBubble(s schedule, ideal *ending, shortcut *snapshot, w *watchman) *ending {
	o := c.once(s, ideal, shortcut, w, c.scenario.Parallel)
	if o.overlooked {
		o = c.once(s, ideal, shortcut, w, true)
	}
	return o
}

// once is one run of inBubble. closely: it looks for goroutines that are left whatever the number of all is; see leaks.
func (c runner) once(s schedule, ideal *ending, shortcut *snapshot, w *watchman, closely bool) (o *ending) {
	o = &ending{}
	defer func() {
		if r := recover(); r != nil && !(o.timeline != nil && (o.crowded || c.scenario.isOff(ruleNoLeaks))) {
			o.broken(r, closely) // else they stay, and what they hold with them
		}
	}()
	synctest.Test(c.t, func(t *testing.T) {
		options := c.scenario.Server
		options.Seed = s.seed
		options.CollectAfter = cmp.Or(options.CollectAfter, collectAfter)
		time.Sleep(time.Duration(s.seed % uint64(time.Second))) // the clock seeds the random numbers of this library
		if s.later {
			time.Sleep(laterBy)
		}
		server := NewServer(t, options)
		if s.later {
			age(server, laterVersions)
		}
		r := newRun(t.Context(), c.scenario, s, server)
		r.varies, r.leaves, r.rewrites, server.drawn = c.varies, c.leaves, c.rewrites, c.varies.drawn
		if c.ideal != nil {
			maps.Copy(r.finalizers, c.ideal.finalizers)
		}
		r.ideal, r.shortcut, r.closely = ideal, shortcut, closely
		defer c.exit.enter(r.gates, w)()
		r.play()
		verdict{r}.compare()
		verdict{r}.blame()
		story := r.timeline
		if c.scenario.Replay != "" {
			story = r.whole
		}
		*o = ending{failure: r.failure, timeline: story(), trace: r.trace, seen: r.seen, places: r.places,
			hooked: r.hooked, watched: r.watched, afterStep: r.afterStep, last: r.last, made: map[string]bool{},
			asked: r.asked, happened: r.happened, used: r.used, idle: r.idle, invalid: r.invalids,
			finalizers: r.finalizers, from: r.from, changes: r.authors.changes(), crowded: r.crowded,
			guarded: r.guarded, stays: r.stays}
		if o.places == nil { // it has failed before its end
			o.places = maps.Clone(r.seen)
		}
		if r.around != nil {
			o.did = r.around.did
		}
		if r.void && len(s.disturbances) > 0 {
			o.failure = nil
		}
		for _, id := range r.made {
			o.made[id.resource] = true
		}
	})
	return o
}

// broken says why the bubble of a run has ended early, or with goroutines in it.
func (o *ending) broken(why any, closely bool) {
	o.overlooked = o.timeline != nil && o.failure == nil && !closely
	left := &breach{rule: ruleEnds, detail: []string{fmt.Sprint(why), "goroutines of the program are left"}}
	if o.timeline == nil {
		left.detail = append(left.detail, string(debug.Stack()))
	}
	o.failure = cmp.Or(o.failure, left)
}

// reference runs the scenario without disturbances, and reports whether that has shown nothing that each other run
// would show, too.
func (c *check) reference() bool {
	all := c.schedule()
	later := c.run(schedule{seed: all.seed, steps: all.steps, later: true}, nil)
	c.varies.learnClocked(later.idle)
	c.ideal = c.run(all, nil)
	for range replays { // a failure that needs luck is left to the other schedules
		if c.ideal.failure == nil {
			break
		}
		failed := c.ideal
		c.ideal = c.run(all, nil)
		c.jitters = c.jitters || partAt(failed.trace, c.ideal.trace) != ""
		if c.stands(all, nil, failed.failure, mustFail) > 0 {
			c.found(all, failed, failed.failure.about())
			if c.excuse(failed.failure) {
				return c.reference()
			}
			c.findings[len(c.findings)-1].ended = true
			return false
		}
	}
	maps.Copy(c.varies.stays, c.ideal.stays)
	again := c.run(all, nil)
	if c.varies.learnDrawn(later, c.ideal, again) {
		return c.reference() // all ends have to call these objects alike
	}
	c.differs = partAt(c.ideal.trace, again.trace)
	c.jitters = c.jitters || c.differs != ""
	learning{c}.noise(later)
	learning{c}.reversed()
	return true
}

// excuse takes what a failure that needs no disturbance is about from what is judged, and reports whether the search
// can go on then. Goroutines that are left and updates that a restart makes leave the ends of other runs as they are.
func (c *check) excuse(b *breach) bool {
	of := map[string]map[string]bool{ruleNoLeaks: c.leaves, ruleIdempotent: c.rewrites}[b.rule]
	if of == nil || b.rule == ruleIdempotent && !allUpdates(b.where) {
		return false
	}
	for _, what := range b.where {
		of[what] = true
	}
	return true
}

// allUpdates reports whether requests of these kinds make and delete nothing.
func allUpdates(kinds []string) bool {
	return !slices.ContainsFunc(kinds, func(kind string) bool {
		return verbOf(kind) != "update" && verbOf(kind) != "patch"
	})
}

// singles runs every schedule with one disturbance, until there are enough findings, or until the limit.
func (c *check) singles() {
	all := c.possible()
	runner{c}.announce(len(all))
	runner{c}.bound()
	done := 0
	for s, o := range (runner{c}).inOrder(runner{c}.each(singly(all)), c.limit) {
		c.judge(s, o)
		c.note(s.disturbances[0], o)
		done++
	}
	if done < len(all) && !c.enough() {
		c.untried = done == 0
		c.leftOut = fmt.Sprintf("%d of the %d schedules with one disturbance, and all with several", len(all)-done,
			len(all))
	}
}

// several runs schedules with several disturbances: pairs of which one makes use of the other, and then others, until
// there are enough findings, until the limit, and the others in a time.
func (c runner) several(budget time.Duration) {
	c.pairs()
	c.causal(c.within(budget / 2))
	c.random(c.within(budget / 2))
	if c.leftOut == "" && c.over() {
		c.leftOut = "schedules with several disturbances"
	}
}

// singly returns schedules with one disturbance each.
func singly(all []disturbance) [][]disturbance {
	var each [][]disturbance
	for _, d := range all {
		each = append(each, []disturbance{d})
	}
	return each
}

// bound begins the time that Scenario.Limit allows.
func (c runner) bound() {
	if c.mayTake > 0 {
		c.limit = time.Now().Add(c.mayTake)
	}
}

// announce says how long the schedules with one disturbance will take, by the runs that there were. A disturbance makes
// a run longer, by a retry or a restart.
func (c runner) announce(singles int) {
	took := time.Since(c.began) / time.Duration(c.runs) * time.Duration(singles) / time.Duration(c.atOnce())
	text := fmt.Sprintf("%d runs without disturbances took %s, so the %d with one will take about %s; replays of what "+
		"fails, and schedules with several disturbances, come on top", c.runs,
		time.Since(c.began).Round(time.Millisecond), singles, took.Round(100*time.Millisecond))
	if c.mayTake > 0 {
		text += fmt.Sprintf("; the limit is %s", c.mayTake)
	}
	c.t.Log(text)
}

// possible returns the disturbances that the reference run has had a place for.
func (c *check) possible() []disturbance { return c.scenario.possible(c.ideal) }

// possible returns the disturbances that a run has had a place for.
func (s *Scenario) possible(o *ending) []disturbance {
	var all []disturbance
	for _, what := range ofRun {
		if what != unseenAll || len(s.Steps) > 1 {
			all = append(all, disturbance{what: what})
			all = append(all, each(disturbance{what: what}, s.Programs)...)
		}
	}
	for n, step := range s.Steps {
		all = append(all, s.possibleAt(o, n+1, step)...)
	}
	for _, from := range slices.SortedFunc(maps.Keys(o.places), compareOrigins) {
		places := o.places[from]
		if alike(from.kind) {
			places = min(places, 2)
		}
		for n := range places {
			hooked := o.hooked[disturbance{of: from.kind, n: n + 1, program: from.program}]
			for _, what := range s.kindsAt(from.kind, hooked) {
				if !o.nothing(what, from, n+1, len(s.Steps)) {
					all = append(all, disturbance{what, from.kind, n + 1, from.program})
				}
			}
		}
	}
	all = slices.DeleteFunc(all, s.spares)
	// Each kind of disturbance once before any of them again.
	slices.SortStableFunc(all, func(a, b disturbance) int { return cmp.Compare(a.n, b.n) })
	return all
}

// possibleAt returns the disturbances that a run has had a place for at a step.
func (s *Scenario) possibleAt(o *ending, n int, step Step) (all []disturbance) {
	for _, what := range atSteps {
		switch {
		case slices.Contains(ofRun, what),
			(what == namesake || what == namesakeNow) && step.documents == nil,
			what == reordered && slices.Equal(step.reordered(), step.documents):
		case slices.Contains(ofAll, what) || len(s.Programs) == 0:
			all = append(all, disturbance{what: what, n: n})
		default:
			all = append(all, each(disturbance{what: what, n: n}, s.Programs)...)
		}
	}
	for _, w := range slices.SortedFunc(maps.Keys(o.watched), compareOutlooks) {
		all = append(all, disturbance{late, w.resource, n, w.program}, disturbance{frozen, w.resource, n, w.program})
	}
	for _, resource := range slices.Sorted(maps.Keys(o.made)) {
		all = append(all, disturbance{what: stray, of: resource, n: n})
	}
	for _, resource := range slices.Sorted(maps.Keys(o.did)) {
		all = append(all, disturbance{what: worldSlow, of: resource, n: n})
		if resource == world.Pods || resource == world.Jobs {
			all = append(all, disturbance{what: worldFails, of: resource, n: n})
		}
	}
	return all
}

// nothing reports whether a disturbance at the n-th request of a kind would change nothing: there is no object for a
// third party before a creation, and no next step in the last one.
func (o *ending) nothing(what string, from origin, n, steps int) bool {
	return what == touch && verbOf(from.kind) == "create" || what == early && o.stepOf(from, n) == steps
}

// stepOf returns the step in which the program has made the n-th request of a kind; 0: before the first one.
func (o *ending) stepOf(from origin, n int) (step int) {
	for step < len(o.from) && o.from[step][from] < n {
		step++
	}
	return step
}

// try runs a schedule, and notes what it finds.
func (c *check) try(s schedule) { c.judge(s, c.run(s, c.ideal)) }

// judge shrinks a schedule that has found something new, or in fewer lines than what is known, and notes it.
func (c *check) judge(s schedule, o *ending) {
	if o.failure == nil {
		return
	}
	if known := c.known(s, o); known != nil && o.length() >= known.length {
		known.Count++
		return
	}
	sort := o.failure.rule + "\n" + o.failure.about() + "\n" + strings.Join(s.kinds(), "\n")
	if c.doubted[sort] >= mostDoubts {
		return
	}
	failed := c.stands(s, c.ideal, o.failure, o.failure.mustFail())
	if failed == 0 {
		c.doubted[sort]++
		return
	}
	smaller, end := c.shrink(s, o, min(failed, mustFail))
	c.found(smaller, end, o.failure.about())
}

// stands returns in how many replays the failure of a run is there again, if that is in as many as it must for it to be
// one of the program; 0: it is not.
func (c *check) stands(s schedule, ideal *ending, b *breach, must int) int {
	failed := c.failures(s, ideal, b)
	if failed < must {
		c.t.Logf("a schedule has failed by the rule %q, and again in %d of %d replays, which is too seldom to be "+
			"judged: the program is not deterministic; one worker, and lists that are sorted before they are worked "+
			"on, make it more so. Replay: %q tries it until it fails", b.rule, failed, replays, s)
		return 0
	}
	return failed
}

// mustFail returns in how many replays a failure has to be there again. What differs from another run may be due to
// luck, which a program that is not deterministic has with and without a disturbance. A write that must not happen is a
// fact whatever has led to it; it has to be seen again, so that there is something to replay.
func (b *breach) mustFail() int {
	if b.rule == ruleAlways {
		return 1
	}
	return mustFail
}

// failures returns how many of some replays of a schedule fail, of failures by Always those that do so again. Two of
// them stand for all if they are equal. Programs that jitter need all, since their failure may need luck.
func (c *check) failures(s schedule, ideal *ending, b *breach) int {
	fails := func(o *ending) bool {
		return o.failure != nil && (b.rule != ruleAlways || o.failure.rule == ruleAlways)
	}
	if !c.jitters {
		first, second := c.run(s, ideal), c.run(s, ideal)
		if fails(first) && partAt(first.trace, second.trace) == "" {
			return replays
		}
	}
	c.jitters = true
	failed := 0
	for range replays {
		if fails(c.run(s, ideal)) {
			failed++
		}
	}
	return failed
}

// random runs random schedules of two and three disturbances, until there are enough findings, or until a time.
func (c *check) random(until time.Time) {
	places := c.possible()
	random := rand.New(rand.NewPCG(c.scenario.Seed, 2))
	schedules := func(yield func(schedule) bool) {
		for len(places) > 0 {
			s := schedule{seed: random.Uint64(), steps: len(c.scenario.Steps)}
			for range 2 + random.IntN(2) {
				s.disturbances = append(s.disturbances, places[random.IntN(len(places))])
			}
			if !yield(s) {
				return
			}
		}
	}
	for s, o := range (runner{c}).inOrder(schedules, until) {
		c.judge(s, o)
	}
}

// shrink takes out of a schedule that fails what is not needed for it to fail in as many replays as it must:
// disturbances, and steps at the end.
func (c *check) shrink(s schedule, o *ending, must int) (schedule, *ending) {
	for i := 0; i < len(s.disturbances) && len(s.disturbances) > 1; {
		less := s
		less.disturbances = slices.Delete(slices.Clone(s.disturbances), i, i+1)
		if smaller := c.fails(less, c.ideal, must); smaller != nil && smaller.failure.about() == o.failure.about() {
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
		if smaller := c.fails(less, ideal, must); smaller != nil && smaller.failure.rule == o.failure.rule {
			return less, smaller
		}
	}
	return s, o
}

// fails returns how a smaller schedule ends, if it fails in as many replays as it must, so that what is shown fails as
// reliably as the larger one; nil: it does not.
func (c *check) fails(s schedule, ideal *ending, must int) *ending {
	o := c.run(s, ideal)
	if o.failure == nil || c.jitters && c.failures(s, ideal, o.failure) < must {
		return nil
	}
	return o
}

// replay runs one schedule, after the ones that say what may differ.
func (c *check) replay(text string) {
	c.t.Helper()
	s, err := c.scenario.parse(text)
	if err != nil {
		c.t.Fatalf("reconciletest.Check: Scenario.Replay: %v", err)
	}
	if good := c.reference(); len(s.disturbances) == 0 && s.steps == len(c.scenario.Steps) {
		return
	} else if good {
		learning{c}.history()
	}
	c.findings = nil
	if len(s.disturbances) == 0 { // what it shows was excused, if it was found before
		clear(c.leaves)
		clear(c.rewrites)
	}
	ideal := c.run(schedule{seed: c.scenario.Seed, steps: s.steps}, nil)
	if ideal.failure != nil {
		ideal = nil
	}
	for try := 0; len(c.findings) == 0 && try < replays; try++ { // it may need luck
		if o := c.run(s, ideal); o.failure != nil {
			c.found(s, o, o.failure.about())
		}
	}
}
