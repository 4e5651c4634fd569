package zoo

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
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
	os.Exit(m.Run())
}

// search looks for the mistake of a bug, with it or without it, on a library.
func search(t *testing.T, b bug, fixed bool, l library, budget time.Duration) *reconciletest.Finding {
	s := b.scenario
	s.Budget = budget
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return l.run(ctx, cfg, b.reconciler(fixed)) }
	return reconciletest.Search(t, s)
}

// TestZoo is about client-go, on which every one of these mistakes can do harm.
func TestZoo(t *testing.T) {
	for _, b := range zoo() {
		t.Run(b.published, func(t *testing.T) {
			found := search(t, b, false, libraries[0], 2*time.Second)
			require.NotNil(t, found, "the mistake is not found: %s", b.mistake)
			require.LessOrEqual(t, len(found.Timeline), 20, found)
			require.Nil(t, search(t, b, true, libraries[0], time.Millisecond), "an alarm about the fixed one")

			s := b.scenario
			s.Replay = found.Replay
			s.Run = func(ctx context.Context, cfg *rest.Config) error {
				return libraries[0].run(ctx, cfg, b.reconciler(false))
			}
			var again *reconciletest.Finding
			for try := 0; again == nil && try < 10; try++ { // client-go jitters
				again = reconciletest.Search(t, s)
			}
			require.NotNil(t, again, "the replay finds nothing: %s", found.Replay)
		})
	}
}

// TestTables prints the tables of make zoo.
func TestTables(t *testing.T) {
	if !*tables {
		return
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "bug\tclass\tfound on client-go after\tby\tlines\tfixed\tcontroller-runtime\tthermostat")
	reached := map[string]int{}
	for _, b := range zoo() {
		row := []string{b.published, b.class}
		for i, l := range libraries {
			found, alarm := search(t, b, false, l, 5*time.Second), search(t, b, true, l, time.Second)
			if found != nil {
				reached[l.name]++
			}
			fixed := "silent"
			if alarm != nil {
				fixed = "ALARM: " + alarm.Replay
			}
			switch {
			case i == 0 && found == nil:
				row = append(row, "NOT FOUND", "", "", fixed)
			case i == 0:
				_, by, _ := strings.Cut(found.Replay, ": ")
				row = append(row, fmt.Sprintf("%d runs, %.1f s", found.Runs, found.Took.Seconds()), by,
					fmt.Sprint(len(found.Timeline)), fixed)
			case found == nil && alarm == nil:
				row = append(row, "not reached")
			case alarm != nil:
				row = append(row, fixed)
			default:
				row = append(row, "reached")
			}
		}
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	require.NoError(t, out.Flush())
	for _, l := range libraries {
		fmt.Printf("%s: %d of %d mistakes do harm\n", l.name, reached[l.name], len(zoo()))
	}
}
