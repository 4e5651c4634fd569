package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestARecordOfEachRun lets a key fail three times and succeed, and reads what is remembered of it.
func TestARecordOfEachRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("parent"))
		failures := 3
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			time.Sleep(time.Millisecond)
			if failures--; failures >= 0 {
				return reconcile.Result{}, errors.New("canary")
			}
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		time.Sleep(time.Second)
		synctest.Wait()

		s := c.InspectKey(parent)
		require.Equal(t, status.KeyScheduled, s.State)
		require.Len(t, s.Runs, 4, "attempts are kept")
		first, second, last := s.Runs[0], s.Runs[1], s.Runs[3]
		require.Equal(t, "error", first.Result)
		require.Equal(t, &status.Error{Type: "*errors.errorString"}, first.Error)
		require.Equal(t, time.Millisecond, first.Took)
		require.Equal(t, "For configmaps", first.Causes[0].Source)
		require.Empty(t, second.Causes)
		require.Equal(t, []status.Wait{{For: status.WaitBackoff, From: first.Started.Add(time.Millisecond),
			To: first.Started.Add(6 * time.Millisecond)}}, second.Waits)
		require.Equal(t, first.Again, second.Started)
		require.Equal(t, "requeue_after", last.Result)
		require.Equal(t, last.Again, s.Next)

		keys := c.InspectKeys()
		require.Len(t, keys, 1)
		require.Equal(t, status.KeySummary{Namespace: "default", Name: "parent", State: status.KeyScheduled,
			Next: s.Next, Runs: 4, Priority: -100,
			Since: keys[0].Since, LastRun: last.Started, LastResult: "requeue_after"}, keys[0])
		now := c.Inspect()
		require.EqualValues(t, 4, now.Runs)
		require.EqualValues(t, 3, now.Failures)
		require.Equal(t, 4, now.Remembered)
		require.Equal(t, "requeue_after", now.Recent[0].Result)
		text, err := json.Marshal([]any{s, keys, now})
		require.NoError(t, err)
		require.NotContains(t, string(text), "canary")
	})
}

func TestAPausedKeyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key.Name)
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		require.True(t, c.Pause(parent))
		require.False(t, c.Pause(parent))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		c.Enqueue(reconcile.Key{Name: "other"})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"other"}, taken(log))
		require.Equal(t, status.KeyPaused, c.InspectKey(parent).State)
		require.Equal(t, 1, c.Inspect().Paused)
		require.True(t, c.Resume(parent))
		require.False(t, c.Resume(parent))
		require.Equal(t, []string{"parent"}, taken(log))
		s := c.InspectKey(parent)
		require.Equal(t, status.WaitPaused, s.Runs[0].Waits[0].For)
		require.Zero(t, c.Inspect().Paused)
		c.Pause(parent)
		c.Resume(parent)
		require.Empty(t, taken(log), "nothing has named it")
	})
}

// TestAKeyWaitsForAWorker that another key keeps busy.
func TestAKeyWaitsForAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			if key.Name == "slow" {
				time.Sleep(3 * time.Second)
			}
			return reconcile.Result{}, reconcile.Terminal(errors.New("no"))
		}, reconcile.Options{Workers: 1})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		c.Enqueue(reconcile.Key{Name: "slow"})
		synctest.Wait()
		time.Sleep(time.Second)
		began := time.Now()
		c.Enqueue(parent)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []status.Wait{{For: status.WaitQueue, From: began, To: began.Add(2 * time.Second)}},
			c.InspectKey(parent).Runs[0].Waits)
	})
}

// TestTheHistoryIsBounded runs more keys than there is room for.
func TestTheHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			if key.Namespace == "final" {
				return reconcile.Result{}, reconcile.Terminal(no)
			}
			return reconcile.Result{}, reconcile.RetryAfter(time.Minute, no)
		}, reconcile.Options{History: 20})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(reconcile.Key{Namespace: "final", Name: "x"})
		for i := range 100 {
			c.Enqueue(reconcile.Key{Name: string(rune('A' + i))})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 21, c.Inspect().Remembered)
		require.Equal(t, status.KeyFailed, c.InspectKey(reconcile.Key{Namespace: "final", Name: "x"}).State,
			"why it rests stays known")
		require.Equal(t, 1, c.Inspect().Failed)
		require.Zero(t, c.Busy())
	})
}

