package reconciletest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func listens(ctx context.Context, _ *rest.Config) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() { _, _ = l.Accept() }()
	<-ctx.Done()
	return nil
}

// stills are programs that do something which virtual time does not reach.
var stills = map[string]func(ctx context.Context, cfg *rest.Config) error{
	"port": listens,
	"connection": func(ctx context.Context, _ *rest.Config) error {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer silent.Close()
		c, err := net.Dial("tcp", silent.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
		return err
	},
	"goroutine": func(context.Context, *rest.Config) error {
		<-worker
		return nil
	},
	"clock": func(ctx context.Context, _ *rest.Config) error {
		<-ticker.C
		<-ctx.Done()
		return nil
	},
	"lock": func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		var mu sync.Mutex
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				mu.Lock()
				defer mu.Unlock()
				_, _ = core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			})
		}
		both.Wait()
		<-ctx.Done()
		return nil
	},
	"process": func(context.Context, *rest.Config) error { return exec.Command("sleep", "600").Run() },
	"port, but rarely": func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		for range starts.Add(1) { // a finding, since there are more of them each time
			go func() { select {} }()
		}
		if _, err := core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); apierrors.IsInternalError(err) {
			return listens(ctx, cfg)
		}
		<-ctx.Done()
		return nil
	},
	"panic": func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		var one sync.WaitGroup
		one.Go(func() {
			if _, err := core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err != nil {
				panic("no pods")
			}
		})
		one.Wait()
		<-ctx.Done()
		return nil
	},
}

var (
	worker = make(chan int)
	ticker = time.NewTicker(time.Hour)
)

const stillEnv = "RECONCILETEST_STILL"

// TestStandsStill is not a test of its own: [TestWhatStopsAProgram] runs it in a process that it may break.
func TestStandsStill(t *testing.T) {
	run := stills[os.Getenv(stillEnv)]
	if run == nil {
		t.Skip("it is a part of another test")
	}
	sc := greets(run)
	sc.Server.Roles, sc.User, sc.Settled = nil, "", func(*reconciletest.Server) error { return nil }
	reconciletest.Check(t, sc)
}

// TestWhatStopsAProgram is about the line and the advice.
func TestWhatStopsAProgram(t *testing.T) {
	for what, want := range map[string]string{
		"port":       `still_test.go:\d+: it listens on a port;\s+leave that out in the test: controller-runtime's`,
		"connection": `still_test.go:\d+: it waits for the network, or for a pipe;\s+Scenario.Outside stands in`,
		"goroutine":  `still_test.go:\d+: it waits for a channel, a timer or a goroutine that was made outside`,
		"clock":      `still_test.go:\d+: it waits for a channel, a timer or a goroutine that was made outside`,
		"lock": `(?s)still_test.go:\d+: it waits for a lock;.*with one worker nobody else may want the lock.*of ` +
			`those who may hold the lock, these wait for the answer to a request: .*still_test.go:\d+`,
		"process": `still_test.go:\d+: it waits for the operating system`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			// go test's own limit ends it if it is not said.
			cmd := exec.Command(os.Args[0], "-test.run=^TestStandsStill$", "-test.timeout=9m") //nolint:gosec // itself
			cmd.Env = append(os.Environ(), stillEnv+"="+what)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "a run stands still", "%s", out)
			require.Regexp(t, want, string(out))
			require.NotContains(t, string(out), "panic: test timed out")
		})
	}
}

// starts is how often the program has started that leaves goroutines.
var starts atomic.Int64

// TestWhatWasFoundIsSaidWhereARunStandsStill, before the test ends.
func TestWhatWasFoundIsSaidWhereARunStandsStill(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestStandsStill$") //nolint:gosec // itself
	cmd.Env = append(os.Environ(), stillEnv+"=port, but rarely")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	require.Regexp(t, `(?s)finding 1 of 1, .*leaves no goroutine behind.*a run stands still.*500 to list pods #1`,
		string(out))
}

// TestAPanicNamesItsSchedule where Check cannot go on, since it is on a goroutine that the program has started.
func TestAPanicNamesItsSchedule(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestStandsStill$") //nolint:gosec // itself
	cmd.Env = append(os.Environ(), stillEnv+"=panic")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	require.Regexp(t, `(?s)panic: no pods.*goroutine \d+ \[running, synctest bubble \d+ labels:`+
		`\{[^\n]*"reconciletest.schedule": "v1 seed=0 steps=\d: [^"\n]*list pods #1"\}\]:\n`, string(out))
}

// TestKlogEndsTheProgram and not the test: it is started again, unless every run shows that it ends.
func TestKlogEndsTheProgram(t *testing.T) {
	patient := false
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		var watchdog sync.WaitGroup
		watchdog.Go(func() {
			for wait := time.Duration(0); ctx.Err() == nil; wait = time.Minute {
				select {
				case <-ctx.Done():
				case <-time.After(wait):
				}
				if _, err := core.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil || !patient {
					klog.FlushAndExit(klog.ExitFlushTimeout, 7) // also when its ctx has ended
				}
			}
		})
		defer watchdog.Wait()
		return plain(right)(ctx, cfg)
	})
	s.Server.Roles, s.User, s.Budget = nil, "", 100*time.Millisecond
	found := first(t, s)
	require.Equal(t, "runs until its ctx ends", found.Rule)
	require.Contains(t, found.Detail[0], "it ended by itself: klog has ended the process with the code 7")
	patient = true
	reconciletest.Check(t, s)
}

// TestWhatKlogHasEndedMayWait for what would have come from the goroutine that has ended it.
func TestWhatKlogHasEndedMayWait(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		checked := make(chan struct{})
		go func() {
			_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil && ctx.Err() == nil {
				klog.FlushAndExit(0, 7)
			}
			close(checked)
		}()
		<-checked
		return plain(right)(ctx, cfg)
	})
	s.Server.Roles, s.User, s.Replay = nil, "", "v1 seed=0 steps=3: 500 to list nodes #1"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestAProgramMayWaitForAnotherProcess for some seconds of real time, in which virtual time stands still.
func TestAProgramMayWaitForAnotherProcess(t *testing.T) {
	var once sync.Once
	sc := greets(func(ctx context.Context, _ *rest.Config) (err error) {
		once.Do(func() { err = exec.Command("sleep", "6").Run() })
		<-ctx.Done()
		return err
	})
	require.NotEmpty(t, reconciletest.Story(t, sc, "v1 seed=0 steps=3: "))
}

// TestWhatEndsAProgram has a hint beside the error.
func TestWhatEndsAProgram(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for hint, run := range map[string]func(context.Context, *rest.Config) error{
		"files are those of the machine, and the same for each run: make /no/such/file before Check": func(
			context.Context, *rest.Config) error {
			_, err := os.ReadFile("/no/such/file")
			return err
		},
		"an earlier run has the port, or another program": func(context.Context, *rest.Config) error {
			_, err := net.Listen("tcp", taken.Addr().String())
			return err
		},
	} {
		found := reconciletest.Search(t, greets(run))
		require.Len(t, found, 1)
		require.Equal(t, "runs until its ctx ends", found[0].Rule)
		require.Contains(t, found[0].Detail[len(found[0].Detail)-1], hint, found[0].Detail)
	}
}
