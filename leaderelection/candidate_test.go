package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	peer "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestMain makes a process of the tests a candidate when it was started as one.
func TestMain(m *testing.M) {
	switch os.Getenv("CANDIDATE") {
	case "":
		os.Exit(m.Run())
	case "stuck": // see TestExitIfStuck
		_ = ExitIfStuck(fmt.Errorf("x: %w", ErrStuck))
		os.Exit(0)
	}
	if err := runCandidate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2) // 1 is what ExitIfStuck exits with
	}
	os.Exit(0)
}

// pace of the real runs: short, so that much happens in a minute, with three quarters of a second of margin.
const (
	shortLease = 3 * time.Second
	shortRenew = 1500 * time.Millisecond
	shortRetry = 400 * time.Millisecond
	shortGrace = 500 * time.Millisecond
)

// runCandidate campaigns until SIGTERM. While it leads it stamps its tenure into a file, a line every few milliseconds:
// "w" for a write that the fence let through, "x" for work that nobody checked, which goes on for a while after its
// context has ended. The time in a line is from before the check: in a process that was paused after it the line itself
// comes late, like a request in flight.
func runCandidate() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(os.Getenv("STAMPS"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name, short := os.Getenv("NAME"), os.Getenv("SHORT") != ""
	work := func(ctx context.Context, tenure string, may func() bool) error {
		stamp := func(kind string, at time.Time) { fmt.Fprintf(file, "%s %s %d\n", kind, tenure, at.UnixNano()) }
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var end <-chan time.Time
		done := ctx.Done()
		for {
			now := time.Now()
			stamp("x", now)
			if may() {
				stamp("w", now)
			}
			select {
			case <-tick.C:
			case <-done:
				done, end = nil, time.After(shortGrace/2)
			case <-end:
				return nil
			}
		}
	}
	if os.Getenv("CANDIDATE") == "client-go" {
		return peerCandidate(ctx, cfg, name, short, work)
	}
	c := Config{REST: cfg, Namespace: os.Getenv("NAMESPACE"), Name: "lock", Identity: name, SkipFirstWait: true}
	if short {
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod, c.StopGrace = shortLease, shortRenew, shortRetry, shortGrace
	}
	e, err := New(c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := ExitIfStuck(e.Run(ctx, func(ctx context.Context) error {
			token, _ := e.Token()
			return work(ctx, fmt.Sprintf("%s/%s/%d", name, token.LeaseUID, token.Transitions), e.IsLeader)
		}))
		if err != nil && !errors.Is(err, ErrLost) {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return nil
}

func peerCandidate(ctx context.Context, cfg *rest.Config, name string, short bool,
	work func(context.Context, string, func() bool) error) error {
	client, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for i := 0; ctx.Err() == nil; i++ {
		identity := fmt.Sprintf("%s-%d-%d", name, os.Getpid(), i)
		ended := make(chan struct{})
		started := false
		c := peer.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: os.Getenv("NAMESPACE"), Name: "lock"},
				Client:     client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: peer.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					defer close(ended)
					started = true
					_ = work(ctx, identity+"/x/0", func() bool { return ctx.Err() == nil })
				},
				OnStoppedLeading: func() {},
			},
		}
		if short {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = shortLease, shortRenew, shortRetry
		}
		e, err := peer.NewLeaderElector(c)
		if err != nil {
			return err
		}
		e.Run(ctx)
		if started {
			<-ended
		}
	}
	return nil
}
