package workqueue

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// faulty is everything that a queue has from its user, and all of it fails while fail is set. In each call it looks
// whether the queue's lock is held.
type faulty struct {
	q      *Queue[string]
	fail   func()
	locked bool
}

func (f *faulty) call() {
	if !f.q.core.mu.TryLock() {
		f.locked = true
		return
	}
	f.q.core.mu.Unlock()
	if f.fail != nil {
		f.fail()
	}
}

func (f *faulty) When(string) time.Duration      { f.call(); return time.Second }
func (f *faulty) Forget(string)                  { f.call() }
func (f *faulty) NumRequeues(string) int         { f.call(); return 7 }
func (f *faulty) Waited(Priority, time.Duration) { f.call() }
func (f *faulty) Worked(Priority, time.Duration) { f.call() }
func (f *faulty) group(string) string            { f.call(); return "g" }

func newFaulty() *faulty {
	f := &faulty{}
	f.q = newQueue(Options[string]{RateLimiter: f, Metrics: f, Group: f.group})
	return f
}

// apart runs do on a goroutine of its own, and says whether it returned, rather than ended by runtime.Goexit.
func apart(do func()) (returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
		returned = true
	}()
	<-ended
	return returned
}

// TestUserCodeThatPanicsOrExits: whatever the user's code does, the process goes on, no lock is left behind, and every
// key is where it was asked to be.
func TestUserCodeThatPanicsOrExits(t *testing.T) {
	panics := func() { panic(errors.New("a secret")) }
	calls := map[string]struct {
		do     func(f *faulty) // with one key, "a", that is claimed
		panics uint64
		delay  time.Duration // after which a key is ready
	}{
		"Add": {
			do:     func(f *faulty) { f.q.Add("b") },
			panics: 1,
		},
		"AddRateLimited": {
			do:     func(f *faulty) { f.q.AddRateLimited("b") },
			panics: 2, delay: defaultMost,
		},
		"AddAfter": {
			do:     func(f *faulty) { f.q.AddAfter("b", time.Minute) },
			panics: 1, delay: time.Minute,
		},
	}
	ends := map[string]struct {
		end    func(Claim[string])
		panics uint64
		delay  time.Duration // -1: never
	}{
		"Done":       {func(c Claim[string]) { c.Done() }, 2, -1},
		"DoneAfter":  {func(c Claim[string]) { c.DoneAfter(time.Hour) }, 2, time.Hour},
		"Retry":      {func(c Claim[string]) { c.Retry() }, 2, defaultMost},
		"RetryAfter": {func(c Claim[string]) { c.RetryAfter(time.Minute) }, 2, time.Minute},
		"Rest":       {func(c Claim[string]) { c.Rest(time.Minute) }, 1, time.Minute},
	}
	for how, fail := range map[string]func(){"panic": panics, "Goexit": runtime.Goexit} {
		for name, test := range calls {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFaulty()
					f.q.Add("a")
					c := take(t, f.q)
					f.fail = fail
					require.Equal(t, how == "panic", apart(func() { test.do(f) }))
					f.fail = nil
					require.NoError(t, f.q.check())
					if how == "panic" {
						require.Equal(t, test.panics, f.q.Stats().Panics)
					}
					require.Equal(t, test.delay == 0, f.q.Len() == 1)
					if test.delay > 0 {
						time.Sleep(test.delay - 1)
						synctest.Wait()
						require.Zero(t, f.q.Len())
						time.Sleep(time.Nanosecond)
						synctest.Wait()
					}
					require.Equal(t, "b", take(t, f.q).Key())
					c.Done()
					require.False(t, f.locked)
				})
			})
		}
		for name, test := range ends {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFaulty()
					f.q.Add("a")
					c := take(t, f.q)
					f.fail = fail
					require.Equal(t, how == "panic", apart(func() { test.end(c) }))
					f.fail = nil
					require.NoError(t, f.q.check())
					if how == "panic" {
						require.Equal(t, test.panics, f.q.Stats().Panics)
					}
					require.Zero(t, f.q.Stats().Active)
					if test.delay < 0 {
						require.Zero(t, f.q.core.entries.n)
						return
					}
					time.Sleep(test.delay - 1)
					synctest.Wait()
					require.Zero(t, f.q.Len())
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					require.Equal(t, "a", take(t, f.q).Key())
					require.False(t, f.locked)
				})
			})
		}
	}
}

// TestHandOutWhoseMetricsFail: a panic changes nothing; if the worker's goroutine ends the key is queued again.
func TestHandOutWhoseMetricsFail(t *testing.T) {
	for name, hand := range map[string]func(q *Queue[string]) (end func()){
		"Take": func(q *Queue[string]) func() {
			c, _ := q.Take(context.Background())
			return c.Done
		},
		"Get": func(q *Queue[string]) func() {
			k, _ := q.Get()
			return func() { q.Done(k) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty()
			f.q.Add("a")
			for range 3 {
				f.fail = runtime.Goexit
				require.False(t, apart(func() { hand(f.q) }))
				f.fail = nil
				require.Zero(t, f.q.Stats().Active)
				require.Equal(t, 1, f.q.Len())
				require.NoError(t, f.q.check())
			}
			f.fail = func() { panic("metrics") }
			end := hand(f.q)
			require.Equal(t, 1, f.q.Stats().Active)
			end()
			require.Equal(t, uint64(map[string]int{"Take": 3, "Get": 2}[name]), f.q.Stats().Panics)
			f.fail = nil
			require.NoError(t, f.q.check())
			require.Zero(t, f.q.core.entries.n)
			require.False(t, f.locked)
		})
	}
}

// done is a metric that ends the hand-out of a key itself, as Done may come from any goroutine, and then its goroutine.
type done struct{ q *Queue[string] }

