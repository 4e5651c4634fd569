package keys

import (
	"fmt"
	"testing"
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
