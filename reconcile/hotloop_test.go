package reconcile

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
)

// circler is a controller of one ConfigMap whose runs are counted.
type circler struct {
	api        *mapAPI
	maps       *informer.SharedIndexInformer[*corev1.ConfigMap]
	controller *Controller
	runs       atomic.Int32
	log        journal
}

// newCircler calls turn with the number of the run.
func newCircler(t *testing.T, turn func(ctx context.Context, c *circler, n int) (Result, error)) *circler {
	c := &circler{api: newMapAPI()}
	c.api.Create(configMap("a"))
	c.maps = newMaps(t, c.api)
	c.controller = newController(t, slowly(t, func(ctx context.Context, key Key) (Result, error) {
		return turn(ctx, c, int(c.runs.Add(1)))
	}), Options{})
	For(c.controller, c.maps)
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { c.log.note("%s", args) }, funcr.Options{}))
	startIn(ctx, t, ManagerOptions{Controllers: []*Controller{c.controller}})
	return c
}

// slowly fails the test when nothing slows a Reconciler down. Then time would not go on, since it stands still as long
// as somebody is at work; so the Reconciler is stopped.
func slowly(t *testing.T, r Func) Func {
	const tooOften = 10_000
	var runs atomic.Int32
	return func(ctx context.Context, key Key) (Result, error) {
		switch n := runs.Add(1); {
		case n < tooOften:
			return r(ctx, key)
		case n == tooOften:
			t.Errorf("%d runs, and nothing slows them down", n)
		}
		<-ctx.Done()
		return Result{}, ctx.Err()
	}
}

// write changes the object, as a status would be that holds the time of the day.
func (c *circler) write(ctx context.Context, n int) error {
	return Wrote(ctx, c.maps, c.api.Update("default", "a",
		func(m *corev1.ConfigMap) { m.Data = map[string]string{"n": fmt.Sprint(n)} }))
}

func TestAKeyThatWritesInCirclesIsSlowedDown(t *testing.T) {
	for name, result := range map[string]struct {
		result Result
		err    error
	}{"and succeeds": {}, "and fails": {err: errors.New("no")},
		"and asks for more": {result: Result{RequeueAfter: time.Millisecond}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCircler(t, func(ctx context.Context, c *circler, n int) (Result, error) {
					require.NoError(t, c.write(ctx, n))
					return result.result, result.err
				})
				synctest.Wait()
				time.Sleep(time.Second / 2)
				synctest.Wait()
				require.EqualValues(t, hotAfter+2, c.runs.Load(),
					"the first is somebody else's doing, %d are free, and one is the last straw", hotAfter)
				require.Equal(t, 1, c.controller.Stats().HotKeys)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Less(t, c.runs.Load(), int32(hotAfter+30), "1 s, 2 s, 4 s ... 5 min")
				require.Greater(t, c.runs.Load(), int32(hotAfter+10), "slowed down, not stopped")
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
		c := newCircler(t, func(ctx context.Context, c *circler, n int) (Result, error) {
			if n <= hotAfter+5 {
				require.NoError(t, c.write(ctx, n))
			}
			return Result{}, nil
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, hotAfter+6, c.runs.Load())
		s := c.controller.Stats()
		require.Equal(t, 0, s.HotKeys)
		require.Equal(t, 1, s.HotLoops)
		requireOnlyRecords(t, c.controller.history)
	})
}

func TestRequeueAfterHasAFloorForWhoComesBackAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(context.Context, *circler, int) (Result, error) {
			return Result{RequeueAfter: time.Millisecond}, nil
		})
		time.Sleep(time.Second / 2)
		synctest.Wait()
		require.EqualValues(t, hotAfter+2, c.runs.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.InDelta(t, hotAfter+2+60, c.runs.Load(), 1,
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
				c := newCircler(t, func(ctx context.Context, c *circler, n int) (Result, error) {
					updated := c.api.Update("default", "a", func(m *corev1.ConfigMap) {
						m.Data = map[string]string{"n": fmt.Sprint(n)}
						m.Labels = map[string]string{"fixed": "label"}
						m.Finalizers = []string{fmt.Sprint("the/", n)}
					})
					time.Sleep(lag)
					return Result{}, Wrote(ctx, c.maps, updated)
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
		c := newCircler(t, func(ctx context.Context, c *circler, n int) (Result, error) {
			if m, _ := c.maps.Get(Key{Namespace: "default", Name: "a"}); m.Data["n"] != m.Labels["want"] {
				return Result{}, Wrote(ctx, c.maps,
					c.api.Update("default", "a", func(m *corev1.ConfigMap) {
						m.Data = map[string]string{"n": m.Labels["want"]}
					}))
			}
			return Result{}, nil
		})
		for i := range 10 * hotAfter {
			c.api.Update("default", "a", func(m *corev1.ConfigMap) {
				m.Labels = map[string]string{"want": fmt.Sprint(
					i)}
			})
			synctest.Wait()
		}
		require.GreaterOrEqual(t, c.runs.Load(), int32(20*hotAfter))
		require.Zero(t, c.controller.Stats().HotLoops)
		requireOnlyRecords(t, c.controller.history)
	})
}

// TestAnEventThatIsFasterThanTheAnswerIsStillTheKeysOwn lets the cache have the write before the run knows that it has
// made it.
func TestAnEventThatIsFasterThanTheAnswerIsStillTheKeysOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(ctx context.Context, c *circler, n int) (Result, error) {
			updated := c.api.Update("default", "a",
				func(m *corev1.ConfigMap) { m.Data = map[string]string{"n": fmt.Sprint(n)} })
			time.Sleep(time.Millisecond)
			return Result{}, Wrote(ctx, c.maps, updated)
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
		c := newController(t, slowly(t, func(ctx context.Context, key Key) (Result, error) {
			for _, o := range children.Objects() {
				children.Delete(o.Namespace, o.Name)
				if err := Deleted(ctx, inf, o); err != nil {
					return Result{}, err
				}
			}
			return Result{}, Wrote(ctx, inf, children.Create(configMap("child")))
		}), Options{})
		Watches(c, inf, func(*corev1.ConfigMap) []Key { return []Key{parent} })
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		c.Enqueue(parent)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, c.Stats().HotKeys)
	})
}

