package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
)

// runsUntil returns a runnable that notes when it begins and ends, and takes a while to end.
func runsUntil(log *journal, name string, takes time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		log.note("%s begins", name)
		<-ctx.Done()
		time.Sleep(takes)
		log.note("%s ends", name)
		return ctx.Err()
	}
}

// TestRunnablesLiveAsLongAsWhatTheyRunWith follows a Manager through two tenures: Beside runs once, from when the
// caches are complete until the Lease is released; WhileLeading in each tenure, and the Lease is kept for it.
func TestRunnablesLiveAsLongAsWhatTheyRunWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		maps := newMaps(t, api)
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, maps)
		e := &scripted{lead: make(chan context.Context), ended: make(chan error, 10)}
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: e,
			Beside: map[string]func(context.Context) error{
				"beside": func(ctx context.Context) error {
					require.NoError(t, maps.WaitForSync(ctx))
					defer func() { require.Equal(t, "Live", string(maps.Health().State)) }()
					return runsUntil(log, "beside", time.Second)(ctx)
				},
				"once": func(context.Context) error { log.note("once"); return nil },
			},
			WhileLeading: map[string]func(context.Context) error{"leading": runsUntil(log, "leading", 2*time.Second)},
		})
		require.Equal(t, []string{"beside begins", "once"}, taken(log))

		first, lose := context.WithCancel(t.Context())
		e.lead <- first
		require.Equal(t, []string{"leading begins"}, taken(log))
		lose()
		require.NoError(t, <-e.ended)
		require.Equal(t, []string{"leading ends"}, taken(log), "before the elector goes on")

		e.lead <- t.Context()
		require.Equal(t, []string{"leading begins"}, taken(log))
		began := time.Now()
		require.NoError(t, stop())
		require.NoError(t, <-e.ended)
		require.Equal(t, []string{"leading ends", "beside ends"}, log.take(), "in reverse")
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

// TestARunnableNeedsNoController: a Manager is a place for other work, too.
func TestARunnableNeedsNoController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		stop := start(t, reconcile.ManagerOptions{
			WhileLeading: map[string]func(context.Context) error{"a": runsUntil(log, "a", 0)}})
		require.Equal(t, []string{"a begins"}, taken(log))
		require.NoError(t, stop())
	})
}

// TestARunnableThatFailsEndsTheManager: everything else is ended in order, and Run says which one it was.
func TestARunnableThatFailsEndsTheManager(t *testing.T) {
	broken := errors.New("broken")
	for _, leading := range []bool{true, false} {
		t.Run(fmt.Sprint("while leading ", leading), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, log := newMapAPI(), &journal{}
				c := newController(t, noting(&journal{}), reconcile.Options{})
				reconcile.For(c, newMaps(t, api))
				tenure, lose := context.WithCancel(context.Background())
				defer lose()
				e := &scripted{lead: make(chan context.Context, 1), ended: make(chan error, 1)}
				e.lead <- tenure
				opts := reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: e,
					Beside:       map[string]func(context.Context) error{"other": runsUntil(log, "other", 0)},
					WhileLeading: map[string]func(context.Context) error{"third": runsUntil(log, "third", 0)}}
				late := func(context.Context) error { time.Sleep(time.Minute); return broken }
				if leading {
					opts.WhileLeading["it"] = late
				} else {
					opts.Beside["it"] = late
				}
				m, err := reconcile.NewManager(opts)
				require.NoError(t, err)
				err = m.Run(t.Context())
				require.ErrorContains(t, err, "runnable it: broken")
				require.ErrorIs(t, err, broken)
				require.NotErrorIs(t, err, reconcile.ErrStuck)
				require.Equal(t, []string{"third ends", "other ends"}, log.take()[2:])
				require.NoError(t, <-e.ended, "the Lease is released")
			})
		})
	}
}

// TestARunnableThatGoesOnKeepsTheLease: one that does not return, and one that says that its work goes on.
func TestARunnableThatGoesOnKeepsTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(ctx context.Context, release chan struct{}) error
		want string
		took time.Duration
	}{
		"it does not return": {func(_ context.Context, release chan struct{}) error { <-release; return nil },
			"runnable it had 10s to end", 40 * time.Second},
		"it says so": {func(ctx context.Context, _ chan struct{}) error {
			<-ctx.Done()
			return fmt.Errorf("the upload %w", reconcile.ErrStuck)
		}, "runnable it: the upload did not stop in time", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				e := &scripted{lead: make(chan context.Context, 1), ended: make(chan error, 1)}
				e.lead <- t.Context()
				stop := start(t,
					reconcile.ManagerOptions{Elector: e, WhileLeading: map[string]func(context.Context) error{
						"it": func(ctx context.Context) error { return test.run(ctx, release) }}})
				synctest.Wait()
				began := time.Now()
				err := stop()
				require.ErrorIs(t, err, reconcile.ErrStuck)
				require.ErrorContains(t, err, test.want)
				require.Equal(t, test.took, time.Since(began))
				require.ErrorIs(t, <-e.ended, reconcile.ErrStuck, "the elector must not release the Lease")
			})
		})
	}
}

// TestAThroughoutThatDoesNotEndIsNamed once it has had its time, which is twice that of the others.
func TestAThroughoutThatDoesNotEndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		stop := start(t, reconcile.ManagerOptions{StopGrace: time.Second,
			Throughout: map[string]func(context.Context) error{
				"hangs": func(context.Context) error { <-release; return nil }}})
		synctest.Wait()
		began := time.Now()
		require.ErrorContains(t, stop(), "runnable hangs had 2s to end")
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// TestABesideThatDoesNotEndIsNamed, and one that fails when it is to end does no harm.
func TestABesideThatDoesNotEndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		stop := start(t, reconcile.ManagerOptions{Beside: map[string]func(context.Context) error{
			"hangs": func(context.Context) error { <-release; return nil },
			"fails": func(ctx context.Context) error { <-ctx.Done(); return errors.New("http: Server closed") },
		}})
		synctest.Wait()
		err := stop()
		require.EqualError(t, err, "did not stop in time: runnable hangs had 10s to end")
	})
}
