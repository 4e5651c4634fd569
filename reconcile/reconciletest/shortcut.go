package reconciletest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// shortcuts are the ends of runs in which nothing goes wrong either, and in which users have not applied before what a
// schedule makes anew. Who ends as there has done what it does with an object that is new: it may count generations,
// of which that one has fewer. What it has left of the object before is in no such end.
type shortcuts struct {
	mu   sync.Mutex           // it is held while a shortcut runs, which others wait for
	ends map[string]*snapshot // guarded by mu: by what is left out; nil: something is wrong with that run
}

// shortcut returns the end of the shorter way that a schedule has; nil: it has none.
func (c runner) shortcut(s schedule) *snapshot {
	left, some := c.leavesOut(s)
	if !some {
		return nil
	}
	key := fmt.Sprint(s.steps, left)
	c.shortcuts.mu.Lock()
	defer c.shortcuts.mu.Unlock()
	end, known := c.shortcuts.ends[key]
	if !known {
		sc, shorter := *c.scenario, *c.check
		sc.Steps, shorter.scenario = sc.leaving(left), &sc
		if o := (runner{&shorter}).play(schedule{seed: sc.Seed, steps: s.steps}, nil); o.counts() {
			end = &o.last
		}
		c.shortcuts.ends[key] = end
	}
	return end
}

// leavesOut says which manifests of the steps are of what a schedule makes anew after a later step, and whether there
// are any.
func (c runner) leavesOut(s schedule) (left [][]bool, some bool) {
	steps := c.scenario.Steps[:s.steps]
	for i, step := range steps {
		left = append(left, make([]bool, len(step.documents)))
		for j, name := range step.applied() {
			left[i][j] = slices.ContainsFunc(s.disturbances, func(d disturbance) bool {
				return (d.what == namesake || d.what == namesakeNow) && i+1 < d.n && d.n <= len(steps) &&
					slices.Contains(steps[d.n-1].applied(), name)
			})
			some = some || left[i][j]
		}
	}
	return left, some
}

// applied returns what the manifests of a step are of.
func (s Step) applied() (names []string) {
	for _, document := range s.documents {
		o := headOf(document)
		names = append(names, fmt.Sprintf("%s %s %s/%s", o.APIVersion, o.Kind, cmp.Or(o.Namespace, "default"), o.Name))
	}
	return names
}

// leaving returns the steps without some of their manifests.
func (s *Scenario) leaving(out [][]bool) []Step {
	steps := slices.Clone(s.Steps)
	for i, some := range out {
		if slices.Contains(some, true) {
			steps[i] = steps[i].leaving(some)
		}
	}
	return steps
}

// asInShortcut takes from the differences of an end from the ideal one those in which it is like the shortcut: none, if
// there is something that the shortcut does not have, which is left of the object before.
func (r verdict) asInShortcut(all []difference, end snapshot) []difference {
	others := r.varies.matter(end.differences(*r.shortcut))
	if slices.ContainsFunc(others, difference.onlyInB) {
		return all
	}
	return slices.DeleteFunc(all, func(d difference) bool {
		return !slices.ContainsFunc(others, func(other difference) bool {
			return other.object == d.object && (other.path == d.path || other.path == "" || d.path == "")
		})
	})
}