// TestTheTrailForgetsKeysThatNobodyNames has a million objects that are written once each, and never named again.
func TestTheTrailForgetsKeysThatNobodyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newKeyHistory(false, defaultHistory)
		for i := range 50_000 {
			r := &run{worker: &worker{began: time.Now()}, key: Key{Name: fmt.Sprint(i)}}
			tr.recordCause(r.key, "For x", r.key, "1", sighting{writeID: writeID{"u", "1"}})
			tr.beginRun(r)
			r.remembers("u", "2", false)
			tr.endRun(r, outcome{}, "success", time.Now())
			time.Sleep(time.Second)
		}
		require.Less(t, len(tr.keys), 3000, "about ten minutes' worth, twice")
	})
}

// TestTheThresholdsOfHotLoops has each of them on both sides.
func TestTheThresholdsOfHotLoops(t *testing.T) {
	const uid = types.UID("uid")
	change := []diff.Change{{Path: 1, Now: 2, Old: 1}}
	fresh := func(st repeatStats, r contestedObject) (*keyHistory, *keyEntry) {
		h, e := newKeyHistory(false, defaultHistory), &keyEntry{stats: &st}
		h.keys[parent] = e
		h.contested.byUID = map[uint64]*contestedObject{h.hashUID(writeID{uid: uid}): &r}
		return h, e
	}
	t.Run("rest", func(t *testing.T) {
		for level, want := range map[int]time.Duration{0: 0, hotAfter: 0, hotAfter + 1: time.Second,
			hotAfter + 2: 2 * time.Second, hotAfter + 9: 256 * time.Second, hotAfter + 10: hotCap, 1000: hotCap} {
			require.Equal(t, want, restAfter(level), level)
			require.Equal(t, want, (&repeatStats{repeats: level, changed: true}).rest(), level)
			require.Equal(t, min(want, hotFloor), (&repeatStats{repeats: level}).rest(), level)
			require.Equal(t, want > 0, (&repeatStats{repeats: level}).hot(), level)
		}
	})
	t.Run("comparing", func(t *testing.T) {
		own, other := writeID{uid, "2"}, writeID{uid, "3"}
		for _, test := range []struct {
			repeats, rounds int
			v               sighting
			want            bool
		}{
			{repeats: compareAfter - 1, v: sighting{writeID: own, updated: true}},
			{repeats: compareAfter, v: sighting{writeID: own, updated: true}, want: true},
			{repeats: compareAfter, v: sighting{writeID: own}},
			{repeats: compareAfter, v: sighting{writeID: other, updated: true}},
			{rounds: compareAfter - 1, v: sighting{writeID: other, updated: true}},
			{rounds: compareAfter, v: sighting{writeID: other, updated: true}, want: true},
			{rounds: compareAfter, v: sighting{writeID: own, updated: true}, want: true},
		} {
			h, e := fresh(repeatStats{repeats: test.repeats, last: pastRun{writes: map[writeID]bool{own: false}}},
				contestedObject{rounds: test.rounds})
			require.Equal(t, test.want, h.observe(e, test.v), "%+v", test)
		}
	})
	t.Run("undoing", func(t *testing.T) {
		for _, test := range []struct {
			name    string
			reverts int
			held    heldField
			want    bool
		}{
			{"not yet a hot loop", hotAfter, heldField{path: 1, value: 1}, true},
			{"a hot loop, and one more undoing", hotAfter + 1, heldField{path: 1, value: 1}, false},
			{"a hot loop, and another change", hotAfter + 1, heldField{path: 2, value: 1}, true},
		} {
			h, e := fresh(repeatStats{reverts: test.reverts}, contestedObject{fields: []heldField{test.held}})
			v := sighting{writeID: writeID{uid, "3"}, comparison: &comparison{changes: change}}
			h.comparedOther(e, v)
			require.Equal(t, test.want, e.othersActed, test.name)
		}
	})
	t.Run("states that cannot be compared", func(t *testing.T) {
		for failed, want := range map[bool]string{true: "", false: "an object: "} {
			h, e := fresh(repeatStats{repeats: compareAfter}, contestedObject{})
			e.stats.written = writtenObjects{h.hashUID(writeID{uid: uid}): {}}
			h.comparedOwn(e, sighting{writeID: writeID{uid, "3"},
				comparison: &comparison{object: "an object", failed: failed}})
			require.Equal(t, want, e.stats.changingFields)
		}
	})
	t.Run("a key without stats", func(t *testing.T) {
		h, e := fresh(repeatStats{}, contestedObject{rounds: compareAfter})
		contested := h.contested.find(h, writeID{uid: uid})
		compare := func(v sighting, from, to int32) {
			e.stats = nil
			v.updated = true
			require.True(t, h.observe(e, v))
			pod := func(n int32) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{Priority: &n}} }
			compareStates(h, parent, "Owns pods", v, informer.Event[*corev1.Pod]{Old: pod(from), New: pod(to)})
		}
		e.run = &run{key: parent}
		e.run.remembers(uid, "2", false)
		compare(sighting{writeID: writeID{uid, "2"}}, 1, 2)
		require.Len(t, contested.fields, 1, "the field that its run has set")
		e.run = nil
		compare(sighting{writeID: writeID{uid, "3"}}, 2, 1)
		require.True(t, contested.fields[0].undone, "another writer has undone that")
		e.run = &run{key: parent}
		e.run.remembers(uid, "4", false)
		compare(sighting{writeID: writeID{uid, "4"}}, 1, 2)
		require.Equal(t, 1, e.stats.reverts, "its run has set the field again")
	})
	t.Run("objects beyond those that are remembered", func(t *testing.T) {
		for created, want := range map[bool]int{true: compareAfter, false: hotAfter - 1} {
			st := repeatStats{repeats: hotAfter - 1, selfCaused: true, changed: true, written: writtenObjects{}}
			h, e := fresh(st, contestedObject{})
			st = *e.stats
			for id := range uint64(maxWrittenObjects) {
				st.written[id] = &writtenObject{updates: 1}
			}
			e.stats.last.writes = map[writeID]bool{{uid, "2"}: created}
			h.countLastRun(e)
			require.NotContains(t, e.stats.written, h.hashUID(writeID{uid: uid}))
			require.Equal(t, want, e.stats.repeats, "to create one is progress: %t", created)
		}
	})
	t.Run("forgetting", func(t *testing.T) {
		now := time.Now()
		for name, test := range map[string]struct {
			entry keyEntry
			kept  bool
		}{
			"just old enough to stay": {keyEntry{stats: &repeatStats{endedAt: now.Add(-forgetAfter)}}, true},
			"too old":                 {keyEntry{stats: &repeatStats{endedAt: now.Add(-forgetAfter - 1)}}, false},
			"it waits":                {keyEntry{stats: &repeatStats{}, causes: causes{n: 1}}, true},
			"it runs":                 {keyEntry{stats: &repeatStats{}, run: &run{}}, true},
			"it has never run":        {keyEntry{}, true},
		} {
			h := newKeyHistory(false, defaultHistory)
			h.keys[parent] = &test.entry
			h.sweep(now)
			require.Equal(t, test.kept, len(h.keys) == 1, name)
			require.Equal(t, len(h.keys), h.sweptTo, name)
		}
	})
}
