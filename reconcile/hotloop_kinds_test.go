package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/fakeapi"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

// workshop is what the Reconciler of one parent has to work with: ConfigMaps, and ReplicaSets, whose fields are
// numbers. Nobody else is at work, and each change names the parent.
type workshop struct {
	*reconcile.Controller
	maps     *mapAPI
	sets     *fakeapi.Resource[*appsv1.ReplicaSet, *appsv1.ReplicaSetList]
	mapCache *informer.SharedIndexInformer[*corev1.ConfigMap]
	setCache *informer.SharedIndexInformer[*appsv1.ReplicaSet]
	count    atomic.Int64
}

// runs is how many there have been.
func (s *workshop) runs() int { return int(s.count.Load()) }

// job is a run in the workshop.
type job func(context.Context, *workshop) (reconcile.Result, error)

// newWorkshop sets it up with a number of maps, and two ReplicaSets that ask for 0 and 60 pods.
func newWorkshop(t *testing.T, maps int, opts reconcile.Options, run job) *workshop {
	t.Helper()
	s := &workshop{maps: newMapAPI(), sets: fakeapi.New[*appsv1.ReplicaSet](
		func() *appsv1.ReplicaSetList { return &appsv1.ReplicaSetList{} })}
	for i := range maps {
		s.maps.Create(configMap(fmt.Sprint("map-", i)))
	}
	for name, replicas := range map[string]int32{"new": 0, "old": 60} {
		s.sets.Create(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}})
	}
	s.mapCache = newMaps(t, s.maps)
	var err error
	s.setCache, err = informer.New[*appsv1.ReplicaSet](s.sets,
		informer.Options[*appsv1.ReplicaSet]{Name: "replicasets"})
	require.NoError(t, err)
	s.Controller = newController(t, slowly(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
		s.count.Add(1)
		return run(ctx, s)
	}), opts)
	reconcile.Watches(s.Controller, s.mapCache,
		func(*corev1.ConfigMap) []reconcile.Key { return []reconcile.Key{parent} })
	reconcile.Watches(s.Controller, s.setCache,
		func(*appsv1.ReplicaSet) []reconcile.Key { return []reconcile.Key{parent} })
	start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{s.Controller}})
	return s
}

func (s *workshop) create(ctx context.Context, n int) error {
	for range n {
		if err := reconcile.Wrote(ctx, s.mapCache, s.maps.Create(
			configMap(fmt.Sprint("made-", len(s.maps.Objects()))))); err != nil {
			return err
		}
	}
	return nil
}

func (s *workshop) scale(ctx context.Context, name string, by int32) error {
	return reconcile.Wrote(ctx, s.setCache, s.sets.Update("default", name,
		func(set *appsv1.ReplicaSet) { *set.Spec.Replicas += by }))
}

// say changes a text of the first ReplicaSet, as a condition's message would.
func (s *workshop) say(ctx context.Context, format string, args ...any) error {
	return reconcile.Wrote(ctx, s.setCache, s.sets.Update("default", "new", func(set *appsv1.ReplicaSet) {
		set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Progressing",
			Message: fmt.Sprintf(format, args...)}}
	}))
}

func (s *workshop) replicas(name string) int32 {
	set, _ := s.setCache.Get(reconcile.Key{Namespace: "default", Name: name})
	return *set.Spec.Replicas
}

