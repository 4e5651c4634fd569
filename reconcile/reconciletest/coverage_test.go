package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCoverage counts five runs. The reference run has asked for a and b.
func TestCoverage(t *testing.T) {
	crash := disturbance{crashAfter, "create pods", 1}
	again := disturbance{crashAfter, "create pods", 2}
	refused := disturbance{refuse500, "get pods", 1}
	cutOff := disturbance{what: cut, n: 1}
	slowPods := disturbance{late, "pods", 1}
	ideal := &ending{asked: []string{"a", "b"}, used: usage{{"", "", "pods", "create"}: true}}
	happened := func(asked []string, all ...disturbance) *ending {
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
	add(happened([]string{"a", "b", "b"}, crash), ideal, crash)
	add(happened([]string{"a", "b"}, cutOff), ideal, cutOff)
	add(happened([]string{"a"}), ideal, refused)
	add(happened([]string{"a"}, again, slowPods), ideal, crash, again, slowPods)
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
	add(happened([]string{"a"}), nil, cutOff)
	require.Equal(t, tally{schedules: 2, happened: 1, alone: 1}, *c.tried[place{cut, "steps"}])
}
