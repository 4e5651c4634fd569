package reconcile

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/workqueue"
)

// violently does what user code must be able to do without harm to anybody else.
var violently = map[string]func(){
	"panic":  func() { panic("ouch") },
	"Goexit": runtime.Goexit,
}

// hostile is a piece of user code that fails when it is armed: an error, a RateLimiter and a Recorder in one.
type hostile struct {
	fail  func()
	where string
	armed atomic.Bool
	calls atomic.Int32
}

func (h *hostile) at(where string) {
	if h.where == where && h.armed.Load() {
		h.calls.Add(1)
		h.fail()
	}
}

func (h *hostile) Error() string { h.at("Error"); return "hostile" }
func (h *hostile) As(any) bool   { h.at("As"); return false }
func (h *hostile) Is(error) bool { h.at("Is"); return false }
func (h *hostile) Unwrap() error { h.at("Unwrap"); return nil }

func (h *hostile) When(Key) time.Duration { h.at("When"); return 5 * time.Millisecond }
func (h *hostile) Forget(Key)             { h.at("Forget") }
func (h *hostile) NumRequeues(Key) int    { return 0 }

func (h *hostile) Controller(string, func() Stats) Recorder { return h }
func (h *hostile) Waited(workqueue.Priority, time.Duration) { h.at("Waited") }
func (h *hostile) Worked(workqueue.Priority, time.Duration) { h.at("Worked") }
func (h *hostile) Reconciled(string, time.Duration)         { h.at("Reconciled") }
func (h *hostile) Parked(time.Duration)                     { h.at("Parked") }

// TestUserCodeTakesNobodyDown lets each piece of user code that the loop calls panic or end its goroutine. The key that
// it happens to is reconciled again, and so are all others, by the one worker that there is.
func TestUserCodeTakesNobodyDown(t *testing.T) {
	for _, where := range []string{"Reconcile", "Error", "As", "Is", "Unwrap", "When", "Forget", "Waited", "Worked",
		"Reconciled", "Parked", "Watches", "WatchesChan"} {
		for how, fail := range violently {
			t.Run(where+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := newMapAPI()
					inf := newMaps(t, api)
					h := &hostile{fail: fail, where: where}
					h.armed.Store(true)
					var log journal
					runs := 0
					c := newController(t, func(ctx context.Context, key Key) (Result, error) {
						log.note("%s", key.Name)
						if key != parent {
							return Result{}, nil
						}
						switch runs++; runs {
						case 1:
							h.at("Reconcile")
							made := api.Create(configMap("child"))
							if where == "Parked" {
								made = made.DeepCopy()
								made.ResourceVersion = "1000" // which the server denies when it is asked
							}
							return Result{}, Wrote(ctx, inf, made)
						case 2:
							return Result{}, errors.Join(h)
						default:
							return Result{}, nil
						}
					}, Options{Metrics: h, RateLimiter: h})
					Watches(c, inf, func(m *corev1.ConfigMap) []Key { h.at("Watches"); return []Key{{Name: m.Name}} })
					values := make(chan Key)
					WatchesChan(c, "values", values, func(k Key) []Key { h.at("WatchesChan"); return []Key{k} })
					stop := start(t, ManagerOptions{Controllers: []*Controller{c}})
					synctest.Wait()

					c.Enqueue(parent)
					c.Enqueue(parent)
					time.Sleep(time.Second)
					c.Enqueue(parent)
					values <- parent
					time.Sleep(time.Hour)
					synctest.Wait()
					require.Contains(t, log.take(), parent.Name)
					require.GreaterOrEqual(t, runs, 3, "the key is not lost")
					if where != "As" && where != "Is" { // the loop has no use for them
						require.NotZero(t, h.calls.Load(), "%s was called", where)
					}

					h.armed.Store(false)
					api.Create(configMap("other"))
					values <- Key{Name: "value"}
					c.Enqueue(Key{Name: "enqueued"})
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Subset(t, log.take(), []string{"other", "value", "enqueued"},
						"the worker and the sources live on")
					require.NoError(t, c.alive())
					require.Zero(t, c.Stats().Queue.Active)
					require.NoError(t, stop())
				})
			})
		}
	}
}

// TestAKeyWhoseRunEndsItsGoroutineComesBackLikeOneThatFails pins the delays, and that the process stops in order.
func TestAKeyWhoseRunEndsItsGoroutineComesBackLikeOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, log := time.Now(), journal{}
		runs := 0
		c := newController(t, func(context.Context, Key) (Result, error) {
			log.note("%s", time.Since(began))
			if runs++; runs < 4 {
				runtime.Goexit()
			}
			return Result{}, nil
		}, Options{})
		For(c, newMaps(t, newMapAPI()))
		stop := start(t, ManagerOptions{Controllers: []*Controller{c}})
		c.Enqueue(parent)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"0s", "5ms", "15ms", "35ms"}, log.take())
		require.NoError(t, stop())
	})
}

// TestACallThatIsStuckAndThenEndsItsGoroutineLeavesNoWorkerTooMany: its place has been taken already.
func TestACallThatIsStuckAndThenEndsItsGoroutineLeavesNoWorkerTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var log journal
		c := newController(t, func(_ context.Context, key Key) (Result, error) {
			log.note("%s", key.Name)
			if key == parent {
				if _, first := <-release; first {
					runtime.Goexit()
				}
			}
			time.Sleep(time.Second)
			return Result{}, nil
		}, Options{Timeout: time.Minute})
		For(c, newMaps(t, newMapAPI()))
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		c.Enqueue(parent)
		time.Sleep(time.Hour)
		require.Equal(t, 1, c.Stuck())
		release <- struct{}{}
		close(release)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, c.Stuck())
		log.take()
		for _, name := range []string{"a", "b"} {
			c.Enqueue(Key{Name: name})
		}
		require.Len(t, taken(&log), 1, "there is one worker")
	})
}

// TestFailuresOutliveAClaimThatNeverRan: a key that is taken while the Manager stops begins no run, and what is known
// of its failures stays.
func TestFailuresOutliveAClaimThatNeverRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, acting := range map[string]func(context.CancelFunc) Func{
			"before the run": nil,
			"in the run": func(stop context.CancelFunc) Func {
				return func(ctx context.Context, _ Key) (Result, error) { stop(); return Result{}, ctx.Err() }
			},
		} {
			ctx, stop := context.WithCancel(t.Context())
			limiter := workqueue.Exponential[Key](5*time.Millisecond, time.Minute, 0)
			r := Func(func(context.Context, Key) (Result, error) { return Result{}, errors.New("no") })
			if acting != nil {
				r = acting(stop)
			}
			c := newController(t, r, Options{RateLimiter: limiter})
			limiter.When(parent)
			w := newWorker(c, ctx, ctx, nil)
			c.Enqueue(parent)
			claim, err := c.queue.Take(ctx)
			require.NoError(t, err)
			if acting == nil {
				stop()
			}
			w.handle(claim)
			w.stopTimer()
			require.Equal(t, 1, limiter.NumRequeues(parent), name)
			time.Sleep(time.Millisecond)
			require.Equal(t, 1, c.queue.Len(), "%s: the key waits for whoever leads next", name)
			stop()
		}
	})
}
