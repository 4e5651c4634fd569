package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

// circler is a controller of one ConfigMap whose runs are counted.
type circler struct {
	api        *mapAPI
	maps       *informer.SharedIndexInformer[*corev1.ConfigMap]
	controller *reconcile.Controller
	runs       atomic.Int32
	log        journal
}

// newCircler calls turn with the number of the run.
func newCircler(t *testing.T, turn func(ctx context.Context, c *circler, n int) (reconcile.Result, error)) *circler {
	c := &circler{api: newMapAPI()}
	c.api.Create(configMap("a"))
	c.maps = newMaps(t, c.api)
	c.controller = newController(t, slowly(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		return turn(ctx, c, int(c.runs.Add(1)))
	}), reconcile.Options{})
	reconcile.For(c.controller, c.maps)
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { c.log.note("%s", args) }, funcr.Options{}))
	startIn(ctx, t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c.controller}})
	return c
}

// slowly fails the test when nothing slows a Reconciler down. Then time would not go on, since it stands still as long
// as somebody is at work; so the Reconciler is stopped.
func slowly(t *testing.T, r reconcile.Func) reconcile.Func {
	const tooOften = 10_000
	var runs atomic.Int32
	return func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		switch n := runs.Add(1); {
		case n < tooOften:
			return r(ctx, key)
		case n == tooOften:
			t.Errorf("%d runs, and nothing slows them down", n)
		}
		<-ctx.Done()
		return reconcile.Result{}, ctx.Err()
	}
}

// write changes the object, as a status would be that holds the time of the day.
func (c *circler) write(ctx context.Context, n int) error {
	return reconcile.Wrote(ctx, c.maps, c.api.Update("default", "a",
		func(m *corev1.ConfigMap) { m.Data = map[string]string{"n": fmt.Sprint(n)} }))
}

func TestAKeyThatWritesInCirclesIsSlowedDown(t *testing.T) {
	for name, result := range map[string]struct {
		result reconcile.Result
		err    error
	}{"and succeeds": {}, "and fails": {err: errors.New("no")},
		"and asks for more": {result: reconcile.Result{RequeueAfter: time.Millisecond}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCircler(t, func(ctx context.Context, c *circler, n int) (reconcile.Result, error) {
					require.NoError(t, c.write(ctx, n))
					return result.result, result.err
				})
				synctest.Wait()
				time.Sleep(time.Second / 2)
				synctest.Wait()
				require.EqualValues(t, keys.HotAfter+2, c.runs.Load(),
					"the first is somebody else's doing, %d are free, and one is the last straw", keys.HotAfter)
				require.Equal(t, 1, c.controller.Stats().HotKeys)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Less(t, c.runs.Load(), int32(keys.HotAfter+30), "1 s, 2 s, 4 s ... 5 min")
				require.Greater(t, c.runs.Load(), int32(keys.HotAfter+10), "slowed down, not stopped")
				require.Equal(t, 1, c.controller.Stats().HotLoops, "one circle all the time")

				runs := c.runs.Load()
				c.api.Update("default", "a", func(m *corev1.ConfigMap) { m.Labels = map[string]string{"k": "v"} })
				synctest.Wait()
				require.Greater(t, c.runs.Load(), runs, "what somebody else does brings it up at once")
			})
		})
	}
}

func TestAKeyThatComesToRestIsNotSlowedDownAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(ctx context.Context, c *circler, n int) (reconcile.Result, error) {
			if n <= keys.HotAfter+5 {
				require.NoError(t, c.write(ctx, n))
			}
			return reconcile.Result{}, nil
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, keys.HotAfter+6, c.runs.Load())
		s := c.controller.Stats()
		require.Equal(t, 0, s.HotKeys)
		require.Equal(t, 1, s.HotLoops)
		require.Zero(t, c.controller.Busy())
	})
}

func TestRequeueAfterHasAFloorForWhoComesBackAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(context.Context, *circler, int) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		})
		time.Sleep(time.Second / 2)
		synctest.Wait()
		require.EqualValues(t, keys.HotAfter+2, c.runs.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.InDelta(t, keys.HotAfter+2+60, c.runs.Load(), 1,
			"once in a second, and not more rarely: it may be asking somebody else")
	})
}

