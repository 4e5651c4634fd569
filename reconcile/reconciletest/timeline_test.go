package reconciletest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhereTwoRunsDiffer(t *testing.T) {
	trace := func(texts ...string) (lines []line) {
		for _, text := range texts {
			lines = append(lines, line{text: text, at: time.Duration(len(lines))})
		}
		return lines
	}
	require.Empty(t, partAt(trace("a", "b"), trace("a", "b")))
	require.Equal(t, `: line 2 of one is "b", of the other "c"`, partAt(trace("a", "b"), trace("a", "c")))
	require.Equal(t, `: line 2 of one is "b", of the other "no more requests"`,
		partAt(trace("a", "b"), trace("a")))
}

func TestRepetitionsAreFolded(t *testing.T) {
	trace := func(texts ...string) (lines []line) {
		for i, text := range texts {
			lines = append(lines, line{text: text, at: time.Duration(i) * time.Second})
		}
		return lines
	}
	texts := func(lines []line) (all []string) {
		for _, l := range lines {
			all = append(all, l.text)
		}
		return all
	}
	require.Equal(t, []string{"a", "b", "b", "c"}, texts(folded(trace("a", "b", "b", "c"))))
	require.Equal(t, []string{"a", "b", "the line before, 3 times more until now", "c"},
		texts(folded(trace("a", "b", "b", "b", "b", "c"))))
	short := folded(trace("a", "b", "c", "b", "c", "b", "c", "d"))
	require.Equal(t, []string{"a", "b", "c", "the 2 lines before, 2 times more until now", "d"}, texts(short))
	require.Equal(t, 6*time.Second, short[3].at)
}

// TestWhatTheFindingSpeaksOfIsShown though it is a conflict, which else counts as a read, and far from the disturbance.
func TestWhatTheFindingSpeaksOfIsShown(t *testing.T) {
	j := &journal{trace: []line{{weight: hurt, text: "crash"}}}
	for i := range 100 {
		j.trace = append(j.trace, line{at: time.Duration(i+1) * time.Second, weight: wrote, kind: "update pods",
			text: fmt.Sprintf("update %d", i)})
	}
	j.trace[90].weight = read
	j.name(j.trace[90].at, j.trace[50].at)
	shown := strings.Join(j.timeline(), "\n")
	require.Len(t, j.timeline(), timelineLines-1)
	require.Contains(t, shown, "50.000s  update 49\n")
	require.Contains(t, shown, "90.000s  update 89\n")
	require.Contains(t, shown, "83 more lines, of reads and of writes far from this, are left out; Replay shows all")
	require.Len(t, j.whole(), 101)

	for i := range j.trace { // then there is no room for all
		j.trace[i].named = true
	}
	require.Len(t, j.timeline(), timelineLines-1)
	require.Contains(t, j.timeline()[0], "crash")
}

// TestAWatchThatAnOldServerRefusesIsExplained: that is the doing of "back to", and no mistake of the program.
func TestAWatchThatAnOldServerRefusesIsExplained(t *testing.T) {
	j, l := &journal{begin: time.Now()}, NewServer(t, Options{}).Link()
	m := newManners()
	g := &gate{request: Request{Verb: "watch", Resource: pods}, process: &process{link: l, incarnation: 1}, code: 422}
	j.noteRead(g)
	l.LagBehind(1)
	j.noteRead(g)
	require.True(t, strings.HasSuffix(j.trace[0].text, ": 422"), j.trace[0].text)
	require.Contains(t, j.trace[1].text, ": 422, since the server that the disturbance leads to streams no lists")
	m.heed(g, disturbance{}, 0)
	require.Empty(t, m.invalids, "what a finding says of writes that were refused")
}