// TestProgressIsNoCircle has Reconcilers that do their work in many small steps, each brought about by the one before
// it, and come to an end. None is slowed down: it all takes no time.
func TestProgressIsNoCircle(t *testing.T) {
	for name, test := range map[string]struct {
		maps int // there are at first
		turn job
		runs int // at least
	}{
		"60 objects, made one a run": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			if s.mapCache.Len() < 60 {
				return reconcile.Result{}, s.create(ctx, 1)
			}
			return reconcile.Result{}, nil
		}, runs: 60},
		"60 objects, one a run, and a status": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			if n := s.mapCache.Len(); n < 60 {
				if err := s.create(ctx, 1); err != nil {
					return reconcile.Result{}, err
				}
				return reconcile.Result{}, s.say(ctx, "%d of 60", n+1)
			}
			return reconcile.Result{}, nil
		}, runs: 60},
		"60 objects and a status in turns": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			set, _ := s.setCache.Get(reconcile.Key{Namespace: "default", Name: "new"})
			n := s.mapCache.Len()
			switch said := fmt.Sprintf("%d of 60", n); {
			case len(set.Status.Conditions) == 0 || set.Status.Conditions[0].Message != said:
				return reconcile.Result{}, s.say(ctx, "%s", said)
			case n < 60:
				return reconcile.Result{}, s.create(ctx, 1)
			}
			return reconcile.Result{}, nil
		}, runs: 120},
		"800 objects in batches of 20": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			if s.mapCache.Len() < 800 {
				return reconcile.Result{}, s.create(ctx, 20)
			}
			return reconcile.Result{}, nil
		}, runs: 40},
		"20,000 objects in bursts of 500": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			if n := s.mapCache.Len(); n < 20_000 {
				for i := range 500 {
					if err := reconcile.Wrote(ctx, s.mapCache, s.maps.Create(configMap(fmt.Sprint("made-",
						n+i)))); err != nil {
						return reconcile.Result{}, err
					}
				}
			}
			return reconcile.Result{}, nil
		}, runs: 40},
		"60 objects, deleted one a run": {maps: 60, turn: func(ctx context.Context, s *workshop) (reconcile.Result,
			error) {
			for o := range s.mapCache.All() {
				s.maps.Delete(o.Namespace, o.Name)
				return reconcile.Result{}, reconcile.Deleted(ctx, s.mapCache, o)
			}
			return reconcile.Result{}, nil
		}, runs: 60},
		"60 objects, labelled and then deleted": {maps: 60, turn: func(ctx context.Context,
			s *workshop) (reconcile.Result, error) {
			for o := range s.mapCache.All() {
				if o.Labels == nil {
					return reconcile.Result{}, reconcile.Wrote(ctx, s.mapCache,
						s.maps.Update(o.Namespace, o.Name, func(m *corev1.ConfigMap) {
							m.Labels = map[string]string{"going": "soon"}
						}))
				}
				s.maps.Delete(o.Namespace, o.Name)
				return reconcile.Result{}, reconcile.Deleted(ctx, s.mapCache, o)
			}
			return reconcile.Result{}, nil
		}, runs: 120},
		"a rollout in 60 steps": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			if s.replicas("old") > 0 {
				if err := s.scale(ctx, "new", 1); err != nil {
					return reconcile.Result{}, err
				}
				return reconcile.Result{}, s.scale(ctx, "old", -1)
			}
			return reconcile.Result{}, nil
		}, runs: 60},
		"a rollout in turns, and a status": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			switch up, down := s.replicas("new"), s.replicas("old"); {
			case up+down <= 60 && up < 60:
				if err := s.say(ctx, "%d of 60", up); err != nil {
					return reconcile.Result{}, err
				}
				return reconcile.Result{}, s.scale(ctx, "new", 1)
			case down > 0:
				return reconcile.Result{}, s.scale(ctx, "old", -1)
			}
			return reconcile.Result{}, nil
		}, runs: 120},
		"1,000 steps up": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			if s.replicas("new") < 1000 {
				return reconcile.Result{}, s.scale(ctx, "new", 1)
			}
			return reconcile.Result{}, nil
		}, runs: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWorkshop(t, test.maps, reconcile.Options{}, test.turn)
				s.Enqueue(parent)
				synctest.Wait()
				require.Zero(t, s.Stats().HotLoops)
				require.GreaterOrEqual(t, s.runs(), test.runs)
				runs := s.runs()
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				require.Equal(t, runs, s.runs(), "it was at its end")
				require.Zero(t, s.Busy())
			})
		})
	}
}

