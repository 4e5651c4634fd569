package sharding

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestWords says which words the slices of a table have after each kind of change. Slice 0 has changed its owner, or
// not; slice 1 is of somebody else, and keeps its word.
func TestWords(t *testing.T) {
	const me, other, dead, nobody = 1, 2, 3, 0
	for name, test := range map[string]struct {
		before, after int
		heard         bool // the work of the slice has begun here
		text          string
		want          string
	}{
		"given away":                           {me, other, true, "new", "new"},
		"given away, and nobody has it":        {me, nobody, true, "new", "new"},
		"given away before its work has begun": {me, other, false, "new", "old"},
		"given away without a word":            {me, other, true, "", ""},
		"given away with too long a word":      {me, other, true, strings.Repeat("x", maxWord+1), ""},
		"of one who has died":                  {dead, other, false, "", ""},
		"of one who has died, and nobody's":    {dead, nobody, false, "", ""},
		"taken from one who has died":          {dead, me, false, "", ""},
		"nobody's, and assigned":               {nobody, me, false, "", "old"},
		"kept":                                 {me, me, true, "", "old"},
		"kept by another":                      {other, other, false, "", "old"},
	} {
		t.Run(name, func(t *testing.T) {
			from := freshTable("life", 2)
			from.Owners, from.Words = []int{test.before, other}, []word{{"old", []int{0, 1}}}
			next := from.changed(func(t *table) { t.give(0, test.after) })
			gone := given(from, next, me)
			require.Equal(t, test.before == me && test.after != me, len(gone) == 1)
			if !test.heard {
				gone = nil
			}
			next.leave(from, me, gone, test.text)
			text, ok := next.wordOf(0)
			require.Equal(t, test.want, text)
			require.Equal(t, test.want != "", ok)
			text, ok = next.wordOf(1)
			require.Equal(t, "old", text)
			require.True(t, ok)
			require.Equal(t, []word{{"old", []int{0, 1}}}, from.Words, "a table is not changed")
		})
	}
}

// TestWordsTakeNoMoreRoomThanThereIs, and the latest stay.
func TestWordsTakeNoMoreRoomThanThereIs(t *testing.T) {
	table := freshTable("life", 64)
	for slice := range 64 {
		table = table.changed(func(t *testTable) { t.give(slice, 1) })
	}
	for slice := range 64 {
		next := table.changed(func(t *testTable) { t.give(slice, 2) })
		next.leave(table, 1, []int{slice}, strings.Repeat("x", 1000))
		table = next
	}
	require.Less(t, len(table.encode()), maxWords+8<<10)
	_, first := table.wordOf(0)
	_, last := table.wordOf(63)
	require.False(t, first)
	require.True(t, last)
}

type testTable = table

// TestAWordSparesAList: who gets slices from their owner lists nothing, and who gets those of a dead one does.
func TestAWordSparesAList(t *testing.T) {
	inFleet(t, 20, func(f *fleet) {
		a, b := f.launch("a"), f.launch("b")
		time.Sleep(20 * time.Second)
		lists := func(s *ship) int { return s.secrets.Health().Lists }
		require.Equal(t, []int{2, 2}, []int{lists(a), lists(b)}, "nobody knows what was before the table")
		c := f.launch("c")
		time.Sleep(20 * time.Second)
		require.Len(t, f.shares(time.Second), 3)
		require.Equal(t, []int{2, 2, 1}, []int{lists(a), lists(b), lists(c)})
		b.stop()
		<-b.group.Done()
		time.Sleep(5 * time.Second)
		require.Equal(t, 20, total(f.shares(time.Second)))
		require.Equal(t, []int{2, 1}, []int{lists(a), lists(c)})
		f.kill(a, "a")
		time.Sleep(20 * time.Second)
		require.Equal(t, map[string]int{"c": 20}, f.shares(time.Second))
		require.Equal(t, 2, lists(c))
	})
}

// TestAWordIsPassedOn by an owner that leaves before its caches have come as far: it has not worked on the slices, and
// the next owner, whose watches are late, too, has to see what the one before has written.
func TestAWordIsPassedOn(t *testing.T) {
	inFleet(t, 20, func(f *fleet) {
		f.launch("a")
		c := f.launch("c")
		c.link.DelayWatches("secrets", 3*time.Second)
		time.Sleep(30 * time.Second)
		b := f.launch("b")
		b.link.DelayWatches("secrets", time.Minute)
		time.Sleep(18 * time.Second)
		require.Equal(t, 5, b.works())
		require.Empty(t, b.shards.Stats().Slices)
		b.stop()
		<-b.group.Done()
		require.NoError(t, b.err)
		time.Sleep(20 * time.Second)
		require.NotContains(t, f.shares(10*time.Second), "b")
		require.Equal(t, 20, total(f.shares(10*time.Second)))
	})
}

// TestWhoHasNotBegunLeavesNoWord: b gets the slices of a, which was killed, and leaves before its caches have listed.
// It knows nothing of what a has written, so c has to list.
func TestWhoHasNotBegunLeavesNoWord(t *testing.T) {
	inFleet(t, 10, func(f *fleet) {
		a := f.launch("a")
		time.Sleep(20 * time.Second)
		b := f.launch("b")
		time.Sleep(time.Second)
		f.kill(a, "a")
		b.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource == "secrets" && !r.Writes() {
				return reconciletest.Refuse(errCut)
			}
			return nil
		})
		time.Sleep(19 * time.Second)
		c := f.launch("c")
		time.Sleep(time.Second)
		require.Equal(t, 16, b.works())
		require.Empty(t, b.shards.Stats().Slices)
		require.Equal(t, 1, c.secrets.Health().Lists)
		b.stop()
		<-b.group.Done()
		time.Sleep(5 * time.Second)
		require.Equal(t, map[string]int{"c": 10}, f.shares(time.Second))
		require.Equal(t, 2, c.secrets.Health().Lists)
	})
}
