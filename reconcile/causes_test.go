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

	"github.com/thermostat-go/thermostat/reconcile/status"
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
		requireOnlyRecords(t, c.history)
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

func TestCausesSayWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cs causes
		began := time.Now()
		cs.add("For x", parent, "1", began.UnixNano())
		cs.add("For x", parent, "2", began.Add(time.Minute).UnixNano())
		require.Equal(t, []status.Cause{{Source: "For x", Namespace: parent.Namespace, Name: parent.Name,
			ResourceVersion: "2", Count: 2, First: began.Local(),
			Last: began.Add(time.Minute).Local()}}, cs.list())
		for i := range 5 {
			cs.add(fmt.Sprint("source ", i), parent, "", 0)
		}
		require.Equal(t, "[For x default/parent@2 (2 times) source 0 default/parent source 1 default/parent source "+
			"2 default/parent] and 2 more", cs.String())
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

// BenchmarkNote is what it costs to name a key: one that waits, and one that is reconciled each time, its begin and end
// included.
func BenchmarkNote(b *testing.B) {
	t := newKeyHistory(false, defaultHistory)
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i] = Key{Namespace: "default", Name: fmt.Sprint("object-", i)}
	}
	b.Run("waiting", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			t.recordCause(keys[i%len(keys)], "For objects", keys[i%len(keys)], "7",
				sighting{writeID: writeID{"u", "7"}})
		}
		b.ReportAllocs()
	})
	b.Run("reconciled", func(b *testing.B) {
		w := &worker{}
		for i := 0; b.Loop(); i++ {
			k := keys[i%len(keys)]
			t.recordCause(k, "For objects", k, "7", sighting{writeID: writeID{"u", "7"}})
			r := &run{worker: w, key: k}
			t.beginRun(r)
			t.endRun(r, outcome{}, "success", time.Now())
		}
		b.ReportAllocs()
	})
}