// TestAnApplyThatChangesNothingIsNoWrite asks again after a while, and writes what is there already.
func TestAnApplyThatChangesNothingIsNoWrite(t *testing.T) {
	for _, after := range []time.Duration{900 * time.Millisecond, keys.HotFloor / 10} {
		synctest.Test(t, func(t *testing.T) {
			s := newWorkshop(t, 1, reconcile.Options{}, func(ctx context.Context, s *workshop) (reconcile.Result,
				error) {
				return reconcile.Result{RequeueAfter: after}, reconcile.Wrote(ctx, s.mapCache, s.maps.Objects()[0])
			})
			synctest.Wait()
			before := s.runs()
			time.Sleep(1000 * after)
			synctest.Wait()
			require.Equal(t, before+1000, s.runs(), "it is not slowed down")
			require.Zero(t, s.Stats().HotLoops)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newWorkshop(t, 1, reconcile.Options{}, func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Millisecond}, reconcile.Wrote(ctx, s.mapCache,
				s.maps.Objects()[0])
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.InDelta(t, 600+keys.HotAfter+2, s.runs(), 2,
			"who asks for more at once gets it once in a second, not more rarely")
	})
}

// duel is a ConfigMap that two controllers write, each what it thinks right, each called up by the other.
type duel struct {
	api    *mapAPI
	names  [2]string
	cs     [2]*reconcile.Controller
	counts [2]atomic.Int64
	given  atomic.Bool // up by the second
}

// runs is how many each of the two has had.
func (d *duel) runs() [2]int { return [2]int{int(d.counts[0].Load()), int(d.counts[1].Load())} }

func newDuel(t *testing.T) *duel {
	t.Helper()
	d := &duel{api: newMapAPI(), names: [2]string{"cat", "dog"}}
	d.api.Create(configMap("a"))
	for i, name := range d.names {
		inf := newMaps(t, d.api)
		c, err := reconcile.NewController(name, slowly(t, func(ctx context.Context,
			key reconcile.Key) (reconcile.Result, error) {
			d.counts[i].Add(1)
			if m, _ := inf.Get(key); m.Data["pet"] == name || i == 1 && d.given.Load() {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, reconcile.Wrote(ctx, inf, d.api.Update("default", "a",
				func(m *corev1.ConfigMap) {
					m.Data = map[string]string{"pet": name, "other": m.Data["other"]}
				}))
		}), reconcile.Options{})
		require.NoError(t, err)
		reconcile.For(c, inf)
		d.cs[i] = c
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	}
	return d
}

// TestTwoWritersThatUndoEachOtherAreSlowedDown, until one of them gives up; and what somebody else does brings them up
// at once.
func TestTwoWritersThatUndoEachOtherAreSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuel(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Less(t, max(d.runs()[0], d.runs()[1]), 20*keys.HotAfter,
			"both had a free hand at first, each with a look at its own writes")
		before := d.runs()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Less(t, d.runs()[0]-before[0], 60, "a few in an hour")
		require.Greater(t, d.runs()[0]-before[0], 5, "slowed down, not stopped")
		slow := -1
		for i, c := range d.cs {
			if c.Stats().HotKeys == 1 {
				slow = i
			}
		}
		require.GreaterOrEqual(t, slow, 0, "one of the two, at least, has found it out")

		for i := range 3 {
			before := d.runs()[slow]
			d.api.Update("default", "a", func(m *corev1.ConfigMap) { m.Data["other"] = fmt.Sprint(i) })
			synctest.Wait()
			require.Greater(t, d.runs()[slow], before, "whatever else somebody does")
		}

		d.given.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, "cat", d.api.Objects()[0].Data["pet"])
		for _, c := range d.cs {
			require.Zero(t, c.Stats().HotKeys, "it is over")
		}
	})
}

// TestAUserWhoGoesBackAndForthIsNoRival: what the controller writes recurs, but nobody undoes it.
func TestAUserWhoGoesBackAndForthIsNoRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircler(t, func(ctx context.Context, c *circler, _ int) (reconcile.Result, error) {
			if m, _ := c.maps.Get(reconcile.Key{Namespace: "default", Name: "a"}); m.Data["is"] != m.Labels["want"] {
				return reconcile.Result{}, reconcile.Wrote(ctx, c.maps,
					c.api.Update("default", "a", func(m *corev1.ConfigMap) {
						m.Data = map[string]string{"is": m.Labels["want"]}
					}))
			}
			return reconcile.Result{}, nil
		})
		for i := range 10 * keys.HotAfter {
			c.api.Update("default", "a", func(m *corev1.ConfigMap) {
				m.Labels = map[string]string{"want": fmt.Sprint(
					i % 2)}
			})
			synctest.Wait()
		}
		require.Zero(t, c.controller.Stats().HotLoops)
		require.Equal(t, "1", c.api.Objects()[0].Data["is"])
	})
}