func (d *done) Waited(Priority, time.Duration) {
	if d.q != nil {
		d.q.Done("a")
		runtime.Goexit()
	}
}
func (*done) Worked(Priority, time.Duration) {}

// TestHandOutThatHasEndedIsNotEndedAgain, although its metrics fail.
func TestHandOutThatHasEndedIsNotEndedAgain(t *testing.T) {
	d := &done{}
	q := newQueue(Options[string]{Metrics: d})
	d.q = q
	q.Add("a")
	require.False(t, apart(func() { q.Get() }))
	require.Zero(t, q.Len())
	require.NoError(t, q.check())
	require.Zero(t, q.core.entries.n)
	q.Add("a")
	q.Add("b")
	d.q = nil
	require.Equal(t, "a", take(t, q).Key())
}

// TestQuestionsThatFail: what only asks gets a harmless answer.
func TestQuestionsThatFail(t *testing.T) {
	f := newFaulty()
	f.q.Add("a")
	require.Equal(t, 7, f.q.NumRequeues("a"))
	f.fail = func() { panic("limiter") }
	require.Zero(t, f.q.NumRequeues("a"))
	f.q.Forget("a")
	require.Zero(t, f.q.Snapshot()[0].Failures)
	require.Equal(t, uint64(3), f.q.Stats().Panics)
	require.False(t, f.locked)
}

// TestPanicsAreLoggedOnceAMinute: each line tells how many there were without one.
func TestPanicsAreLoggedOnceAMinute(t *testing.T) {
	var written []string
	klog.SetLogger(funcr.New(func(_, line string) {
		_, rest, _ := strings.Cut(line, `"notLogged"=`)
		written = append(written, strings.Fields(rest)[0])
	}, funcr.Options{}))
	defer klog.ClearLogger()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		f.fail = func() { panic("limiter") }
		for range 150 {
			f.q.Forget("a")
			time.Sleep(time.Second)
		}
		require.Equal(t, uint64(150), f.q.Stats().Panics)
	})
	require.Equal(t, []string{"0", "59", "59"}, written)
}

// frail is a context that fails where it is told to.
type frail struct {
	context.Context
	done func()
	err  func() error
}

func (f frail) Done() <-chan struct{} {
	if f.done != nil {
		f.done()
	}
	return f.Context.Done()
}

func (f frail) Err() error {
	if f.err != nil {
		return f.err()
	}
	return f.Context.Err()
}

// TestContextThatFails: a worker whose context fails is lost, and nobody else: it does not stay among those that wait,
// where a key that is added would wake it instead of another one.
func TestContextThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		served := make(chan string, 1)
		for name, ctx := range map[string]func(context.Context) context.Context{
			"Done": func(ctx context.Context) context.Context { return frail{Context: ctx, done: runtime.Goexit} },
			"Err at the end": func(ctx context.Context) context.Context {
				return frail{Context: ctx, err: func() error {
					if ctx.Err() != nil {
						runtime.Goexit()
					}
					return nil
				}}
			},
		} {
			ended, end := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, func() {
				end()
				q.Add(name) // in the same moment
			})
			require.False(t, apart(func() { q.Take(ctx(ended)) }), name)
			time.Sleep(time.Second)
			go func() {
				c, _ := q.Take(t.Context())
				served <- c.Key()
				c.Done()
			}()
			synctest.Wait()
			require.Len(t, served, 1, name)
			require.Equal(t, name, <-served)
			require.NoError(t, q.check(), name)
		}

		// One that has ended and says that it has not gives no claim either.
		ended, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		_, err := q.Take(frail{Context: ended, err: func() error { return nil }})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestKeysThatAreNotEqualToThemselves: nobody could name such a key again, so Add refuses it, whatever type it hides
// in.
func TestKeysThatAreNotEqualToThemselves(t *testing.T) {
	type pair struct{ x, y float64 }
	nan := math.NaN()
	refuses := func(do func()) {
		t.Helper()
		require.PanicsWithValue(t, "workqueue: a key that is not equal to itself; does it contain a NaN?", do)
	}
	floats, pairs := newQueue(Options[float64]{}), newQueue(Options[pair]{})
	anything := newQueue(Options[any]{RateLimiter: FastSlow[any](0, 0, 0)})
	refuses(func() { floats.Add(nan) })
	refuses(func() { floats.AddAfter(nan, time.Hour) })
	refuses(func() { pairs.AddRateLimited(pair{1, nan}) })
	for _, key := range []any{nan, pair{nan, 1}, complex(0, nan), [2]any{1, nan}} {
		refuses(func() { anything.AddWith(key, AddOptions{RateLimited: true}) })
	}
	require.Panics(t, func() { anything.Add([]int{1}) }, "as one that cannot be compared")
	for _, q := range []interface {
		Stats() Stats
		check() error
	}{floats, pairs, anything} {
		require.Zero(t, q.Stats())
		require.NoError(t, q.check())
	}
	floats.Done(nan)
	require.False(t, floats.Cancel(nan))
	require.Equal(t, uint64(1), floats.Stats().Strays)

	floats.Add(math.Copysign(0, -1)) // equal to 0
	key, _ := floats.Get()
	floats.Add(0)
	require.Zero(t, floats.Len())
	floats.Done(0)
	require.Equal(t, 1, floats.Len())
	require.Zero(t, key)

	limiter := Exponential[float64](time.Second, time.Hour, 0)
	for range 3 {
		require.Equal(t, time.Second, limiter.When(nan), "it is never the second failure of any key")
	}
	require.Zero(t, failing(limiter))
	require.Zero(t, limiter.NumRequeues(nan))
	limiter.Forget(nan)
}
