package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTheLeaseIsKeptWhileWorkGoesOn has lead functions return while some of what they started runs, and say so.
func TestTheLeaseIsKeptWhileWorkGoesOn(t *testing.T) {
	workers := fmt.Errorf("workers: %w", ErrStuck)
	for name, result := range map[string]error{
		"its work is stuck":         workers,
		"and its context has ended": errors.Join(context.Canceled, workers),
		"and it no longer leads":    errors.Join(ErrNotLeading, workers),
		"and it has lost the Lease": errors.Join(ErrLost, workers),
	} {
		for cause, end := range map[string]func(a *run, s *server, l *link){
			"asked to end": func(a *run, _ *server, _ *link) { a.cancel() },
			"cut off for a time": func(_ *run, _ *server,
				l *link) {
				l.cut(true)
				time.Sleep(11 * time.Second)
				l.cut(false)
			},
			"by itself": func(*run, *server, *link) {},
		} {
			t.Run(name+", "+cause, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					l := s.link("a")
					e := newCandidate(t, l)
					ctx, cancel := quiet(t)
					defer cancel()
					done := make(chan error, 1)
					go func() {
						done <- e.Run(ctx, func(ctx context.Context) error {
							e.SetHandover("a word")
							if cause != "by itself" {
								<-ctx.Done()
							}
							time.Sleep(2 * time.Second)
							return result
						})
					}()
					settle(time.Second)
					end(&run{cancel: cancel}, s, l)
					err := <-done
					require.ErrorIs(t, err, ErrStuck)
					if cause == "cut off for a time" {
						require.ErrorIs(t, err, ErrLost)
					}
					require.NotContains(t, s.get().Annotations, handoverAnnotation)
					require.Equal(t, e.Identity(), value(s.get().Spec.HolderIdentity))
					require.False(t, e.IsLeader())
					require.ErrorIs(t, e.Check(nil), ErrStuck, "the process has to be restarted")
					released := e.Stats().Releases
					require.Zero(t, released)

					again, stop := quiet(t)
					defer stop()
					err = e.Run(again, func(context.Context) error { return nil })
					require.ErrorIs(t, err, ErrStuck, "no work beside what goes on")

					b := start(t, newCandidate(t, s.link("b")), 0)
					began := time.Now()
					settle(14 * time.Second)
					require.Empty(t, b.worked(), "the Lease has not run out")
					settle(5 * time.Second)
					require.Len(t, b.worked(), 1)
					require.GreaterOrEqual(t, b.worked()[0].from.Sub(began), 15*time.Second)
					require.NoError(t, b.stop())
				})
			})
		}
	}
}

// TestAWorkThatSaysLaterThatItIsStuck was given up before, and no other Run of this process may lead beside what it has
// left.
func TestAWorkThatSaysLaterThatItIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		e := newCandidate(t, s.link("a"))
		ctx, cancel := quiet(t)
		done := make(chan error, 1)
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error { time.Sleep(time.Minute); return ErrStuck })
		}()
		settle(time.Second)
		cancel()
		require.ErrorIs(t, <-done, ErrStuck)
		settle(2 * time.Minute)
		require.ErrorIs(t, e.Check(nil), ErrStuck)
		again, stop := quiet(t)
		defer stop()
		require.ErrorIs(t, e.Run(again, func(context.Context) error { return nil }), ErrStuck)
	})
}
