package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCoverage counts five runs. The reference run has asked for a and b.
func TestCoverage(t *testing.T) {
	crash := disturbance{what: crashAfter, of: "create pods", n: 1}
	again := disturbance{what: crashAfter, of: "create pods", n: 2}
	refused := disturbance{what: refuse500, of: "get pods", n: 1}
	cutOff := disturbance{what: cut, n: 1}
	slowPods := disturbance{what: late, of: "pods", n: 1}
	ideal := &ending{asked: origins("a", "b"), used: map[string]usage{"": {{"", "", "pods", "create"}: true}}}
	happened := func(asked []origin, all ...disturbance) *ending {
		e := &ending{asked: asked, happened: map[disturbance]bool{}}
		for _, d := range all {
			e.happened[d] = true
		}
		return e
	}
	c := newCoverage()
	add := func(e *ending, ideal *ending, all ...disturbance) { c.add(schedule{disturbances: all}, e, ideal) }
	add(ideal, nil)
	require.Empty(t, c.String(), "nothing was disturbed")
	add(happened(origins("a", "b", "b"), crash), ideal, crash)
	add(happened(origins("a", "b"), cutOff), ideal, cutOff)
	add(happened(origins("a")), ideal, refused)
	add(happened(origins("a"), again, slowPods), ideal, crash, again, slowPods)
	require.Equal(t, 9, c.requests)
	require.Equal(t, ideal.used, c.used)
	require.Equal(t, map[place]*tally{
		{crashAfter, "writes"}: {schedules: 2, happened: 2, alone: 1, mattered: 1},
		{refuse500, "reads"}:   {schedules: 1},
		{cut, "steps"}:         {schedules: 1, happened: 1, alone: 1},
		{late, "steps"}:        {schedules: 1, happened: 1},
	}, c.tried)
	require.Equal(t, "\n  at writes: crash after 2\n  at reads: 500 0\n  at steps: cut 1, late 1"+
		"\n  never happened: 500 (reads)\n  happened, and the program asked for the same as without: cut (steps)",
		c.String())
	add(happened(origins("a")), nil, cutOff)
	require.Equal(t, tally{schedules: 2, happened: 1, alone: 1}, *c.tried[place{cut, "steps"}])
}

// origins returns those of the only program.
func origins(kinds ...string) (all []origin) {
	for _, kind := range kinds {
		all = append(all, origin{kind: kind})
	}
	return all
}
