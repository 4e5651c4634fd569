package reconcile

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
)

func TestCausesTellWhoHasNamedTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		busy, release := make(chan struct{}, 1), make(chan struct{})
		var log journal
		c := newController(t, func(ctx context.Context, key Key) (Result, error) {
			causes, more := Causes(ctx)
			log.note("%v +%d", causes, more)
			select {
			case <-busy:
				<-release
			default:
			}
			if len(causes) > 0 {
				return Result{RequeueAfter: time.Hour}, nil
			}
			return Result{}, nil
		}, Options{})
		Watches(c, newMaps(t, api), func(*corev1.ConfigMap) []Key { return []Key{parent} })
		start(t, ManagerOptions{Controllers: []*Controller{c}})
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
		require.Zero(t, c.keys.Busy())
	})
	causes, more := Causes(t.Context())
	require.Empty(t, causes)
	require.Zero(t, more)
}

func TestCausesAreThoseOfTheCallThatGoesOn(t *testing.T) {
	inRun(t, func(ctx context.Context, _ func()) (after func()) {
		causes, _ := Causes(ctx)
		require.Len(t, causes, 1)
		return func() {
			causes, more := Causes(ctx)
			require.Empty(t, causes)
			require.Zero(t, more)
		}
	})
}

// keeper is a sink of log lines that keeps the values, as one does that writes them later.
type keeper struct{ errors *[][]any }

func (keeper) Init(logr.RuntimeInfo)                    {}
func (keeper) Enabled(int) bool                         { return false }
func (keeper) Info(int, string, ...any)                 {}
func (k keeper) WithValues(...any) logr.LogSink         { return k }
func (k keeper) WithName(string) logr.LogSink           { return k }
func (k keeper) Error(_ error, _ string, values ...any) { *k.errors = append(*k.errors, values) }

func TestALineOfTheLogKeepsTheCausesOfItsRun(t *testing.T) {
	var lines [][]any
	acting := klog.NewContext(t.Context(), logr.New(keeper{&lines}))
	c := newController(t, func(context.Context, Key) (Result, error) { return Result{}, errors.New("no") }, Options{})
	w := newWorker(c, acting, acting, nil)
	defer w.stopTimer()
	for _, name := range []string{"a", "b"} {
		c.enqueueFor(Key{Name: name}, "Owns "+name)
		claim, err := c.queue.Take(acting)
		require.NoError(t, err)
		w.handle(claim)
	}
	require.Len(t, lines, 2)
	require.Contains(t, fmt.Sprint(lines[0]...), "Owns a")
	require.Contains(t, fmt.Sprint(lines[1]...), "Owns b")
}
