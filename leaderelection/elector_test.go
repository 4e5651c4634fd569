package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// soak reports whether the long runs are wanted.
func soak() bool { return os.Getenv("THERMOSTAT_SOAK") != "" }

// quiet is a context whose logger says nothing.
func quiet(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
}

// logged is a context whose logger counts its lines, as many as an operator sees without -v.
func logged(t *testing.T) (ctx context.Context, cancel context.CancelFunc, lines func() int) {
	var n counter
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(0), textlogger.Output(&n)))
	ctx, cancel = context.WithCancel(klog.NewContext(t.Context(), logger))
	return ctx, cancel, func() int { return int(n.Load()) }
}

// counter counts what is written to it: a logger writes once for each of its lines.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(1)
	return len(p), nil
}

func newCandidate(t *testing.T, l *link, change ...func(*Config)) *Elector {
	t.Helper()
	cfg := Config{REST: l.config(), Namespace: "ns", Name: "lock", Identity: l.name, SkipFirstWait: true}
	for _, c := range change {
		c(&cfg)
	}
	e, err := New(cfg)
	require.NoError(t, err)
	return e
}

// A run is one call of Run on a goroutine of its own, with a lead function that works until its context ends, and then
// for linger.
type run struct {
	*Elector
	ctx    context.Context
	cancel context.CancelFunc
	linger time.Duration

	mu    sync.Mutex
	spans []span // when the lead function worked
	err   error
	done  chan struct{}
}

type span struct{ from, to time.Time } // to is zero while it goes on

func start(t *testing.T, e *Elector, linger time.Duration) *run {
	r := &run{Elector: e, linger: linger, done: make(chan struct{})}
	r.ctx, r.cancel = quiet(t)
	go func() {
		defer close(r.done)
		err := e.Run(r.ctx, r.lead)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	}()
	return r
}

func (r *run) lead(ctx context.Context) error {
	r.mu.Lock()
	r.spans = append(r.spans, span{from: time.Now()})
	r.mu.Unlock()
	<-ctx.Done()
	time.Sleep(r.linger)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans[len(r.spans)-1].to = time.Now()
	return ctx.Err()
}

func (r *run) worked() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]span(nil), r.spans...)
}

func (r *run) wait() error {
	<-r.done
	return r.err
}

func (r *run) stop() error {
	r.cancel()
	return r.wait()
}

// lasted runs work in a bubble and returns how long it took there.
func lasted(work func()) time.Duration {
	start := time.Now()
	work()
	return time.Since(start)
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneLeadsAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a")), 0)
		settle(time.Second)
		b := start(t, newCandidate(t, s.link("b")), 0)
		settle(time.Minute)
		require.True(t, a.IsLeader())
		require.False(t, b.IsLeader())
		seen := b.view.get()
		require.Equal(t, a.Identity(), *seen.lease.Spec.HolderIdentity)
		require.Less(t, time.Since(seen.since), 3*time.Second)
		token, ok := a.Token()
		require.True(t, ok)
		require.Equal(t, tokenOf(seen.lease), token)

		handover := lasted(func() {
			require.NoError(t, a.stop())
			for !b.IsLeader() {
				time.Sleep(time.Millisecond)
			}
		})
		require.LessOrEqual(t, handover, 21*time.Millisecond, "a watched release hands over at once")
		next, _ := b.Token()
		require.Equal(t, token.Transitions+1, next.Transitions)
		require.False(t, a.IsLeader())
		_, ok = a.Token()
		require.False(t, ok)
		require.NoError(t, b.stop())
		require.True(t, isReleased(s.get()))
		require.Equal(t, uint64(1), a.Stats().Releases)
	})
}

func TestACandidateOfANewLeaseWaitsUnlessToldOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pristine := range []bool{false, true} {
			for _, skip := range []bool{false, true} {
				s := newServer()
				if pristine {
					s.edit(func(*coordinationv1.Lease) *coordinationv1.Lease { return &coordinationv1.Lease{} })
				}
				a := start(t, newCandidate(t, s.link("a"), func(c *Config) { c.SkipFirstWait = skip }), 0)
				took := lasted(func() {
					for !a.IsLeader() {
						time.Sleep(time.Millisecond)
					}
				})
				if skip {
					require.Less(t, took, 25*time.Millisecond)
				} else {
					require.GreaterOrEqual(t, took, 15*time.Second)
					require.Less(t, took, 16*time.Second)
				}
				require.NoError(t, a.stop())
			}
		}
	})
}

func TestWhatLeadReturnsIsWhatRunReturns(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		lead func(context.Context) error
		want func(*testing.T, error)
	}{
		"nil": {func(context.Context) error { return nil },
			func(t *testing.T, err error) { require.NoError(t, err) }},
		"error": {func(context.Context) error { return boom },
			func(t *testing.T, err error) { require.Equal(t, boom, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				ctx, cancel := quiet(t)
				defer cancel()
				e := newCandidate(t, s.link("a"))
				c.want(t, e.Run(ctx, c.lead))
				require.True(t, isReleased(s.get()),
					"F12: a lead function that returns ends the tenure and releases the lease")
				require.False(t, e.IsLeader())
			})
		})
	}
}

