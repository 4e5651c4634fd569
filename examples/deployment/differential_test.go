package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
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
	cluster := shared(t)
	ours, builtIn := newSide(t, cluster, "ours"), newSide(t, cluster, "built-in")
	runOurs(t, cluster, ours.namespace)
	runBuiltIn(t, cluster, builtIn.namespace)

	var playing sync.WaitGroup
	places := make(chan struct{}, 30)
	steps, again := make([]int, n), make([]bool, n)
	for i := range n {
		playing.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			script := newScript(first + uint64(i))
			steps[i] = len(script.steps)
			difference := compare(t, ours, builtIn, script, 1)
			if difference != "" { // it counts if it shows again with more patience: the machine may have been busy
				again[i] = true
				t.Logf("seed %d is played again: %s", script.seed, difference)
				difference = compare(t, ours, builtIn, script, 3)
			}
			if difference != "" {
				t.Errorf("seed %d: %s", script.seed, difference)
			}
		})
	}
	playing.Wait()
	total, repeated := 0, 0
	for i := range n {
		total += steps[i]
		if again[i] {
			repeated++
		}
	}
	t.Logf("%d scripts, %d steps, %d scripts played again; promises broken: ours %d, built-in %d", n, total, repeated,
		len(ours.broken), len(builtIn.broken))
	for _, broken := range builtIn.broken {
		t.Log(broken)
	}
	require.Empty(t, ours.broken)
}

// compare plays a script to both sides, and returns the first difference.
func compare(t *testing.T, ours, builtIn *side, script script, patience int) string {
	app := fmt.Sprintf("s%d-%d", script.seed, patience)
	var pictures [2][]string
	var errs [2]error
	var playing sync.WaitGroup
	for i, side := range []*side{ours, builtIn} {
		playing.Go(func() { pictures[i], errs[i] = side.play(t.Context(), app, script, time.Duration(patience)) })
	}
	playing.Wait()
	for i := range min(len(pictures[0]), len(pictures[1])) {
		if pictures[0][i] != pictures[1][i] {
			return fmt.Sprintf("after %v of %v: - is ours, + is the built-in controller's\n%s", script.steps[:i],
				script.steps, diff(pictures[0][i], pictures[1][i]))
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
