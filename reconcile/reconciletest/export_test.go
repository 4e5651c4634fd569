package reconciletest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Traces runs a schedule n times, and returns what happened in each, with the times.
func Traces(t *testing.T, sc Scenario, text string, n int) []string {
	t.Helper()
	s, err := sc.parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := newCheck(t, &sc, 0)
	var all []string
	for range n {
		var b strings.Builder
		for _, line := range c.run(s, nil).trace {
			fmt.Fprintln(&b, line)
		}
		all = append(all, b.String())
	}
	return all
}

// Story runs a schedule, and returns what a timeline of it would have if it were as long as it wants: no reads.
func Story(t *testing.T, sc Scenario, text string) []string {
	t.Helper()
	s, err := sc.parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := newCheck(t, &sc, 0)
	var story []string
	for _, e := range c.run(s, nil).trace {
		if e.weight != read {
			story = append(story, e.String())
		}
	}
	return story
}

// Singles runs the scenario without disturbances and with each one that is possible, and returns what it has found.
func Singles(t *testing.T, sc Scenario) []*Finding {
	t.Helper()
	c := newCheck(t, &sc, 0)
	if c.reference() {
		learning{c}.history()
		c.singles()
	}
	return c.findings
}

// Shrunk returns what is left of a schedule that fails, of a program that is not deterministic.
func Shrunk(t *testing.T, sc Scenario, text string) string {
	t.Helper()
	s, err := sc.parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := newCheck(t, &sc, 0)
	c.reference()
	c.jitters = true
	if c.try(s); len(c.findings) == 0 {
		t.Fatalf("%s finds nothing", s)
	}
	return c.findings[0].Replay
}

// Order returns the first n schedules with one disturbance, and those of which it gets the ends, in their order.
func Order(t *testing.T, sc Scenario, n int) (all, ended []string) {
	t.Helper()
	c := newCheck(t, &sc, 0)
	c.reference()
	possible := singly(c.possible()[:n])
	for s := range (runner{c}).each(possible) {
		all = append(all, s.String())
	}
	for s := range (runner{c}).inOrder(runner{c}.each(possible), time.Time{}) {
		ended = append(ended, s.String())
	}
	return all, ended
}

// Report runs the scenario without disturbances and with each one that is possible, and returns what Check logs then.
func Report(t *testing.T, sc Scenario) string {
	t.Helper()
	c := newCheck(t, &sc, sc.Limit)
	c.reference()
	learning{c}.history()
	if c.singles(); len(c.findings) > 0 {
		t.Fatal(c.findings)
	}
	return c.report()
}

// LeftOut returns what Check says that its limit has left out, if it is over after the schedules with one disturbance.
func LeftOut(t *testing.T, sc Scenario) string {
	t.Helper()
	c := newCheck(t, &sc, sc.Limit)
	c.reference()
	c.singles()
	c.limit = time.Now()
	runner{c}.several(time.Hour)
	return c.leftOut
}

// Untried reports whether Check fails since it has not tried a single disturbance.
func Untried(t *testing.T, sc Scenario) bool {
	t.Helper()
	return search(t, sc).untried
}

// Durations returns the budget and the limit of a scenario.
func Durations(sc Scenario) (budget, limit time.Duration, err error) { return sc.durations() }

// Validate returns what Check fails with at once.
func Validate(sc Scenario) error {
	if err := sc.validate(); err != nil {
		return err
	}
	_, err := sc.parse(sc.Replay)
	return err
}

// Alike returns findings as Check shows them: those that differ only in the disturbance together.
func Alike(all []*Finding) [][]*Finding { return alikeFindings(all) }

// Explored returns what Check logs after all schedules of Scenario.Explore, and what it has found.
func Explored(t *testing.T, sc Scenario) (report string, found []*Finding) {
	t.Helper()
	c := search(t, sc)
	return c.report(), c.findings
}

// MaskWorld removes what is the world's from an object.
func MaskWorld(w *World, o *unstructured.Unstructured) { w.mask(o) }
