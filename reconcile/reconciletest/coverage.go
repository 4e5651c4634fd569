package reconciletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// coverage counts what the schedules of a check have tried.
type coverage struct {
	tried    map[place]*tally
	at       map[disturbance]bool // at requests: which have happened
	requests int                  // of the program, in all runs
	used     map[string]usage     // by program
}

// place is a kind of disturbance, and where it is: at writes, reads or steps, or at requests to the outside.
type place struct{ what, where string }

func placeOf(d disturbance) place {
	switch {
	case d.of == "" || slices.Contains(ofResources, d.what):
		return place{d.what, "steps"}
	case isOutside(d.of) && writes(d.of):
		return place{d.what, "writes to the outside"}
	case isOutside(d.of):
		return place{d.what, "reads from the outside"}
	case writes(d.of):
		return place{d.what, "writes"}
	}
	return place{d.what, "reads"}
}

// tally counts schedules with one kind of disturbance.
type tally struct {
	schedules int // that had it
	happened  int // in which the program came to the place of it
	alone     int // in which it happened, and nothing else did
	mattered  int // of those alone: in which the program's requests were not those of the reference run
}

func newCoverage() *coverage {
	return &coverage{tried: make(map[place]*tally), at: make(map[disturbance]bool), used: make(map[string]usage)}
}

// add counts a run. ideal is the reference run, or nil.
func (c *coverage) add(s schedule, o, ideal *ending) {
	c.requests += len(o.asked)
	for program, used := range o.used {
		if c.used[program] == nil {
			c.used[program] = make(usage)
		}
		maps.Copy(c.used[program], used)
	}
	for i, d := range s.disturbances {
		if atGate(d) && o.happened[d] {
			c.at[d] = true
		}
		at := placeOf(d)
		if slices.ContainsFunc(s.disturbances[:i], func(e disturbance) bool { return placeOf(e) == at }) {
			continue
		}
		t := c.tried[at]
		if t == nil {
			t = &tally{}
			c.tried[at] = t
		}
		t.schedules++
		if !slices.ContainsFunc(s.disturbances, func(e disturbance) bool { return placeOf(e) == at && o.happened[e] }) {
			continue
		}
		t.happened++
		if len(s.disturbances) > 1 || ideal == nil {
			continue
		}
		t.alone++
		if !slices.Equal(o.asked, ideal.asked) {
			t.mattered++
		}
	}
}

// String has a line for each of the places where something can go wrong. A number is that of the schedules.
func (c *coverage) String() string {
	var b strings.Builder
	var never, same []string
	for _, at := range []struct {
		where string
		kinds []string
	}{
		{"writes", slices.Concat(atWrites, atHooks, atOthers)}, {"reads", slices.Concat(atReads, atHooks)},
		{"writes to the outside", slices.Concat(atAPIWrites, atOthers)}, {"reads from the outside", atAPIReads},
		{"steps", slices.Concat(atSteps, ofResources)},
	} {
		var texts []string
		for _, what := range at.kinds {
			t := c.tried[place{what, at.where}]
			if t == nil {
				continue
			}
			what = nameOfKind(what)
			texts = append(texts, fmt.Sprintf("%s %d", what, t.happened))
			what += " (" + at.where + ")"
			switch {
			case t.happened == 0:
				never = append(never, what)
			case t.alone > 0 && t.mattered == 0:
				same = append(same, what)
			}
		}
		if len(texts) > 0 {
			fmt.Fprintf(&b, "\n  at %s: %s", at.where, strings.Join(texts, ", "))
		}
	}
	if len(never) > 0 {
		fmt.Fprintf(&b, "\n  never happened: %s", strings.Join(never, ", "))
	}
	if len(same) > 0 {
		fmt.Fprintf(&b, "\n  happened, and the program asked for the same as without: %s", strings.Join(same, ", "))
	}
	return b.String()
}

// ofAll says how many of the disturbances have happened that there are for each kind of request, at each request of a
// run in which nothing goes wrong.
func (c *coverage) ofAll(sc *Scenario, ideal *ending) string {
	var atWrite, atRead []string
	for _, from := range slices.SortedFunc(maps.Keys(ideal.places), compareOrigins) {
		there, tried := 0, 0
		for n := range ideal.places[from] {
			at := disturbance{of: from.kind, n: n + 1, program: from.program}
			for _, what := range sc.kindsAt(from.kind, ideal.hooked[at]) {
				if ideal.nothing(what, from, n+1, len(sc.Steps)) {
					continue
				}
				at.what = what
				if there++; c.at[at] {
					tried++
				}
			}
		}
		text := fmt.Sprintf("%s %d of %d", from, tried, there)
		if alike(from.kind) && ideal.places[from] > 2 {
			text += " (the first two stand for all)"
		}
		if writes(from.kind) {
			atWrite = append(atWrite, text)
		} else {
			atRead = append(atRead, text)
		}
	}
	text := ""
	if len(atWrite) > 0 {
		text += "\n  each write x each disturbance at it, happened: " + strings.Join(atWrite, ", ")
	}
	if len(atRead) > 0 {
		text += "\n  each read x each disturbance at it, happened: " + strings.Join(atRead, ", ")
	}
	return text
}

// report says what a check has tried, for go test -v.
func (c *check) report() string {
	requests := 0
	for _, n := range c.ideal.seen {
		requests += n
	}
	took, places := time.Since(c.began), len(c.possible())
	text := fmt.Sprintf("%d runs in %s (%.0f a second), %d requests of the program (%.0f a second); the run without "+
		"disturbances has %d steps and %d requests of %d kinds, places for %d disturbances", c.runs,
		took.Round(time.Millisecond), float64(c.runs)/took.Seconds(), c.covered.requests,
		float64(c.covered.requests)/took.Seconds(), len(c.scenario.Steps), requests, len(c.ideal.seen), places)
	if c.scenario.Explore == (Exhaustive{}) {
		text += fmt.Sprintf("; of their %d pairs, %d are of a disturbance with one at a request that it has caused",
			places*(places-1)/2, c.causalPairs())
	}
	if c.jitters {
		text += "; two runs of one schedule differ, so the program is not deterministic" + c.differs
	}
	if c.leftOut != "" {
		text += "; the limit has left out " + c.leftOut
	}
	if c.enough() {
		text += "; as many findings as are wanted have ended the search"
	}
	if c.scenario.Explore != (Exhaustive{}) {
		text += c.explored.report(c.scenario.Explore)
	}
	if len(c.scenario.Off) > 0 {
		text += "\n  switched off: " + strings.Join(c.scenario.Off, ", ")
	}
	return text + c.varies.String() + c.covered.String() + c.covered.ofAll(c.scenario, c.ideal) + rightsReport(c)
}
