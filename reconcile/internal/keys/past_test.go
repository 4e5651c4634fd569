package keys

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A run that found nothing to do is not kept beside another one of that kind.
func TestAQuietRun(t *testing.T) {
	waits := make([]status.Wait, 2)
	for name, test := range map[string]struct {
		run   status.Run
		quiet bool
	}{
		"it did nothing":                   {status.Run{}, true},
		"it was nearly slow":               {status.Run{Took: slowRun - 1}, true},
		"it was slow":                      {status.Run{Took: slowRun}, false},
		"it waited for a worker":           {status.Run{Waits: waits[:1]}, true},
		"it waited for something else too": {status.Run{Waits: waits}, false},
		"it wrote":                         {status.Run{Writes: make([]status.Write, 1)}, false},
		"it failed":                        {status.Run{Error: &status.Error{}}, false},
	} {
		require.Equal(t, test.quiet, quietRun(&test.run), name)
	}
}

// What a run has left for good outlives the records of others, and leaves no more of them than are remembered.
func TestTheRecordOfAFailureForGoodStays(t *testing.T) {
	const limit = 10
	table := newTable(false, limit)
	run := func(name, result string) {
		r := &Run{Key: Key{Name: name}, Turn: &Turn{Began: time.Now()}}
		requireBegins(t, table, r)
		r.Returned()
		table.End(r, Outcome{Result: result, Error: &status.Error{}}, time.Now())
	}
	run("for good", "terminal")
	for i := range 5 * limit {
		run(fmt.Sprint(i), "error")
	}
	known := table.Known()
	require.Len(t, known, limit+1)
	require.Contains(t, known, Key{Name: "for good"})
	var sums status.Controller
	table.Sums(&sums)
	require.Equal(t, status.Controller{Runs: 5*limit + 1, Failures: 5*limit + 1, Failed: 1, Remembered: limit + 1},
		sums)
	run("for good", "error")
	table.Sums(&sums)
	require.Zero(t, sums.Failed)
}

// Runs in a row that found nothing to do are one, beside a run that is remembered.
func TestQuietRunsInARow(t *testing.T) {
	table := newTable(false, defaultHistory)
	run := func(o Outcome) {
		r := &Run{Key: parent, Turn: &Turn{Began: time.Now()}}
		requireBegins(t, table, r)
		r.Returned()
		table.End(r, o, r.Turn.Began)
	}
	quiet, fails := Outcome{Result: "success"}, Outcome{Result: "error", Error: &status.Error{}}
	for _, o := range []Outcome{quiet, fails, quiet, quiet, quiet, fails, fails, quiet} {
		run(o)
	}
	var got []string
	for _, r := range describe(table).Runs {
		got = append(got, fmt.Sprint(r.Result, " ", r.Repeated))
	}
	require.Equal(t, []string{"error 0", "success 2", "error 0", "error 0", "success 0"}, got)
}

// Times in which a key is held back for one reason, in a row, are one. Each time that it is parked is one of its own.
func TestWaitsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, began := newTable(false, defaultHistory), time.Now()
		run := func() *Run { return &Run{Key: parent, Turn: &Turn{Began: time.Now()}} }
		begins := func(left time.Duration) {
			time.Sleep(time.Second)
			wait, held := table.Begin(run())
			require.True(t, held)
			require.Equal(t, left, wait)
		}
		r := run()
		requireBegins(t, table, r)
		r.Returned()
		table.End(r, Outcome{Result: "error", Error: &status.Error{}, Pause: time.Minute}, time.Now())
		begins(59 * time.Second)
		begins(58 * time.Second)
		for range 2 {
			table.Hold(parent, status.Wait{For: status.WaitParked, From: time.Now()})
			time.Sleep(time.Second)
			table.Free(parent, status.WaitParked)
		}
		begins(55 * time.Second)
		at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
		require.Equal(t, []status.Wait{
			{For: status.WaitBackoff, From: at(1), To: at(60)},
			{For: status.WaitParked, From: at(2), To: at(3)},
			{For: status.WaitParked, From: at(3), To: at(4)},
			{For: status.WaitBackoff, From: at(5), To: at(60)},
		}, describe(table).Waits)

		// The end of a rest moves with what is written while it lasts.
		k := table.keys[parent].record
		for _, to := range []int{70, 80} {
			table.remembersLocked(parent, table.keys[parent],
				status.Wait{For: status.WaitHotLoop, From: at(to - 60), To: at(to)})
		}
		require.Equal(t, status.Wait{For: status.WaitHotLoop, From: at(10), To: at(80)}, k.waits[len(k.waits)-1])
	})
}

// The list has the result of the last run, if there was one, unless the key is stuck in the next.
func TestTheListHasTheLastRun(t *testing.T) {
	table := newTable(false, defaultHistory)
	last := func() string {
		list := []status.KeySummary{{Namespace: parent.Namespace, Name: parent.Name}}
		table.List(list, make([]Seen, 1), status.StageWorking, time.Time{})
		return list[0].LastResult
	}
	require.Empty(t, last())
	table.Hold(parent, status.Wait{For: status.WaitParked, From: time.Now()})
	table.Free(parent, status.WaitParked)
	require.Len(t, describe(table).Waits, 1)
	require.Empty(t, last(), "it has waited, and not run")
	r := &Run{Key: parent, Turn: &Turn{Began: time.Now()}}
	requireBegins(t, table, r)
	r.Returned()
	table.End(r, Outcome{Result: "error", Error: &status.Error{}}, time.Now())
	require.Equal(t, "error", last())
	r = &Run{Key: parent, Turn: &Turn{Began: time.Now()}}
	requireBegins(t, table, r)
	require.Equal(t, "error", last())
	r.Turn.SetStuck("main.reconcile main.go:7")
	require.Empty(t, last())
}

// describe returns what is known of the key of a table whose workers run.
func describe(t *Table) *status.Key {
	s := &status.Key{Namespace: parent.Namespace, Name: parent.Name, At: time.Now()}
	t.Describe(s, Seen{}, status.StageWorking, time.Time{})
	return s
}
