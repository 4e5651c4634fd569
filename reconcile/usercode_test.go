package reconcile_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// violently does what user code must be able to do without harm to anybody else.
var violently = map[string]func(){
	"panic":  func() { panic("ouch") },
	"Goexit": runtime.Goexit,
}

// hostile is an error that fails in one of its methods.
type hostile struct {
	fail  func()
	where string
	calls int
}

func (h *hostile) at(where string) {
	if h.where == where {
		h.calls++
		h.fail()
	}
}

func (h *hostile) Error() string { h.at("Error"); return "hostile" }
func (h *hostile) Unwrap() error { h.at("Unwrap"); return nil }

// TestReconcileTakesNobodyDown lets Reconcile, or the error that it returns, panic or end the goroutine. The key that
// it happens to is reconciled again, and so are all others, by the one worker that there is.
func TestReconcileTakesNobodyDown(t *testing.T) {
	for _, where := range []string{"Reconcile", "Error", "Unwrap"} {
		for how, fail := range violently {
			t.Run(where+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := &hostile{fail: fail, where: where}
					var log journal
					runs := 0
					c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
						log.note("%s", key.Name)
						if runs++; runs > 2 {
							return reconcile.Result{}, nil
						}
						h.at("Reconcile")
						return reconcile.Result{}, errors.Join(h)
					}, reconcile.Options{})
					reconcile.For(c, newMaps(t, newMapAPI()))
					stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
					c.Enqueue(parent)
					time.Sleep(time.Hour)
					require.Equal(t, []string{"parent", "parent", "parent"}, taken(&log))
					require.Equal(t, 2, h.calls)
					c.Enqueue(reconcile.Key{Name: "other"})
					require.Equal(t, []string{"other"}, taken(&log), "the worker lives on")
					require.NoError(t, c.Alive())
					require.Zero(t, c.Stats().Queue.Active)
					require.NoError(t, stop())
				})
			})
		}
	}
}

// around is an error of the user's around that of a panic, as SlowStart returns it.
type around struct{ *lifecycle.PanicError }

func (a around) Error() string { return "around" }
func (a around) Unwrap() error { return a.PanicError }
func (a around) As(any) bool   { panic("As") }

// TestTheErrorOfAPanicIsLookedAtWithinTheCall: what is recorded of the run calls no method of the error, which may
// panic where it would end the process.
func TestTheErrorOfAPanicIsLookedAtWithinTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			if runs++; runs > 1 {
				return reconcile.Result{}, nil
			}
			var inner *lifecycle.PanicError
			require.ErrorAs(t, lifecycle.Try(func() { panic("ouch") }), &inner)
			return reconcile.Result{}, around{inner}
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 2, runs)
		require.Contains(t, c.InspectKey(parent).Runs[0].Where, "usercode_test.go")
		require.NoError(t, stop())
	})
}

// told is a Recorder that notes what a method of its is told of.
type told struct{ parked func() }

func (o *told) Controller(string, func() status.Stats) reconcile.Recorder { return o }
func (*told) Waited(workqueue.Priority, time.Duration)                    {}
func (*told) Worked(workqueue.Priority, time.Duration)                    {}
func (*told) Reconciled(string, time.Duration)                            {}
func (o *told) Parked(time.Duration)                                      { o.parked() }

// TestAKeyIsQueuedBeforeAnybodyIsToldThatItIsNoLongerParked: whatever becomes of the telling, the key is not lost.
func TestAKeyIsQueuedBeforeAnybodyIsToldThatItIsNoLongerParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, recorder, runs := newMapAPI(), &told{}, 0
		inf := newMaps(t, api)
		c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			if runs++; runs > 1 {
				return reconcile.Result{}, nil
			}
			api.Hold()
			return reconcile.Result{}, reconcile.Wrote(ctx, inf, api.Create(configMap("child")))
		}, reconcile.Options{Metrics: recorder})
		var adds []uint64
		recorder.parked = func() { adds = append(adds, c.Stats().Queue.Adds) }
		reconcile.DependsOn(c, inf)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		synctest.Wait()
		c.Enqueue(parent)
		synctest.Wait()
		require.Equal(t, status.KeyParked, c.InspectKey(parent).State)
		before := c.Stats().Queue.Adds
		api.Release()
		synctest.Wait()
		require.Equal(t, []uint64{before + 1}, adds)
		require.Equal(t, 2, runs)
		waits := c.InspectKey(parent).Runs[1].Waits
		require.Equal(t, status.WaitParked, waits[0].For, "it is in the record of the run that it delayed")
	})
}

// brittle is a log sink that panics at one line.
type brittle struct{ at string }

func (brittle) Init(logr.RuntimeInfo)               {}
func (brittle) Enabled(int) bool                    { return true }
func (b brittle) Info(_ int, line string, _ ...any) { b.Error(nil, line) }
func (b brittle) WithValues(...any) logr.LogSink    { return b }
func (b brittle) WithName(string) logr.LogSink      { return b }
func (b brittle) Error(_ error, line string, _ ...any) {
	if line == b.at {
		panic("swordfish")
	}
}

