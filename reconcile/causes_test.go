package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile"
)

func TestCausesTellWhoHasNamedTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		busy, release := make(chan struct{}, 1), make(chan struct{})
		var log journal
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			causes, more := reconcile.Causes(ctx)
			log.note("%v +%d", causes, more)
			select {
			case <-busy:
				<-release
			default:
			}
			if len(causes) > 0 {
				return reconcile.Result{RequeueAfter: time.Hour}, nil
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.Watches(c, newMaps(t, api),
			func(*corev1.ConfigMap) []reconcile.Key { return []reconcile.Key{parent} })
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		require.Empty(t, log.take())

		busy <- struct{}{}
		api.Create(configMap("a"))
		require.Equal(t, []string{"[Watches configmaps default/a@2] +0"}, taken(&log))
		for i := range 3 { // all while a run goes on
			time.Sleep(time.Second)
			api.Update("default", "a", func(m *corev1.ConfigMap) { m.Data = map[string]string{"i": fmt.Sprint(i)} })
			synctest.Wait()
		}
		for i := range 6 {
			api.Create(configMap(fmt.Sprint("b", i)))
			synctest.Wait()
		}
		c.Enqueue(parent)
		release <- struct{}{}
		require.Equal(t, []string{"[Watches configmaps default/a@5 (3 times) Watches configmaps default/b0@6 " +
			"Watches configmaps default/b1@7 Watches configmaps default/b2@8] +4"},
			taken(&log), "merged, and bounded")
		time.Sleep(2 * time.Hour)
		require.Equal(t, []string{"[] +0"}, taken(&log), "it came back by itself")
		c.Enqueue(parent)
		require.Equal(t, []string{"[Enqueue] +0"}, taken(&log))
		require.Zero(t, c.Busy())
	})
	causes, more := reconcile.Causes(t.Context())
	require.Empty(t, causes)
	require.Zero(t, more)
}

func TestCausesAreThoseOfTheCallThatGoesOn(t *testing.T) {
	inRun(t, func(ctx context.Context, _ func()) (after func()) {
		causes, _ := reconcile.Causes(ctx)
		require.Len(t, causes, 1)
		return func() {
			causes, more := reconcile.Causes(ctx)
			require.Empty(t, causes)
			require.Zero(t, more)
		}
	})
}

// errorLog is a sink of log lines that keeps the values, as one does that writes them later.
type errorLog struct{ errors *[][]any }

func (errorLog) Init(logr.RuntimeInfo)                    {}
func (errorLog) Enabled(int) bool                         { return false }
func (errorLog) Info(int, string, ...any)                 {}
func (k errorLog) WithValues(...any) logr.LogSink         { return k }
func (k errorLog) WithName(string) logr.LogSink           { return k }
func (k errorLog) Error(_ error, _ string, values ...any) { *k.errors = append(*k.errors, values) }

func TestALineOfTheLogKeepsTheCausesOfItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines [][]any
		ctx := klog.NewContext(t.Context(), logr.New(errorLog{&lines}))
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			return reconcile.Result{}, reconcile.Terminal(errors.New("no"))
		}, reconcile.Options{})
		api := newMapAPI()
		api.Create(configMap("a"))
		api.Create(configMap("b"))
		reconcile.For(c, newMaps(t, api))
		startIn(ctx, t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		require.Len(t, lines, 2)
		require.Contains(t, fmt.Sprint(lines[0]...), "For configmaps default/a@2")
		require.Contains(t, fmt.Sprint(lines[1]...), "For configmaps default/b@3")
	})
}
