package sharding

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// alone makes a replica that is run by the test itself.
func (g *testGroup) alone(name string) *testMember {
	m := &testMember{name: name, link: g.server.Link()}
	opts := Options{REST: m.link.Config(), Namespace: "default", Name: "shards", Identity: name, Slices: 4, By: ByKey}
	var err error
	m.Shards, err = New(opts)
	require.NoError(g, err)
	return m
}

var quiet = klog.NewContext(context.Background(), klog.Logger{})

// TestASliceOpensWhenItIsSettled and not before: also one that has gone and come back meanwhile.
func TestASliceOpensWhenItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t, nil)
		m := g.alone("a")
		ctx, cancel := context.WithCancel(quiet)
		var settled []string
		proceed := make(chan bool)
		done := make(chan error, 1)
		m.works.Go("run", func() {
			done <- m.Run(ctx, func(tenure context.Context) error {
				m.Inherit(tenure, func(_ context.Context, words []string, all bool) {
					settled = append(settled, fmt.Sprint("settle ", words, all))
					<-proceed
				}, func(slices []int) { settled = append(settled, fmt.Sprint("open ", slices)) })
				return nil
			})
		})
		time.Sleep(20 * time.Second)
		_, _, err := m.Enter(quiet, keyByName(2, 4))
		require.ErrorIs(t, err, ErrNotOwned)
		require.Empty(t, m.Stats().Slices)
		require.Equal(t, uint64(4), m.Stats().Gained)
		m.mu.Lock() // another replica asks for slice 2, has it, and gives it back
		m.r.holds[2].phase = stopping
		m.settleLocked()
		m.r.holds[2].phase = working
		m.settleLocked()
		m.mu.Unlock()
		proceed <- true
		synctest.Wait()
		require.Equal(t, []string{"settle [] false", "open [0 1 3]", "settle [] false"}, settled)
		require.Equal(t, []int{0, 1, 3}, m.Stats().Slices)
		_, _, err = m.Enter(quiet, keyByName(2, 4))
		require.ErrorIs(t, err, ErrNotOwned)
		proceed <- true
		synctest.Wait()
		_, leave, err := m.Enter(quiet, keyByName(2, 4))
		require.NoError(t, err)
		leave()
		cancel()
		require.NoError(t, <-done)
	})
}

// keyByName finds a key of a slice by [ByKey].
func keyByName(slice, n int) types.NamespacedName {
	for i := 0; ; i++ {
		key := types.NamespacedName{Namespace: "default", Name: fmt.Sprint(i)}
		if sliceOf(ByKey(key), n) == slice {
			return key
		}
	}
}

// TestWhatRunReturns for each way in which a tenure can end.
func TestWhatRunReturns(t *testing.T) {
	failed := errors.New("lead failed")
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	hangs := make(chan bool)
	for name, test := range map[string]struct {
		lead  func(ctx context.Context) error
		cut   bool
		ended bool
		want  error
		after time.Duration // at most, from when it is told to end
		stuck bool
	}{
		"ctx ends":     {lead: waits, ended: true, after: time.Second},
		"lead returns": {lead: func(context.Context) error { return nil }, after: time.Second},
		"lead fails":   {lead: func(context.Context) error { return failed }, want: failed, after: time.Second},
		// RenewDeadline, and StopGrace for tries to remove its Lease.
		"the tenure is lost": {lead: waits, cut: true, want: ErrLost, after: 13 * time.Second},
		"work is stuck": {lead: func(context.Context) error { return fmt.Errorf("a worker %w", ErrStuck) },
			want: ErrStuck, after: time.Second, stuck: true},
		"lead hangs": {lead: func(context.Context) error { <-hangs; return nil }, ended: true, want: ErrStuck,
			after: 34 * time.Second, stuck: true},
		"lead hangs when it is lost": {lead: func(context.Context) error { <-hangs; return nil }, cut: true,
			want: ErrStuck, after: 15 * time.Second, stuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs = make(chan bool)
				m := newTestGroup(t, nil).alone("a")
				ctx, cancel := context.WithCancel(quiet)
				begin, done := make(chan bool), make(chan error, 1)
				m.works.Go("run", func() {
					done <- m.Run(ctx, func(ctx context.Context) error { <-begin; return test.lead(ctx) })
				})
				time.Sleep(20 * time.Second)
				close(begin)
				if test.cut {
					m.cut(true)
				}
				if test.ended {
					cancel()
				}
				began := time.Now()
				err := <-done
				require.LessOrEqual(t, time.Since(began), test.after)
				if test.want == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, test.want)
				}
				m.cut(false)
				if again := m.Run(quiet, func(context.Context) error { return failed }); test.stuck {
					require.ErrorIs(t, again, ErrStuck)
				} else {
					require.ErrorIs(t, again, failed)
				}
				cancel()
				close(hangs)
			})
		})
	}
}
