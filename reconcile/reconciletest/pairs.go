package reconciletest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// pairs runs the schedules of two disturbances of which the second makes use of the first, until there are enough
// findings, or until the limit.
func (c *check) pairs() {
	missed, unknown := runner{c}.unspared(runner{c}.missed()), runner{c}.unspared(runner{c}.unknown())
	done := runner{c}.tryPairs(missed, 1) + runner{c}.tryPairs(unknown, lucky)
	if all := len(missed) + len(unknown); done < all && c.leftOut == "" && !c.enough() {
		c.leftOut = fmt.Sprintf("%d of the %d pairs that are always tried, and all others", all-done, all)
	}
}

// unspared returns the schedules in which nothing is switched off.
func (c runner) unspared(all []schedule) []schedule {
	return slices.DeleteFunc(all, func(s schedule) bool {
		return slices.ContainsFunc(s.disturbances, c.scenario.spares)
	})
}

// lucky is how often a schedule is run that may need luck.
const lucky = 3

// tryPairs runs some schedules, and again up to times if the program is not deterministic, as one of them may show. It
// returns how many of them were run.
func (c runner) tryPairs(all []schedule, times int) (done int) {
	for n := 0; n == 0 || c.jitters && n < times; n++ {
		for i, s := range all {
			if c.enough() || c.over() {
				return done
			}
			c.try(s)
			done = max(done, i+1)
		}
	}
	return done
}

// missed returns the schedules in which the program does not see a step, or not when it is done, and later starts anew
// with an old cache.
func (c runner) missed() (all []schedule) {
	for n := range c.scenario.Steps {
		for later := n; later < len(c.scenario.Steps); later++ {
			for _, missed := range []string{down, downTwice, unseen} {
				for _, old := range []string{timeTravel, backTo} {
					for _, program := range c.scenario.names() {
						all = append(all, c.schedule(disturbance{missed, "", n + 1, program},
							disturbance{old, "", later + 1, program}))
					}
				}
			}
		}
	}
	return all
}

// unknown returns the schedules in which the program cannot know that the server has done a write: the answer is lost,
// and the events of the resource come late, by which its cache would show it. The first write of each kind in a step
// stands for all.
func (c runner) unknown() (all []schedule) {
	for _, from := range slices.SortedFunc(maps.Keys(c.ideal.places), compareOrigins) {
		seen := outlook{from.program, subjectOf(from.kind)}
		if !writes(from.kind) || alike(from.kind) || !c.ideal.watched[seen] {
			continue
		}
		last := 0
		for n := range c.ideal.places[from] {
			if step := c.ideal.stepOf(from, n+1); step > last {
				last = step
				all = append(all, c.schedule(disturbance{loseAnswer, from.kind, n + 1, from.program},
					disturbance{late, seen.resource, step, from.program}))
			}
		}
	}
	return all
}

// mostCaused is how many of the requests that a disturbance has caused are disturbed, too: the first ones.
const mostCaused = 8

// consequence is a disturbance with a request that the program makes because of it.
type consequence struct {
	cause   disturbance
	request disturbance // its kind and number, and not what goes wrong at it
}

// caused returns the requests that a run has and the reference run has not: both begin alike, both end alike, and these
// are between. They are the retries of a write that failed, the lists after a restart and the repairs of what is
// missing.
func caused(asked, ideal []origin) []disturbance {
	asked, ideal = slices.DeleteFunc(slices.Clone(asked), isAlike), slices.DeleteFunc(slices.Clone(ideal), isAlike)
	most := min(len(asked), len(ideal))
	from, end := 0, 0
	for from < most && asked[from] == ideal[from] {
		from++
	}
	for end < most-from && asked[len(asked)-1-end] == ideal[len(ideal)-1-end] {
		end++
	}
	var all []disturbance
	counts := map[origin]int{}
	for i, o := range asked[:min(len(asked)-end, from+mostCaused)] {
		counts[o]++
		if i >= from {
			all = append(all, disturbance{of: o.kind, n: counts[o], program: o.program})
		}
	}
	return all
}

func isAlike(o origin) bool { return alike(o.kind) }

// note keeps what a single disturbance has caused.
func (c *check) note(d disturbance, o *ending) {
	for _, request := range caused(o.asked, c.ideal.asked) {
		c.consequences = append(c.consequences, consequence{d, request})
	}
}

// causal runs schedules of two disturbances, of which the second is at a request that the program makes because of the
// first one, until there are enough findings, or until a time. Writes go first.
func (c *check) causal(until time.Time) {
	var atWrite, atRead []consequence
	for _, q := range c.consequences {
		if writes(q.request.of) {
			atWrite = append(atWrite, q)
		} else {
			atRead = append(atRead, q)
		}
	}
	c.disturbAgain(atWrite, until)
	c.disturbAgain(atRead, until)
}

// causalPairs returns how many schedules causal has, if there is time for all.
func (c *check) causalPairs() (n int) {
	for _, q := range c.consequences {
		n += len(c.scenario.kindsAt(q.request.of, false))
	}
	return n
}

// disturbAgain runs the schedules of consequences, with each kind of disturbance at their requests. Schedules that
// differ only in the numbers of requests are alike: one of each sort goes first, then a second one of each.
func (c *check) disturbAgain(all []consequence, until time.Time) {
	type sort struct{ cause, causeOf, causeBy, what, of, by string }
	sorts := map[sort][]schedule{}
	var order []sort
	for _, q := range all {
		for _, what := range c.scenario.kindsAt(q.request.of, false) {
			second := disturbance{what, q.request.of, q.request.n, q.request.program}
			if c.scenario.spares(second) {
				continue
			}
			k := sort{q.cause.what, q.cause.of, q.cause.program, what, second.of, second.program}
			if sorts[k] == nil {
				order = append(order, k)
			}
			sorts[k] = append(sorts[k], c.schedule(q.cause, second))
		}
	}
	random := rand.New(rand.NewPCG(c.scenario.Seed, 3))
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	schedules := func(yield func(schedule) bool) {
		for round, left := 0, true; left; round++ {
			left = false
			for _, k := range order {
				if round >= len(sorts[k]) {
					continue
				}
				if !yield(sorts[k][round]) {
					return
				}
				left = true
			}
		}
	}
	for s, o := range (runner{c}).inOrder(schedules, until) {
		c.judge(s, o)
	}
}
