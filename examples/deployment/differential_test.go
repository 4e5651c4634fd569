package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSameAsTheBuiltInController plays random scripts, in parallel, to the built-in controller and to this one, on one
// control plane. After each step both must show the same Deployment and ReplicaSets. THERMOSTAT_SEED plays one script,
// THERMOSTAT_SCRIPTS the number of them.
func TestSameAsTheBuiltInController(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), 30
	if soak {
		n = 240
	}
	if given := os.Getenv("THERMOSTAT_SCRIPTS"); given != "" {
		var err error
		n, err = strconv.Atoi(given)
		require.NoError(t, err)
	}
	if given := os.Getenv("THERMOSTAT_SEED"); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
		first, n = seed, 1
	}
	for ; n > 0; first, n = first+batch, n-batch {
		playBatch(t, first, min(n, batch))
	}
}

// batch is how many scripts are played at the same time.
const batch = 30

// playBatch plays the scripts of n seeds, to controllers of its own.
func playBatch(t *testing.T, first uint64, n int) {
	cluster := shared(t)
	ours, builtIn := newSide(t, cluster, "ours"), newSide(t, cluster, "built-in")
	defer runOurs(t, cluster, ours.namespace)()
	process := runBuiltIn(t, cluster, builtIn.namespace)
	var playing sync.WaitGroup
	var steps, again atomic.Int32
	for seed := range uint64(n) {
		playing.Go(func() {
			script := newScript(first + seed)
			steps.Add(int32(len(script.steps)))
			difference := compare(t, ours, builtIn, script, 1)
			if difference != "" { // it counts if it shows again with more patience: the machine may have been busy
				again.Add(1)
				t.Logf("seed %d is played again: %s", script.seed, difference)
				difference = compare(t, ours, builtIn, script, 3)
			}
			if difference != "" {
				t.Errorf("seed %d: %s", script.seed, difference)
			}
		})
	}
	playing.Wait()
	require.NoError(t, process.Kill(t.Context()))
	t.Logf("seeds %d to %d: %d steps, %d scripts played again; promises broken: ours %d, built-in %d", first,
		first+uint64(n)-1, steps.Load(), again.Load(), len(ours.broken), len(builtIn.broken))
	for _, broken := range builtIn.broken {
		t.Log(broken)
	}
	require.Empty(t, ours.broken)
}

// compare plays a script to both sides, and returns the first difference.
func compare(t *testing.T, ours, builtIn *side, script script, patience int) string {
	app := fmt.Sprintf("s%d-%d", script.seed, patience)
	var pictures [2][]picture
	var errs [2]error
	var playing sync.WaitGroup
	for i, side := range []*side{ours, builtIn} {
		playing.Go(func() { pictures[i], errs[i] = side.play(t.Context(), app, script, time.Duration(patience)) })
	}
	playing.Wait()
	for i := range min(len(pictures[0]), len(pictures[1])) {
		a, b := pictures[0][i], pictures[1][i]
		// The built-in controller loses a report now and then, when its write meets a conflict. If it is that of the
		// new ReplicaSet, the condition tells of the last rollout, and this one may never come to its deadline. If it
		// is the status of the same run, the next one compares its counts with those of the last rollout, and finds no
		// progress.
		if a.text != b.text && (a.withoutProgress != b.withoutProgress || !b.stale || a.stale) {
			return fmt.Sprintf("after %v of %v: - is ours, + is the built-in controller's\n%s", script.steps[:i],
				script.steps, diff(a.text, b.text))
		}
	}
	for _, err := range errs {
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

// diff returns the lines that differ.
func diff(a, b string) string {
	var out strings.Builder
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for len(x) > 0 || len(y) > 0 {
		switch at := next(x, y); {
		case len(x) > 0 && len(y) > 0 && x[0] == y[0]:
			x, y = x[1:], y[1:]
		case at >= 0:
			for _, line := range y[:at] {
				fmt.Fprintln(&out, "+", line)
			}
			y = y[at:]
		case len(x) > 0:
			fmt.Fprintln(&out, "-", x[0])
			x = x[1:]
		default:
			fmt.Fprintln(&out, "+", y[0])
			y = y[1:]
		}
	}
	return out.String()
}

// next returns where the first line of x is in y, or -1.
func next(x, y []string) int {
	if len(x) == 0 {
		return -1
	}
	for i, line := range y[:min(len(y), 40)] {
		if line == x[0] && strings.Trim(line, " {}[],") != "" {
			return i
		}
	}
	return -1
}
