package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestOnRun lets a key fail, write nothing, be slow, and write nothing again: OnRun is told of what InspectKey
// remembers, and not of the runs that found nothing to do.
func TestOnRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("parent"))
		var mu sync.Mutex
		var told []status.Run
		runs := 0
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			runs++
			switch runs {
			case 2:
				return reconcile.Result{}, errors.New("canary")
			case 3:
				time.Sleep(2 * time.Second)
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{OnRun: func(controller string, key reconcile.Key, run status.Run) {
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, parent, key)
			require.Equal(t, "test", controller)
			told = append(told, run)
		}})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		for range 3 {
			time.Sleep(10 * time.Second)
			c.Enqueue(parent)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 5, runs)
		require.Len(t, told, 2)
		require.Equal(t, c.InspectKey(parent).Runs[:2], told)
		require.Equal(t, "error", told[0].Result)
		require.Equal(t, told[0].Again, told[1].Started, "when the rate limiter lets the key come back")
	})
}

func TestOnRunNeedsAHistory(t *testing.T) {
	_, err := reconcile.NewController("web", reconcile.Func(func(context.Context, reconcile.Key) (reconcile.Result,
		error) {
		return reconcile.Result{}, nil
	}), reconcile.Options{History: -1, OnRun: func(string, reconcile.Key, status.Run) {}})
	require.ErrorContains(t, err, "Options.OnRun is told of the runs that History counts, and History is -1")
}