// TestACircleIsNamedWithWhatChangesInIt finds, in the one line of the log, what was written and which of its fields
// change, and none of their values.
func TestACircleIsNamedWithWhatChangesInIt(t *testing.T) {
	for name, lag := range map[string]time.Duration{"the answer is faster than the event": 0,
		"the event is faster than the answer": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCircler(t, func(ctx context.Context, c *circler, n int) (reconcile.Result, error) {
					updated := c.api.Update("default", "a", func(m *corev1.ConfigMap) {
						m.Data = map[string]string{"n": fmt.Sprint(n)}
						m.Labels = map[string]string{"fixed": "label"}
						m.Finalizers = []string{fmt.Sprint("the/", n)}
					})
					time.Sleep(lag)
					return reconcile.Result{}, reconcile.Wrote(ctx, c.maps, updated)
				})
				time.Sleep(time.Hour)
				synctest.Wait()
				var named []string
				for _, line := range c.log.take() {
					if strings.Contains(line, "Hot loop: only its own runs bring this key up") {
						named = append(named, line)
					}
				}
				require.Len(t, named, 1, "once")
				require.Contains(t, named[0], `"changes"="For configmaps default/a: metadata.finalizers[0], data"`)
				require.Contains(t, named[0], "wrote configmaps default/a")
				require.NotContains(t, named[0], "the/")
			})
		})
	}
}

// TestWhatOthersDoIsNoCircle has a busy object: every write is the answer to somebody else's.
func TestWhatOthersDoIsNoCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(ctx context.Context, c *circler, n int) (reconcile.Result, error) {
			if m, _ := c.maps.Get(reconcile.Key{Namespace: "default", Name: "a"}); m.Data["n"] != m.Labels["want"] {
				return reconcile.Result{}, reconcile.Wrote(ctx, c.maps,
					c.api.Update("default", "a", func(m *corev1.ConfigMap) {
						m.Data = map[string]string{"n": m.Labels["want"]}
					}))
			}
			return reconcile.Result{}, nil
		})
		for i := range 10 * keys.HotAfter {
			c.api.Update("default", "a", func(m *corev1.ConfigMap) {
				m.Labels = map[string]string{"want": fmt.Sprint(
					i)}
			})
			synctest.Wait()
		}
		require.GreaterOrEqual(t, c.runs.Load(), int32(20*keys.HotAfter))
		require.Zero(t, c.controller.Stats().HotLoops)
		require.Zero(t, c.controller.Busy())
	})
}

// TestAnEventThatIsFasterThanTheAnswerIsStillTheKeysOwn lets the cache have the write before the run knows that it has
// made it.
func TestAnEventThatIsFasterThanTheAnswerIsStillTheKeysOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(ctx context.Context, c *circler, n int) (reconcile.Result, error) {
			updated := c.api.Update("default", "a",
				func(m *corev1.ConfigMap) { m.Data = map[string]string{"n": fmt.Sprint(n)} })
			time.Sleep(time.Millisecond)
			return reconcile.Result{}, reconcile.Wrote(ctx, c.maps, updated)
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, c.controller.Stats().HotKeys)
	})
}

// TestDeletingInCirclesIsFoundToo replaces a child again and again: its deletion's event has a version that no answer
// tells.
func TestDeletingInCirclesIsFoundToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		children := newMapAPI()
		inf := newMaps(t, children)
		c := newController(t, slowly(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			for _, o := range children.Objects() {
				children.Delete(o.Namespace, o.Name)
				if err := reconcile.Deleted(ctx, inf, o); err != nil {
					return reconcile.Result{}, err
				}
			}
			return reconcile.Result{}, reconcile.Wrote(ctx, inf, children.Create(configMap("child")))
		}), reconcile.Options{})
		reconcile.Watches(c, inf, func(*corev1.ConfigMap) []reconcile.Key { return []reconcile.Key{parent} })
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, c.Stats().HotKeys)
	})
}