// TestTheFirstOfManyFailuresStays fails more often than runs of a key are remembered, succeeds, and fails again.
func TestTheFirstOfManyFailuresStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, failing := 0, 1+2*keys.MaxRunsOfKey
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			if runs++; runs == failing {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, reconcile.RetryAfter(time.Minute, errors.New("no"))
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		time.Sleep(time.Duration(failing-2)*time.Minute + time.Second)
		remembered := c.InspectKey(parent).Runs
		require.Len(t, remembered, keys.MaxRunsOfKey)
		require.Len(t, remembered[0].Causes, 1)
		require.Equal(t, keys.MaxRunsOfKey, remembered[0].Forgotten)
		require.Empty(t, remembered[1].Causes)

		time.Sleep(time.Minute) // it succeeds
		c.Enqueue(parent)
		time.Sleep((keys.MaxRunsOfKey+2)*time.Minute + time.Second)
		remembered = c.InspectKey(parent).Runs
		require.Len(t, remembered, keys.MaxRunsOfKey)
		require.Len(t, remembered[0].Causes, 1, "the row began anew")
		require.Equal(t, 3, remembered[0].Forgotten)
		require.Equal(t, keys.MaxRunsOfKey, c.Inspect().Remembered)
	})
}

// TestFailedKeysAreCounted fails for good, more often than is remembered in full, and lets some keys succeed at last.
func TestFailedKeysAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mostText = 4 << 10
		mended, long := false, errors.New(strings.Repeat("é", mostText))
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			if mended {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, reconcile.Terminal(long)
		}, reconcile.Options{History: 20})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, ErrorTexts: true})
		enqueue := func(n int) {
			for i := range n {
				c.Enqueue(reconcile.Key{Name: string(rune('A' + i))})
			}
			synctest.Wait()
		}
		enqueue(30)
		enqueue(10)
		require.Equal(t, 30, c.Inspect().Failed)
		text := c.InspectKey(reconcile.Key{Name: "A"}).Runs[0].Error.Text
		require.True(t, utf8.ValidString(text))
		require.Len(t, text, mostText+len("…"))
		enqueue(60)
		require.Equal(t, 40, c.Inspect().Failed, "of 20 in full, and of 20 the last run")
		mended = true
		enqueue(60)
		require.Zero(t, c.Inspect().Failed)
	})
}

// TestTheListTellsStuckKeys lets a call hang, and return after a minute.
func TestTheListTellsStuckKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("parent"))
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			time.Sleep(time.Minute)
			return reconcile.Result{}, nil
		}, reconcile.Options{Timeout: 5 * time.Second})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		for _, moment := range []struct {
			at    time.Duration
			state status.KeyState
		}{{14 * time.Second, status.KeyRunning}, {2 * time.Second, status.KeyStuck}, {time.Minute, status.KeySettled}} {
			time.Sleep(moment.at)
			synctest.Wait()
			require.Equal(t, moment.state, c.InspectKeys()[0].State)
			require.Equal(t, moment.state, c.InspectKey(parent).State)
		}
	})
}

// TestAKeyBetweenTheQueueAndItsCall takes a key out of the queue as a worker does, and goes no further.
func TestAKeyBetweenTheQueueAndItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		busy, end := reconcile.Key{Name: "busy"}, make(chan struct{})
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result,
			error) {
			<-end
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 1})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		time.Sleep(time.Second)
		c.Enqueue(busy)
		synctest.Wait()
		c.Enqueue(parent)
		claim, err := c.Queue().Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, status.KeyRunning, c.InspectKey(parent).State)
		require.Equal(t, "default/parent is in the hands of a worker: its call of Reconcile begins at this moment, or "+
			"has just ended.", c.Why(parent))
		claim.Done()
		close(end)
	})
}
