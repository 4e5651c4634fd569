package reconciletest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func explores(e reconciletest.Exhaustive) reconciletest.Scenario {
	s := greets(plain(right))
	s.Steps, s.Explore, s.Budget = s.Steps[:1], e, 0
	return s
}

// TestExhaustiveRunsAll counts what there is by hand: three at the write, one at each of 11 reads, two at the step.
func TestExhaustiveRunsAll(t *testing.T) {
	report, _ := reconciletest.Explored(t, explores(reconciletest.Exhaustive{Crashes: 1}))
	require.Contains(t, report, "Exhaustive{Crashes: 1} is done: of the schedules were run 16 of 16 with 1 dist")
	require.Contains(t, report, "\n  each write x each disturbance at it, happened: create configmaps 3 of 10\n")
	// Nine are stale: late and frozen of two resources, unseen, cut, old cache after and back to at the step, and back
	// to at the write.
	report, _ = reconciletest.Explored(t, explores(reconciletest.Exhaustive{Crashes: 1, Stale: 1}))
	require.Regexp(t, `Exhaustive\{Crashes: 1, Stale: 1\} is done: of the schedules were run 25 of 25 with 1, `+
		`155 of 155 with 2 disturbances`, report)
}

// TestExhaustiveGoesOnFromWhatItHasCaused: a third incarnation only makes the ConfigMap if the first and the second one
// die before, and the second crash is at a request that there is because of the first.
func TestExhaustiveGoesOnFromWhatItHasCaused(t *testing.T) {
	for crashes, want := range map[int]int{1: 0, 2: 1} {
		s := explores(reconciletest.Exhaustive{Crashes: crashes})
		s.Off = []string{"down", "down over", "second"}
		s.Always = func(w reconciletest.Write, _ *reconciletest.Server) error {
			if w.Incarnation == 3 && w.Old == nil {
				return errors.New("the third one makes it")
			}
			return nil
		}
		found := reconciletest.Search(t, s)
		require.Len(t, found, want)
		for _, f := range found {
			require.Equal(t, "v1 seed=0 steps=1 in order: crash before create configmaps #1; "+
				"crash before create configmaps #2", f.Replay)
		}
	}
}

// TestExhaustiveKeepsTheOrderOfRequests: a request is the n-th of its kind in the run with one more disturbance, too.
// The search draws the order of requests that wait at the same time, and finds more by that.
func TestExhaustiveKeepsTheOrderOfRequests(t *testing.T) {
	s := reconciletest.Scenario{Seed: 7, Steps: reconciletest.ApplyYAML(claimManifest),
		Server: reconciletest.Options{Namespaces: []string{"default", "n0", "n1", "n2", "n3", "n4"}},
		Run: func(ctx context.Context, cfg *rest.Config) error {
			core := kubernetes.NewForConfigOrDie(cfg).CoreV1()
			var all sync.WaitGroup
			for i := range 5 {
				all.Go(func() {
					_, _ = core.ConfigMaps(fmt.Sprint("n", i)).Create(ctx, &corev1.ConfigMap{
						ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
				})
			}
			all.Wait()
			<-ctx.Done()
			return nil
		}}
	const two = ": 500 to get pods #1; 500 to get pods #2"
	none := reconciletest.Story(t, s, "v1 seed=7 steps=1: ")
	require.NotEqual(t, none, reconciletest.Story(t, s, "v1 seed=7 steps=1"+two))
	require.Equal(t, none, reconciletest.Story(t, s, "v1 seed=7 steps=1 in order"+two))
}

// TestExhaustiveIsTheSameOnOneCoreAndTwo in what it finds, and in how many there are.
func TestExhaustiveIsTheSameOnOneCoreAndTwo(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var all [][]string
	for n := 1; n <= 2; n++ {
		runtime.GOMAXPROCS(n)
		s := explores(reconciletest.Exhaustive{Crashes: 1, Errors: 1})
		s.Off = []string{"second", "500"}
		s.Parallel, s.Run, s.Findings = true, givesUp(func(_, _ error) bool { return true }), 100
		var found []string
		report, findings := reconciletest.Explored(t, s)
		for _, f := range findings {
			found = append(found, fmt.Sprintf("%s %d %s", f.Rule, f.Count, f.Replay))
		}
		found = append(found, report[strings.Index(report, "Exhaustive{"):])
		all = append(all, found)
	}
	require.Greater(t, len(all[0]), 1)
	require.Equal(t, all[0], all[1])
}

// TestExhaustiveSaysThatItIsNotDone when the limit ends it.
func TestExhaustiveSaysThatItIsNotDone(t *testing.T) {
	s := explores(reconciletest.Exhaustive{Crashes: 1, Stale: 1, Errors: 1, Others: 1})
	s.Limit = 100 * time.Millisecond
	report, _ := reconciletest.Explored(t, s)
	require.Regexp(t, `Exhaustive\{.*\} is not done: of the schedules were run \d+ of 47 with 1`, report)
}

// TestExhaustiveSaysThatThereWasNothing: a search that was not begun is not done.
func TestExhaustiveSaysThatThereWasNothing(t *testing.T) {
	s := explores(reconciletest.Exhaustive{Crashes: 1})
	s.Off = []string{"crash before", "crash after", "second", "down", "down over"}
	report, _ := reconciletest.Explored(t, s)
	require.Contains(t, report, "Exhaustive{Crashes: 1} is not done")
	require.NotContains(t, report, " pairs, ")
}

// TestExhaustiveKeepsToTheBudget, which is for the schedules with several disturbances.
func TestExhaustiveKeepsToTheBudget(t *testing.T) {
	s := explores(reconciletest.Exhaustive{Crashes: 1, Stale: 1, Errors: 1})
	s.Budget = time.Millisecond
	report, _ := reconciletest.Explored(t, s)
	require.Regexp(t, `is not done: of the schedules were run (\d+) of (\d+) with 1, \d+ of (\d+) with 2 `+
		`disturbances; in \d+ and \d+ of them all happened; `+
		`(\d+) are left, and those with more`, report)
}

// TestExhaustiveCrashesAfterAColdStart, too: when the program catches up.
func TestExhaustiveCrashesAfterAColdStart(t *testing.T) {
	s := explores(reconciletest.Exhaustive{Crashes: 1, Others: 1})
	s.Always = func(w reconciletest.Write, _ *reconciletest.Server) error {
		if w.Incarnation == 2 && w.Old == nil {
			return errors.New("the second one makes it")
		}
		return nil
	}
	s.Replay = "v1 seed=0 steps=1: cold start; crash before create configmaps #1"
	require.Len(t, reconciletest.Search(t, s), 1)
}
