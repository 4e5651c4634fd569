package reconciletest

import (
	"fmt"
	"slices"
	"strings"
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
	// Errors are lose answer, 429, 500, 504, late 504, touch before, 500 for 20 s, and those of webhooks.
	Errors int
	// Others are all others, such as next step, namesake after, delete, slow, world slow.
	Others int
}

var (
	crashes = []string{crashBefore, crashAfter, overlap, down, downTwice}
	stale   = []string{unseen, unseenAll, cut, late, frozen, timeTravel, backTo}
	errings = slices.Concat([]string{loseAnswer, refuse429, refuse500, timeout504, applied504, touch, outage}, atHooks)
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
type explored struct{ there, run []int }

func (e explored) String() string {
	var all []string
	for i, n := range e.there {
		all = append(all, fmt.Sprintf("%d of %d with %d", e.run[i], n, i+1))
	}
	return strings.Join(all, ", ")
}

// complete reports whether all were run.
func (e explored) complete() bool { return slices.Equal(e.there, e.run) }

// explorer is the part of a check that runs all schedules of some sorts.
type explorer struct{ *check }

// exhaust runs all schedules that Scenario.Explore asks for: first those with one disturbance, then those with one more
// at what the runs before have shown. It ends early when there are enough findings, or at the limit.
func (c explorer) exhaust() {
	runner{c.check}.bound()
	known := map[string]bool{}
	level := c.extended(nil, c.possible(), known)
	for len(level) > 0 {
		c.explored.there = append(c.explored.there, len(level))
		c.explored.run = append(c.explored.run, 0)
		at := len(c.explored.run) - 1
		var next [][]disturbance
		for s, o := range (runner{c.check}).inOrder(runner{c.check}.each(level), c.limit) {
			c.judge(s, o)
			c.explored.run[at]++
			next = append(next, c.extended(s.disturbances, c.scenario.possible(o), known)...)
		}
		if c.explored.run[at] < len(level) {
			break // the next level is not known
		}
		level = next
	}
	c.untried = len(c.explored.run) > 0 && c.explored.run[0] == 0
}

// extended returns what a schedule becomes with one more disturbance, as far as that is allowed and not known yet. Its
// order does not count.
func (c explorer) extended(all, possible []disturbance, known map[string]bool) (longer [][]disturbance) {
	for _, d := range possible {
		if slices.ContainsFunc(all, func(o disturbance) bool {
			return o == d || o.of == d.of && o.n == d.n && atGate(d)
		}) {
			continue
		}
		next := append(slices.Clone(all), d)
		slices.SortFunc(next, func(a, b disturbance) int { return strings.Compare(a.String(), b.String()) })
		key := schedule{disturbances: next}.String()
		if c.scenario.Explore.allows(next) && !known[key] {
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
	if e.complete() {
		return fmt.Sprintf("; %s is done: of the schedules were run %s disturbances", asked, e)
	}
	return fmt.Sprintf("; %s is not done: of the schedules were run %s disturbances", asked, e)
}
