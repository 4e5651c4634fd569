package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// TestWhileRunsInOneReplica at a time: where the slice of its key is, and in another one soon after that has left, or
// has lost it.
func TestWhileRunsInOneReplica(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		ctx, stop := context.WithCancel(quiet)
		var group lifecycle.Group
		key := types.NamespacedName{Name: "sweep"}
		at, calls := map[string]bool{}, 0 // where it runs now, and how often it began
		attach := func(m *testMember) *testMember {
			group.Go(m.name, func() {
				err := m.While(ctx, key, func(ctx context.Context) error {
					g.mu.Lock()
					for other := range at {
						g.broken = append(g.broken, fmt.Sprintf("While runs in %s, and in %s", m.name, other))
					}
					at[m.name] = true
					calls++
					_, ok := m.Epoch(ctx)
					g.mu.Unlock()
					require.True(g, ok)
					<-ctx.Done()
					g.mu.Lock()
					delete(at, m.name)
					g.mu.Unlock()
					return context.Cause(ctx)
				})
				require.NoError(g, err)
			})
			return m
		}
		where := func() (name string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			require.Len(g, at, 1)
			for name = range at {
			}
			return name
		}
		all := map[string]*testMember{}
		for _, name := range []string{"a", "b"} {
			all[name] = attach(g.start(name))
		}
		time.Sleep(18 * time.Second)
		first := where()
		for n := 0; where() == first; n++ { // until one joins that asks for the slice
			require.Less(t, n, 20)
			name := fmt.Sprint("j", n)
			all[name] = attach(g.start(name))
			time.Sleep(20 * time.Second)
		}
		require.Equal(t, 2, calls, "and the work of the slice, which takes a second, is all that was waited for")
		second := where()
		require.NoError(t, g.stop(all[second]))
		time.Sleep(2 * time.Second)
		third := where()
		all[third].cut(true)
		time.Sleep(18 * time.Second)
		require.NotEqual(t, third, where())
		all[third].cut(false)
		time.Sleep(5 * time.Second)
		stop()
		<-group.Done()
	})
}

// TestWhileReturnsWhatItsFunctionReturns by itself.
func TestWhileReturnsWhatItsFunctionReturns(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		wrong := errors.New("wrong")
		key := types.NamespacedName{Name: "sweep"}
		require.ErrorIs(t, a.While(quiet, key, func(context.Context) error { return wrong }), wrong)
		require.NoError(t, a.While(quiet, key, func(context.Context) error { return nil }))
	})
}

// TestWhileKeepsTheSliceOfAFunctionWhoseWorkGoesOn: no other replica gets it, and the health check says so.
func TestWhileKeepsTheSliceOfAFunctionWhoseWorkGoesOn(t *testing.T) {
	inGroup(t, func(o *Options) { o.DrainTimeout = 5 * time.Second }, func(g *testGroup) {
		a := g.start("a")
		g.start("b")
		time.Sleep(20 * time.Second)
		slice := a.Stats().Slices[0]
		key := keyOf(slice, 64)
		ran := make(chan error, 1)
		go func() {
			ran <- a.While(quiet, key, func(ctx context.Context) error {
				<-ctx.Done()
				return fmt.Errorf("a worker %w", ErrStuck)
			})
		}()
		time.Sleep(time.Second)
		require.Empty(t, ran)
		a.cancel()
		require.ErrorIs(t, <-ran, ErrStuck)
		time.Sleep(4 * time.Second)
		for _, m := range g.members[1:] {
			require.NotContains(t, m.Stats().Slices, slice, "a worker of a may be at work in it")
		}
		<-a.done
		require.ErrorIs(t, a.err, ErrStuck)
		require.ErrorIs(t, a.Check(nil), ErrStuck)
		<-a.works.Done()
		a.err = nil
		time.Sleep(20 * time.Second)
		require.Len(t, g.shares(), 1, "its Lease has run out, and by then its process should have exited")
	})
}

// TestWhileTellsOfErrorsOfAFunctionThatWasToldToEnd in the log.
func TestWhileTellsOfErrorsOfAFunctionThatWasToldToEnd(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		var mu sync.Mutex
		logged := ""
		log := funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			logged += args
		}, funcr.Options{})
		ctx, stop := context.WithCancel(klog.NewContext(context.Background(), log))
		ran := make(chan error, 1)
		go func() {
			ran <- a.While(ctx, types.NamespacedName{Name: "sweep"}, func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("half of it is done")
			})
		}()
		time.Sleep(time.Second)
		stop()
		require.NoError(t, <-ran)
		require.Contains(t, logged, "half of it is done")
	})
}
