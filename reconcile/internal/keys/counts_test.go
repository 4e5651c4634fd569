package keys

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// walked counts what Counts returns by looking at every key.
func walked(t *Table) (n Counts) {
	now := time.Now()
	for _, e := range t.keys {
		for _, hold := range e.holds {
			switch hold.For {
			case status.WaitPaused:
				n.Paused++
			case status.WaitParked:
				n.Parked++
				n.LongestParked = max(n.LongestParked, now.Sub(hold.From))
			}
		}
		if st := e.stats; st != nil && st.hot() {
			old := e.run == nil && now.Sub(st.endedAt) > slowContestWindow
			if !old || max(st.repeats, st.replacements) > HotAfter {
				n.HotKeys++
			}
		}
	}
	n.HotLoops = t.hotLoops
	return n
}

// TestCountsAgainstAWalk lets keys be held, freed and run at random, with contests that begin and grow old.
func TestCountsAgainstAWalk(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { countAgainstAWalk(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func countAgainstAWalk(t *testing.T, random *rand.Rand) {
	table := newTable(false, 10)
	running := map[Key]*Run{}
	reasons := []status.WaitReason{status.WaitPaused, status.WaitParked}
	var longest time.Duration
	parked, hot, ended := 0, 0, 0
	for range 3000 {
		key := Key{Name: fmt.Sprint("key ", random.IntN(12))}
		reason := reasons[random.IntN(2)]
		switch r := running[key]; random.IntN(8) {
		case 0, 1:
			before := time.Duration(random.IntN(3)) * time.Second // who holds a key looks at the clock first
			table.Hold(key, status.Wait{For: reason, From: time.Now().Add(-before)})
		case 2:
			table.Free(key, reason)
		case 3, 4:
			if r == nil {
				r = &Run{Key: key, Turn: &Turn{Began: time.Now()}}
				if _, held := table.Begin(r); !held {
					running[key] = r
				}
				continue
			}
			if random.IntN(3) > 0 {
				r.Wrote(types.UID(key.Name), fmt.Sprint(random.Uint64()), false)
			}
			r.Returned()
			delete(running, key)
			o := Outcome{Result: "success"}
			if random.IntN(5) == 0 {
				o.Pause = time.Minute
			}
			table.End(r, o, time.Now())
		case 5: // as comparedOwnLocked does when a run has undone another writer's change
			if e := table.keys[key]; e != nil {
				e.needStats().reverts = random.IntN(2) * (HotAfter + 1)
				table.updateHotLocked(e)
			}
		case 6: // as countLastRunLocked does
			if e := table.keys[key]; e != nil {
				e.needStats().repeats = random.IntN(2) * (HotAfter + 1)
				table.updateHotLocked(e)
			}
		default:
			time.Sleep(time.Duration(random.Int64N(int64(2 * time.Minute))))
		}
		before := len(table.hotKeys)
		want := walked(table)
		require.Equal(t, want, table.Counts())
		longest, parked, hot = max(longest, want.LongestParked), max(parked, want.Parked), max(hot, want.HotKeys)
		ended += before - want.HotKeys
	}
	require.Greater(t, longest, time.Minute)
	require.Greater(t, parked, 3)
	require.Greater(t, hot, 3)
	require.Positive(t, ended, "no contest has grown old")
}

// TestCountsAfterAContestIsForgotten: the key is forgotten before its contest is old.
func TestCountsAfterAContestIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(false, -1)
		e := table.entryOfLocked(parent, time.Now())
		e.needStats().reverts, e.stats.endedAt = HotAfter+1, time.Now()
		table.updateHotLocked(e)
		require.Equal(t, Counts{HotKeys: 1, HotLoops: 1}, table.Counts())
		time.Sleep(forgetAfter + 1)
		table.sweepLocked(time.Now())
		require.Empty(t, table.keys)
		require.Equal(t, Counts{HotLoops: 1}, table.Counts())
	})
}
