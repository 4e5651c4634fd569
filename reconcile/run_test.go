package reconcile_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile"
)

// inRun calls f in a bubble, with the ctx of a run and a function that ends leadership, and what f returns when the run
// is over.
func inRun(t *testing.T, f func(ctx context.Context, stop func()) (after func())) {
	synctest.Test(t, func(t *testing.T) {
		acting, stop := context.WithCancel(t.Context())
		defer stop()
		var after func()
		c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			after = f(ctx, stop)
			return reconcile.Result{}, nil
		}, reconcile.Options{Timeout: time.Minute})
		c.Enqueue(parent)
		claim, err := c.Queue().Take(acting)
		require.NoError(t, err)
		c.Handle(acting, claim)
		after()
	})
}

func TestTheCtxOfARunEndsInTimeWheneverItIsAskedForFirst(t *testing.T) {
	ended := func(t *testing.T, ctx context.Context, want error) {
		t.Helper()
		synctest.Wait()
		select {
		case <-ctx.Done():
		default:
			t.Error("it goes on")
		}
		require.Equal(t, want, ctx.Err())
		require.Equal(t, want, context.Cause(ctx))
	}
	for name, early := range map[string]func(context.Context){
		"after the end":  func(context.Context) {},
		"before the end": func(ctx context.Context) { ctx.Done() },
	} {
		t.Run("of its time, "+name, func(t *testing.T) {
			inRun(t, func(ctx context.Context, _ func()) (after func()) {
				began := time.Now()
				time.Sleep(time.Second)
				early(ctx)
				time.Sleep(time.Minute)
				ended(t, ctx, context.DeadlineExceeded)
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				require.Equal(t, began.Add(time.Minute), deadline)
				return func() { ended(t, ctx, context.DeadlineExceeded) }
			})
		})
		t.Run("of leadership, "+name, func(t *testing.T) {
			inRun(t, func(ctx context.Context, stop func()) (after func()) {
				early(ctx)
				stop()
				ended(t, ctx, context.Canceled)
				return func() {}
			})
		})
		t.Run("of the call, "+name, func(t *testing.T) {
			inRun(t, func(ctx context.Context, _ func()) (after func()) {
				early(ctx)
				return func() { ended(t, ctx, context.Canceled) }
			})
		})
	}
}

func TestWhatIsDerivedFromTheCtxOfARunEndsWithIt(t *testing.T) {
	type mine struct{}
	inRun(t, func(ctx context.Context, _ func()) (after func()) {
		child, cancel := context.WithTimeout(context.WithValue(ctx, mine{}, "value"), time.Hour)
		t.Cleanup(cancel)
		require.Equal(t, "value", child.Value(mine{}))
		causes, _ := reconcile.Causes(child)
		require.Len(t, causes, 1, "it is the ctx of the run")
		deadline, _ := child.Deadline()
		require.Equal(t, time.Now().Add(time.Minute), deadline)

		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		require.NotContains(t, string(stacks), "propagateCancel",
			"no goroutine waits for the run's end on behalf of a child")
		return func() { require.Equal(t, context.Canceled, child.Err()) }
	})
}

func TestARunHasOneContextWhoeverAsksFirst(t *testing.T) {
	for range 100 {
		inRun(t, func(ctx context.Context, _ func()) (after func()) {
			var asking sync.WaitGroup
			done := make([]<-chan struct{}, 8)
			for i := range done {
				asking.Go(func() { done[i] = ctx.Done() })
			}
			asking.Wait()
			for _, d := range done {
				require.Equal(t, done[0], d)
			}
			require.NoError(t, ctx.Err(), "the one that was made too much has ended, and this is not it")
			return func() { require.Equal(t, context.Canceled, ctx.Err()) }
		})
	}
}

func TestTheLoggerOfARunHasControllerAndKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log journal
		c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			klog.FromContext(ctx).Info("hello", "ctx", fmt.Sprint(ctx))
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { log.note("%s", args) }, funcr.Options{}))
		startIn(ctx, t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		log.take()
		c.Enqueue(parent)
		require.Equal(t, []string{`"level"=0 "msg"="hello" "controller"="test" "key"={"name"="parent" ` +
			`"namespace"="default"} "ctx"="reconcile default/parent"`}, taken(&log))
	})
}
