package keys

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// stateOf is what the list says of a key that is ready, while the workers run.
func stateOf(t *Table) status.KeyState {
	list := []status.KeySummary{{Namespace: parent.Namespace, Name: parent.Name}}
	ready := Seen{Item: workqueue.Item[Key]{Key: parent, State: workqueue.Ready}, Queued: true}
	t.List(list, []Seen{ready}, status.StageWorking, time.Time{})
	return list[0].State
}

// A key may be held for several reasons at once. Its state is the first of them, and each ends by itself.
func TestAKeyIsHeldForSeveralReasons(t *testing.T) {
	t.Run("remembered", func(t *testing.T) { heldForSeveralReasons(t, defaultHistory) })
	t.Run("not remembered", func(t *testing.T) { heldForSeveralReasons(t, -1) })
}

func heldForSeveralReasons(t *testing.T, history int) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(false, history)
		run := func() *Run { return &Run{Key: parent, Turn: &Turn{Began: time.Now()}} }
		r := run()
		requireBegins(t, table, r)
		r.Returned()
		table.End(r, Outcome{Result: "error", Error: &status.Error{}, Pause: time.Minute}, time.Now())
		require.Equal(t, status.KeyBackingOff, stateOf(table))
		require.True(t, table.Hold(parent, status.Wait{For: status.WaitParked, From: time.Now()}))
		require.Equal(t, status.KeyParked, stateOf(table))
		require.True(t, table.Hold(parent, status.Wait{For: status.WaitPaused, From: time.Now()}))
		require.False(t, table.Hold(parent, status.Wait{For: status.WaitPaused, From: time.Now()}))
		require.Equal(t, status.KeyPaused, stateOf(table))

		time.Sleep(10 * time.Second)
		left, held := table.Begin(run())
		require.True(t, held)
		require.Zero(t, left, "only Free ends a pause")
		require.Equal(t, Counts{Paused: 1, Parked: 1, LongestParked: 10 * time.Second}, table.Counts())
		wait, held, due := table.Free(parent, status.WaitPaused)
		require.True(t, held)
		require.True(t, due, "a worker has taken it meanwhile")
		require.Equal(t, 10*time.Second, wait.To.Sub(wait.From))
		_, held, _ = table.Free(parent, status.WaitPaused)
		require.False(t, held)
		require.Equal(t, status.KeyParked, stateOf(table))
		_, held, due = table.Free(parent, status.WaitParked)
		require.True(t, held)
		require.True(t, due)
		require.Equal(t, status.KeyBackingOff, stateOf(table))

		left, held = table.Begin(run())
		require.True(t, held)
		require.Equal(t, 50*time.Second, left)
		time.Sleep(left)
		require.Equal(t, status.KeyReady, stateOf(table))
		r = run()
		requireBegins(t, table, r)
		require.Equal(t, status.KeyRunning, stateOf(table))
		r.Turn.SetStuck("main.reconcile main.go:7")
		require.Equal(t, status.KeyStuck, stateOf(table))
		r.Turn.NoLongerStuck()
		r.Returned()
		table.End(r, Outcome{Result: "success"}, time.Now())
		require.Equal(t, history < 0, len(table.keys) == 0)
		require.Empty(t, table.held)
	})
}

// A pause that nobody has noticed needs no run, and leaves nothing behind.
func TestAPauseThatNobodyNotices(t *testing.T) {
	table := newTable(false, defaultHistory)
	table.Hold(parent, status.Wait{For: status.WaitPaused, From: time.Now()})
	require.Equal(t, []Key{parent}, table.Known())
	_, held, due := table.Free(parent, status.WaitPaused)
	require.True(t, held)
	require.False(t, due)
	require.Empty(t, table.keys)
}

// The end of a pause takes nothing of a key that something has named, that runs, or that is in a hot loop.
func TestTheEndOfAPauseForgetsNothing(t *testing.T) {
	table := newTable(false, -1)
	pause := func() {
		require.True(t, table.Hold(parent, status.Wait{For: status.WaitPaused, From: time.Now()}))
		_, held, _ := table.Free(parent, status.WaitPaused)
		require.True(t, held)
	}
	table.Named(parent, "For x", parent, "1", Sighting{WriteID: WriteID{"u", "1"}, Stays: true})
	pause()
	r := &Run{Key: parent, Turn: &Turn{Began: time.Now()}}
	requireBegins(t, table, r)
	causes, _ := r.Causes()
	require.Len(t, causes, 1)
	pause()
	require.Contains(t, table.keys, parent)
	require.Empty(t, table.spare)
	r.Returned()
	table.End(r, Outcome{Result: "success"}, time.Now())
	require.Empty(t, table.keys)
	require.Len(t, table.spare, 1)

	e := table.entryOfLocked(parent, time.Now())
	e.needStats().repeats = HotAfter + 1
	table.updateHotLocked(e)
	pause()
	require.Equal(t, Counts{HotKeys: 1, HotLoops: 1}, table.Counts())
}
