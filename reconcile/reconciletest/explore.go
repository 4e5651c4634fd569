package reconciletest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Exhaustive says how many disturbances of each sort a schedule may have, for [Scenario.Explore]. All schedules with so
// many are run. A second disturbance may also be at a request that the program makes because of the first one.
//
// The sorts are made of the disturbances of the package's doc comment. Of two at one request only one can happen, so
// there are no such pairs.
type Exhaustive struct {
	// Crashes are crash before, crash after, second, down, down over.
	Crashes int
	// Stale are unseen, unseen steps, cut, late, frozen, old cache after, back to.
	Stale int
	// Errors are lose answer, 429, 500, 504, late 504, touch before, 500 for 20 s, no answer, late answer, and those of
	// webhooks.
	Errors int
	// Others are all others, such as next step, held, namesake after, delete, slow, world slow.
	Others int
}

var (
	crashes = []string{crashBefore, crashAfter, overlap, down, downTwice}
	stale   = []string{unseen, unseenAll, cut, late, frozen, timeTravel, backTo}
	errings = slices.Concat([]string{loseAnswer, refuse429, refuse500, timeout504, applied504, touch, outage,
		unanswered, lateAnswer}, atHooks)
)

// allows reports whether a schedule may have these disturbances.
func (e Exhaustive) allows(all []disturbance) bool {
	for _, d := range all {
		switch {
		case slices.Contains(crashes, d.what):
			e.Crashes--
		case slices.Contains(stale, d.what):
			e.Stale--
		case slices.Contains(errings, d.what):
			e.Errors--
		default:
			e.Others--
		}
	}
	return min(e.Crashes, e.Stale, e.Errors, e.Others) >= 0
}

func (e Exhaustive) validate() error {
	if min(e.Crashes, e.Stale, e.Errors, e.Others) < 0 {
		return fmt.Errorf("Scenario.Explore is %s: no number may be negative", e)
	}
	return nil
}

// String returns it as it is written in Go, without zeros.
func (e Exhaustive) String() string {
	var all []string
	for _, sort := range []struct {
		name string
		n    int
	}{{"Crashes", e.Crashes}, {"Stale", e.Stale}, {"Errors", e.Errors}, {"Others", e.Others}} {
		if sort.n != 0 {
			all = append(all, fmt.Sprintf("%s: %d", sort.name, sort.n))
		}
	}
	return "Exhaustive{" + strings.Join(all, ", ") + "}"
}

// explored is how far an exhaustive search has come: how many schedules there are with one disturbance, with two, and
// so on, and how many of them were run.
type explored struct {
	begun      bool
	there, run []int
	happened   []int // of those that were run: in which all that the schedule has came about
	cut        bool  // there are more than can be remembered
	timeout    bool  // the limit is go test's -timeout
}

func (e explored) String() string {
	var all []string
	for i, n := range e.there {
		all = append(all, fmt.Sprintf("%d of %d with %d", e.run[i], n, i+1))
	}
	return strings.Join(all, ", ")
}

// complete reports whether there were any, and all were run.
func (e explored) complete() bool { return len(e.there) > 0 && !e.cut && slices.Equal(e.there, e.run) }

// left returns how many of those that are known were not run.
func (e explored) left() (n int) {
	for i := range e.there {
		n += e.there[i] - e.run[i]
	}
	return n
}

// explorer is the part of a check that runs all schedules of some sorts.
type explorer struct{ *check }

// exhaust runs all schedules that Scenario.Explore asks for: first those with one disturbance, then those with one more
// at what the runs before have shown. It ends early when there are enough findings, at the limit, and when the
// schedules with several disturbances have taken the budget; zero: that is none.
func (c explorer) exhaust(budget time.Duration) {
	runner(c).bound()
	c.beforeTimeout()
	c.explored.begun = true
	known := map[string]bool{}
	level := c.extended(nil, c.possible(), known)
	for len(level) > 0 {
		c.explored.there = append(c.explored.there, len(level))
		c.explored.run, c.explored.happened = append(c.explored.run, 0), append(c.explored.happened, 0)
		at, until := len(c.explored.run)-1, c.limit
		took := time.Since(c.began) / time.Duration(c.runs) * time.Duration(len(level)) / time.Duration(
			runner(c).atOnce())
		c.t.Logf("%d schedules with %d disturbances will take about %s", len(level), at+1,
			took.Round(100*time.Millisecond))
		if at == 1 && budget > 0 {
			until = c.within(budget)
			c.explored.timeout, c.limit = c.explored.timeout && until.Equal(c.limit), until
		}
		var next [][]disturbance
		for s, o := range runner(c).inOrder(runner(c).each(level), until) {
			c.judge(s, o)
			c.explored.run[at]++
			if !slices.ContainsFunc(s.disturbances, func(d disturbance) bool { return !o.happened[d] }) {
				c.explored.happened[at]++
			}
			next = append(next, c.extended(s.disturbances, c.scenario.possible(o), known)...)
		}
		if c.explored.run[at] < len(level) {
			break // the next level is not known
		}
		level = next
	}
	c.untried = len(c.explored.run) > 0 && c.explored.run[0] == 0 && c.over()
}

// beforeTimeout lets the limit be early enough to report before the timeout of go test.
func (c explorer) beforeTimeout() {
	if end, ok := c.t.Deadline(); ok {
		left := time.Until(end)
		limit := c.within(left - min(left/4, time.Minute))
		c.explored.timeout, c.limit = !limit.Equal(c.limit), limit
	}
}

// mostKnown is how many schedules an exhaustive search remembers.
const mostKnown = 1 << 20

// extended returns what a schedule becomes with one more disturbance, as far as that is allowed and not known yet. Its
// order does not count.
func (c explorer) extended(all, possible []disturbance, known map[string]bool) (longer [][]disturbance) {
	for _, d := range possible {
		if slices.ContainsFunc(all, func(o disturbance) bool {
			return o == d || o.of == d.of && o.n == d.n && o.program == d.program && atGate(d)
		}) {
			continue
		}
		next := append(slices.Clone(all), d)
		slices.SortFunc(next, func(a, b disturbance) int { return strings.Compare(a.String(), b.String()) })
		key := schedule{disturbances: next}.String()
		if c.scenario.Explore.allows(next) && !known[key] {
			if len(known) == mostKnown {
				c.explored.cut = true
				break
			}
			known[key] = true
			longer = append(longer, next)
		}
	}
	return longer
}

// atGate reports whether a disturbance is at a request.
func atGate(d disturbance) bool { return d.of != "" && !slices.Contains(ofResources, d.what) }

// report says how far it has come.
func (e explored) report(asked Exhaustive) string {
	var happened []string
	for _, n := range e.happened {
		happened = append(happened, fmt.Sprint(n))
	}
	of := fmt.Sprintf("of the schedules were run %s disturbances; in %s of them all happened", e,
		strings.Join(happened, " and "))
	switch {
	case e.complete():
		return fmt.Sprintf("; %s is done: %s", asked, of)
	case len(e.there) == 0:
		return fmt.Sprintf("; %s is not done: no schedule was run", asked)
	}
	return fmt.Sprintf("; %s is not done: %s; %d are left, and those with more", asked, of, e.left())
}