// TestAPanicElsewhereEndsTheProcess: it is a bug of the program, and a restart is safer than to go on with what it has
// left behind. The informer's goroutine, which recovers from panics of handlers, makes no difference.
func TestAPanicElsewhereEndsTheProcess(t *testing.T) {
	swordfish := func() { panic("swordfish") }
	places := map[string]func(*reconcile.Options, *reconcile.ManagerOptions){
		"Priority": func(opts *reconcile.Options, _ *reconcile.ManagerOptions) {
			opts.Priority = func(reconcile.Key) workqueue.Priority { swordfish(); return 0 }
		},
		"OnRun": func(opts *reconcile.Options, _ *reconcile.ManagerOptions) {
			opts.OnRun = func(string, reconcile.Key, status.Run) { swordfish() }
		},
		"a Recorder, on an informer's goroutine": func(opts *reconcile.Options, _ *reconcile.ManagerOptions) {
			opts.Metrics = &told{parked: swordfish}
		},
		"a log sink, on an informer's goroutine": func(*reconcile.Options, *reconcile.ManagerOptions) {
			klog.SetLogger(logr.New(brittle{"No longer parked"}))
			require.NoError(t, new(klog.Level).Set("4"))
		},
		"a runnable": func(_ *reconcile.Options, opts *reconcile.ManagerOptions) {
			opts.WhileLeading = map[string]func(context.Context) error{
				"it": func(context.Context) error { swordfish(); return nil }}
		},
	}
	if place := os.Getenv("THERMOSTAT_TEST_PANIC"); place != "" {
		api, runs := newMapAPI(), 0
		inf := newMaps(t, api)
		opts, manager := reconcile.Options{}, reconcile.ManagerOptions{}
		places[place](&opts, &manager)
		c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			if runs++; runs > 1 {
				return reconcile.Result{}, errors.New("no")
			}
			api.Hold()
			time.AfterFunc(100*time.Millisecond, api.Release)
			return reconcile.Result{RequeueAfter: time.Millisecond}, reconcile.Wrote(ctx, inf,
				api.Create(configMap("child")))
		}, opts)
		reconcile.For(c, inf)
		manager.Controllers = []*reconcile.Controller{c}
		c.Queue().Add(parent)
		start(t, manager)
		time.Sleep(time.Minute) // the panic ends it
		return
	}
	for place := range places {
		t.Run(place, func(t *testing.T) {
			again := exec.Command(os.Args[0], "-test.run=^TestAPanicElsewhereEndsTheProcess$")
			again.Env = append(os.Environ(), "THERMOSTAT_TEST_PANIC="+place)
			output, err := again.CombinedOutput()
			ended := new(exec.ExitError)
			require.ErrorAs(t, err, &ended, "%s", output)
			require.Equal(t, 2, ended.ExitCode(), "%s", output)
			require.Contains(t, string(output), "panic: swordfish")
			require.Contains(t, string(output), "usercode_test.go")
		})
	}
}

// TestAKeyWhoseRunEndsItsGoroutineComesBackLikeOneThatFails pins the delays, and that the process stops in order.
func TestAKeyWhoseRunEndsItsGoroutineComesBackLikeOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, log := time.Now(), journal{}
		runs := 0
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			log.note("%s", time.Since(began))
			if runs++; runs < 4 {
				runtime.Goexit()
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
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
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key.Name)
			if key == parent {
				if _, first := <-release; first {
					runtime.Goexit()
				}
			}
			time.Sleep(time.Second)
			return reconcile.Result{}, nil
		}, reconcile.Options{Timeout: time.Minute})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
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
			c.Enqueue(reconcile.Key{Name: name})
		}
		require.Len(t, taken(&log), 1, "there is one worker")
	})
}

// TestFailuresOutliveAClaimThatNeverRan: a key that is taken while the Manager stops begins no run, and what is known
// of its failures stays.
func TestFailuresOutliveAClaimThatNeverRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, acting := range map[string]func(context.CancelFunc) reconcile.Func{
			"before the run": nil,
			"in the run": func(stop context.CancelFunc) reconcile.Func {
				return func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
					stop()
					return reconcile.Result{}, ctx.Err()
				}
			},
		} {
			ctx, stop := context.WithCancel(t.Context())
			limiter := workqueue.Exponential[reconcile.Key](5*time.Millisecond, time.Minute, 0)
			r := reconcile.Func(func(context.Context, reconcile.Key) (reconcile.Result, error) {
				return reconcile.Result{}, errors.New("no")
			})
			if acting != nil {
				r = acting(stop)
			}
			c := newController(t, r, reconcile.Options{RateLimiter: limiter})
			limiter.When(parent)
			c.Enqueue(parent)
			claim, err := c.Queue().Take(ctx)
			require.NoError(t, err)
			if acting == nil {
				stop()
			}
			c.Handle(ctx, claim)
			require.Equal(t, 1, limiter.NumRequeues(parent), name)
			time.Sleep(time.Millisecond)
			require.Equal(t, 1, c.Queue().Len(), "%s: the key waits for whoever leads next", name)
			stop()
		}
	})
}
