package sharding

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestALeaverGivesAwayWhatIsAskedForOnly: it begins again with a slice that nobody asks for any more, also while a
// write of its own is under way that is based on the same version of the table.
func TestALeaverGivesAwayWhatIsAskedForOnly(t *testing.T) {
	a := newReplica("pod-0-1", "pod-0", 2, timing{mDuration * time.Second, mDeadline * time.Second}, false)
	a.renewed(at(0), at(0), version{a.name, "1"})
	group := groupOf(1, 2).changed(func(t *table) {
		for _, name := range []string{"b", "c"} {
			t.join(member{Name: name, Seat: name})
		}
	})
	require.Equal(t, []int{1, 1}, group.Owners)
	n := 0
	see := func(next *table) {
		n++
		group = next
		leases := map[string]sight{a.name: {}, "b": {}, "c": {}}
		a.observe(world{known: true, table: group, at: version{"table", fmt.Sprint(n)}, leases: leases}, at(0))
	}
	see(group)
	see(group.changed(func(t *table) { t.claim([]int{0}, 2) }))
	see(group.changed(func(t *table) { t.retire(2, true) })) // b goes; the call in slice 0 goes on
	require.False(t, a.owns(0, at(0)))
	a.leave()
	see(a.next(at(0), "").table)
	a.workEnded(0)
	step := a.next(at(0), "")
	n-- // the same version once more, as with a renewal of somebody's Lease
	see(group)
	require.True(t, a.owns(0, at(0)), "it begins again")
	require.False(t, step.kind == writeTable && step.table.Owners[0] != 1, "while it is given away")

	see(group.changed(func(t *table) { t.claim([]int{0}, 3) }))
	require.False(t, a.owns(0, at(0)))
	a.workEnded(0)
	require.Equal(t, []int{3, 1}, a.next(at(0), "").table.Owners)
}