// TestSomebodyWhoUndoesAWriteNowAndThenIsNoRival, at the pace of a tool that applies what it has every two minutes.
func TestSomebodyWhoUndoesAWriteNowAndThenIsNoRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuel(t)
		d.given.Store(true)
		for range 10 * keys.HotAfter {
			d.api.Update("default", "a", func(m *corev1.ConfigMap) { m.Data = map[string]string{"pet": "fish"} })
			synctest.Wait()
			require.Equal(t, "cat", d.api.Objects()[0].Data["pet"])
			time.Sleep(2 * time.Minute)
		}
		require.Zero(t, d.cs[0].Stats().HotLoops)
	})
}

// TestCirclesOfManyKindsAreFound has Reconcilers that never come to an end.
func TestCirclesOfManyKindsAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		turn job
		runs int // at most, until it is found
	}{
		"a value goes back and forth": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			return reconcile.Result{}, s.scale(ctx, "new", int32(1-2*(s.runs()%2)))
		}, runs: keys.HotAfter + 5},
		"a number that rises without end": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			return reconcile.Result{}, s.scale(ctx, "new", 1)
		}, runs: keys.MaxRises + 2*keys.HotAfter},
		"a number that falls below zero": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			return reconcile.Result{}, s.scale(ctx, "old", -1)
		}, runs: 60 + 2*keys.HotAfter},
		"a write that changes nothing but the version": {turn: func(ctx context.Context, s *workshop) (reconcile.Result,
			error) {
			return reconcile.Result{}, s.scale(ctx, "new", 0)
		}, runs: keys.HotAfter + 5},
		"a hundred objects in each run": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			for _, o := range s.maps.Objects() {
				if err := reconcile.Wrote(ctx, s.mapCache, s.maps.Update(o.Namespace, o.Name,
					func(m *corev1.ConfigMap) {
						m.Data = map[string]string{"run": fmt.Sprint(s.runs())}
					})); err != nil {
					return reconcile.Result{}, err
				}
			}
			return reconcile.Result{}, nil
		}, runs: keys.HotAfter + 10},
		"an object, made in one run and deleted in the next": {turn: func(ctx context.Context,
			s *workshop) (reconcile.Result,
			error) {
			if o, ok := s.mapCache.Get(reconcile.Key{Namespace: "default", Name: "child"}); ok {
				s.maps.Delete(o.Namespace, o.Name)
				return reconcile.Result{}, reconcile.Deleted(ctx, s.mapCache, o)
			}
			return reconcile.Result{}, reconcile.Wrote(ctx, s.mapCache, s.maps.Create(configMap("child")))
		}, runs: 2*keys.HotAfter + 5},
		"a field with ever new names": {turn: func(ctx context.Context, s *workshop) (reconcile.Result, error) {
			return reconcile.Result{}, reconcile.Wrote(ctx, s.setCache,
				s.sets.Update("default", "new", func(set *appsv1.ReplicaSet) {
					set.Annotations = map[string]string{fmt.Sprint("at-", s.runs()): "x"}
				}))
		}, runs: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWorkshop(t, 100, reconcile.Options{}, test.turn)
				s.Enqueue(parent)
				synctest.Wait()
				require.LessOrEqual(t, s.runs(), test.runs)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, 1, s.Stats().HotKeys)
				require.LessOrEqual(t, s.runs(), test.runs+60)
			})
		})
	}
}

func TestCirclesMayBeAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorkshop(t, 0, reconcile.Options{AllowHotLoops: true}, func(ctx context.Context,
			s *workshop) (reconcile.Result, error) {
			if s.runs() < 5000 {
				return reconcile.Result{RequeueAfter: time.Microsecond}, s.scale(ctx, "new", int32(1-2*(s.runs()%2)))
			}
			return reconcile.Result{}, nil
		})
		s.Enqueue(parent)
		began := time.Now()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.GreaterOrEqual(t, s.runs(), 5000)
		require.Less(t, time.Since(began), time.Second)
		require.Zero(t, s.Stats().HotLoops)
	})
}
