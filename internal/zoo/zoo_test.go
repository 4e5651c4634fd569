package zoo

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var tables = flag.Bool("tables", false, "run every bug on every library, and print the tables")

type library struct {
	name string
	run  func(context.Context, *rest.Config, reconciler) error
}

var libraries = []library{{"client-go", onClientGo}, {"controller-runtime", onControllerRuntime},
	{"thermostat", onThermostat}}

func TestMain(m *testing.M) {
	klog.LogToStderr(false) // client-go logs each watch that ends
	klog.SetOutput(io.Discard)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // each run leaves a server behind, all at once
	}
	os.Exit(m.Run())
}

// search looks for the mistake of a bug, with it or without it, on a library.
func search(t *testing.T, b bug, fixed bool, l library, budget time.Duration) *reconciletest.Finding {
	s := b.scenario
	s.Budget, s.Findings = budget, 1
	if b.long && fixed && !*tables {
		s.Limit = 3 * time.Second
	}
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return l.run(ctx, cfg, b.reconciler(fixed)) }
	for _, found := range reconciletest.Search(t, s) {
		return found
	}
	return nil
}

// TestZoo is about client-go, on which every one of these mistakes can do harm.
func TestZoo(t *testing.T) {
	for _, b := range zoo() {
		t.Run(b.published, func(t *testing.T) {
			found := search(t, b, false, libraries[0], 2*time.Minute) // it ends when it has found it
			require.NotNil(t, found, "the mistake is not found: %s", b.mistake)
			require.LessOrEqual(t, len(found.Timeline), 20, found)
			if b.rightOf == "" {
				require.Nil(t, search(t, b, true, libraries[0], time.Millisecond), "an alarm about the fixed one")
			}

			s := b.scenario
			s.Replay = found.Replay
			s.Run = func(ctx context.Context, cfg *rest.Config) error {
				return libraries[0].run(ctx, cfg, b.reconciler(false))
			}
			var again []*reconciletest.Finding
			for try := 0; len(again) == 0 && try < 100; try++ { // client-go jitters
				again = reconciletest.Search(t, s)
			}
			require.NotEmpty(t, again, "the replay finds nothing: %s", found.Replay)
		})
	}
}

// TestTables prints the tables of make zoo, row by row: first what Check finds on client-go, and then which of the
// mistakes can do harm on which library.
func TestTables(t *testing.T) {
	if !*tables {
		return
	}
	reached := map[string]int{}
	harmful := map[string]bool{}
	fmt.Println("| bug | class | runs | seconds | CPU seconds | lines | schedule | fixed |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, b := range zoo() {
		before := cpuTime()
		found := search(t, b, false, libraries[0], 5*time.Second)
		took := cpuTime() - before
		row := []string{b.name(), b.class, "", "", "", "", "NOT FOUND"}
		if found != nil {
			reached[libraries[0].name]++
			_, by, _ := strings.Cut(found.Replay, ": ")
			row = []string{b.name(), b.class, fmt.Sprint(found.Runs), fmt.Sprintf("%.1f", found.Took.Seconds()),
				fmt.Sprintf("%.1f", took.Seconds()), fmt.Sprint(len(found.Timeline)), cmp.Or(by, "none needed")}
		}
		harmful[b.published] = found != nil
		fmt.Printf("| %s | %s |\n", strings.Join(row, " | "), fixedIs(search(t, b, true, libraries[0], time.Second)))
	}
	fmt.Println("\n| bug | client-go | controller-runtime | thermostat |\n|---|---|---|---|")
	for _, b := range zoo() {
		row := []string{map[bool]string{true: "harm", false: "-"}[harmful[b.published]]}
		for i, l := range libraries[1:] {
			found := search(t, b, false, l, 5*time.Second)
			if found != nil {
				reached[l.name]++
			}
			cell := harm(found)
			if i == 0 {
				cell, _, _ = strings.Cut(cell, ":")
			}
			if alarm := search(t, b, true, l, time.Millisecond); alarm != nil {
				cell += "; fixed: " + fixedIs(alarm)
			}
			row = append(row, cell)
		}
		fmt.Printf("| %s | %s |\n", b.name(), strings.Join(row, " | "))
	}
	for _, l := range libraries {
		fmt.Printf("\n%s: %d of %d mistakes do harm\n", l.name, reached[l.name], len(zoo()))
	}
}

// TestCost prints what some thousand runs of a reconciler cost on each library: time of the processors, and memory that
// is held when they are done.
func TestCost(t *testing.T) {
	if !*tables {
		return
	}
	b := zoo()[slices.IndexFunc(zoo(), func(b bug) bool { return b.published == "elastic/cloud-on-k8s#5274" })]
	for _, l := range libraries {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := cpuTime()
		require.Nil(t, search(t, b, true, l, 20*time.Second)) // it logs how many runs there were
		used := cpuTime() - began
		runtime.GC()
		runtime.ReadMemStats(&after)
		t.Logf("%s: %.1f s of the processors, %d KiB allocated in all, %d KiB of them held in the end", l.name,
			used.Seconds(), (after.TotalAlloc-before.TotalAlloc)>>10,
			(int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
	}
}

// name is where the bug was published, with a star if it was held back.
func (b bug) name() string {
	if b.heldBack {
		return b.published + " *"
	}
	return b.published
}

func harm(found *reconciletest.Finding) string {
	if found == nil {
		return "-"
	}
	_, by, _ := strings.Cut(found.Replay, ": ")
	return "harm: " + cmp.Or(by, "always")
}

func fixedIs(alarm *reconciletest.Finding) string {
	if alarm == nil {
		return "silent"
	}
	return "ALARM: " + alarm.Rule + ": " + alarm.Replay
}

// cpuTime returns what this process has used of the processors: seconds on a machine with nothing else to do.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