// TestAPanicOfTheWorkEndsTheProcess, with the stack of the panic.
func TestAPanicOfTheWorkEndsTheProcess(t *testing.T) {
	if os.Getenv("WORK") == "panics" {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := quiet(t)
			defer cancel()
			_ = newCandidate(t, newServer().link("a")).Run(ctx, func(context.Context) error { panic("boom") })
		})
		return
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "WORK=panics")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `(?s)panic: boom.*TestAPanicOfTheWorkEndsTheProcess\.func`, string(out))
}

// TestAFailureBesideTheEndOfItsContextIsNotLost: a lead function that says both has failed.
func TestAFailureBesideTheEndOfItsContextIsNotLost(t *testing.T) {
	boom := errors.New("boom")
	for name, end := range map[string]func(a *run, s *server){
		"asked to end": func(a *run, _ *server) { a.cancel() },
		"lost":         func(_ *run, s *server) { s.edit(wipe) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				ctx, cancel := quiet(t)
				defer cancel()
				err := newCandidate(t, s.link("a")).Run(ctx, func(ctx context.Context) error {
					end(&run{cancel: cancel}, s)
					<-ctx.Done()
					return fmt.Errorf("working: %w", errors.Join(boom, ctx.Err()))
				})
				require.ErrorIs(t, err, boom)
				require.Equal(t, name == "lost", errors.Is(err, ErrLost))
			})
		})
	}
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a")), 0)
		settle(time.Second)
		require.Equal(t, ErrRunning, a.Run(a.ctx, a.lead))
		require.NoError(t, a.stop())
		ctx, cancel := quiet(t)
		defer cancel()
		require.NoError(t, a.Run(ctx, func(context.Context) error { return nil }),
			"one that has returned may be run again")
		require.Equal(t, uint64(2), a.Stats().Tenures)
	})
}

func TestRunWithoutALeadFunction(t *testing.T) {
	e := newCandidate(t, newServer().link("a"))
	require.ErrorContains(t, e.Run(t.Context(), nil), "lead is nil")
}

func TestRenewalsGoOnWhileTheWorkDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a")), 25*time.Second)
		b := start(t, newCandidate(t, s.link("b")), 0)
		settle(time.Second)
		if b.IsLeader() {
			a, b = b, a
			a.linger, b.linger = 25*time.Second, 0
		}
		took := lasted(func() { require.NoError(t, a.stop()) })
		require.Equal(t, 25*time.Second, took)
		settle(time.Second)
		require.True(t, b.IsLeader())
		require.False(t, b.worked()[0].from.Before(a.worked()[0].to))
		require.NoError(t, b.stop())
	})
}

func TestAWorkThatDoesNotDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a")), 10*time.Minute)
		settle(time.Second)
		require.NoError(t, a.Check(nil))
		took := lasted(func() {
			err := a.stop()
			require.ErrorIs(t, err, ErrStuck)
			require.NotErrorIs(t, err, ErrLost)
		})
		require.Equal(t, 30*time.Second, took)
		require.Equal(t, a.Identity(), *s.get().Spec.HolderIdentity, "the lease is never released under the work")
		require.False(t, a.IsLeader())
		require.ErrorIs(t, a.Check(nil), ErrStuck)
		ctx, cancel := quiet(t)
		defer cancel()
		require.ErrorIs(t, a.Run(ctx, a.lead), ErrStuck, "no second lead function beside the first")
		settle(10 * time.Minute)
		require.NoError(t, a.Check(nil))
		require.NoError(t, a.Run(ctx, func(context.Context) error { return nil }))
	})
}

func TestDeniedIsReportedByName(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				if verb == "update" {
					s.edit(func(*coordinationv1.Lease) *coordinationv1.Lease { return &coordinationv1.Lease{} })
				}
				l := s.link("a")
				l.set(func(s *linkState) { s.deny = map[string]bool{verb: true} })
				check := func(err error) {
					var denied *DeniedError
					require.ErrorAs(t, err, &denied)
					require.Equal(t, verb, denied.Verb)
					require.True(t, apierrors.IsForbidden(err))
					require.ErrorContains(t, err, verb+` leases.coordination.k8s.io "lock" in namespace "ns"`)
				}
				a := start(t, newCandidate(t, l), 0)
				settle(time.Minute)
				err := a.stop()
				check(err)
				require.ErrorIs(t, err, context.Canceled)

				c := start(t, newCandidate(t, l), 0)
				settle(time.Minute)
				l.set(func(s *linkState) { s.deny = nil })
				settle(5 * time.Second)
				require.True(t, c.IsLeader(), "a Role that comes late is enough")
				require.NoError(t, c.stop())
			})
		})
	}
}
