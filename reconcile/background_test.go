package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/workqueue"
)

// stepped is a controller of one worker, each of whose calls ends when the test says so.
type stepped struct {
	api   *mapAPI
	c     *reconcile.Controller
	calls chan reconcile.Key
	end   chan struct{}
}

func newStepped(t *testing.T, opts reconcile.Options, objects ...string) *stepped {
	t.Helper()
	s := &stepped{api: newMapAPI(), calls: make(chan reconcile.Key), end: make(chan struct{})}
	for _, name := range objects {
		s.api.Create(configMap(name))
	}
	s.c = newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		select {
		case s.calls <- key:
			select {
			case <-s.end:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		return reconcile.Result{}, nil
	}, opts)
	reconcile.For(s.c, newMaps(t, s.api))
	start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{s.c}, DrainTimeout: time.Nanosecond})
	synctest.Wait()
	return s
}

// begin returns the name of the key whose call has begun.
func (s *stepped) begin(t *testing.T) string {
	t.Helper()
	synctest.Wait()
	select {
	case key := <-s.calls:
		return key.Name
	default:
		require.Fail(t, "no call has begun")
		return ""
	}
}

func (s *stepped) touch(name string) {
	s.api.Update("default", name, func(*corev1.ConfigMap) {})
	synctest.Wait()
}

// plainLine is what a queue of priorities does, said in the plainest way.
type plainLine struct {
	waiting []waiting                  // in the order in which they came
	passed  map[workqueue.Priority]int // how often, for each priority that has a key
}

type waiting struct {
	name     string
	priority workqueue.Priority
}

func (l *plainLine) add(name string, p workqueue.Priority) {
	i := slices.IndexFunc(l.waiting, func(w waiting) bool { return w.name == name })
	if i >= 0 && l.waiting[i].priority >= p {
		return
	}
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.waiting = append(l.waiting, waiting{name, p})
	l.passed[p] += 0
	l.forget()
}

// next takes the first key of the highest priority, unless a lower one has been passed over too often.
func (l *plainLine) next(most int) string {
	priorities := slices.Sorted(maps.Keys(l.passed))
	turn := priorities[len(priorities)-1]
	for _, p := range slices.Backward(priorities) {
		if n := l.passed[p]; n >= most && n > l.passed[turn] {
			turn = p
		}
	}
	i := slices.IndexFunc(l.waiting, func(w waiting) bool { return w.priority == turn })
	name := l.waiting[i].name
	for p := range l.passed {
		l.passed[p]++
	}
	l.passed[turn] = 0
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.forget()
	return name
}

// forget forgets the priorities that no key has.
func (l *plainLine) forget() {
	for p := range l.passed {
		if !slices.ContainsFunc(l.waiting, func(w waiting) bool { return w.priority == p }) {
			delete(l.passed, p)
		}
	}
}

// The keys of the first list come after those that a change names, a change raises a key that waits, and none waits for
// ever: random histories give the same order as the plain model.
func TestChangesOvertakeTheFirstList(t *testing.T) {
	priorityOf := func(name string) workqueue.Priority { return workqueue.Priority(name[0]-'a') * 3 }
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			opts := reconcile.Options{MaxOvertaken: 1 + r.IntN(6)}
			priority := func(string) workqueue.Priority { return 0 }
			if seed%2 == 1 {
				priority = priorityOf
				opts.Priority = func(key reconcile.Key) workqueue.Priority { return priority(key.Name) }
			}
			var names []string
			for i := range 40 {
				names = append(names, fmt.Sprintf("%c%d", 'a'+i%3, i))
			}
			s := newStepped(t, opts, names...)
			m := &plainLine{passed: map[workqueue.Priority]int{}}
			slices.Sort(names) // as they are listed
			for _, name := range names {
				m.add(name, priority(name)-reconcile.Background)
			}
			running := m.next(opts.MaxOvertaken)
			require.Equal(t, running, s.begin(t))
			for step := range 150 {
				dirty := false
				for range r.IntN(3) {
					name := names[r.IntN(len(names))]
					s.touch(name)
					if name == running {
						dirty = true
						continue
					}
					m.add(name, priority(name))
				}
				s.end <- struct{}{}
				if dirty {
					m.add(running, priority(running))
				}
				if len(m.waiting) == 0 {
					synctest.Wait()
					require.Zero(t, s.c.Stats().Queue.Ready)
					return
				}
				running = m.next(opts.MaxOvertaken)
				require.Equal(t, running, s.begin(t), "seed %d, step %d", seed, step)
			}
		})
	}
}

// The case that matters, without a model: a new process has many objects to look at, and one of them changes.
func TestAChangeRaisesAKeyOfTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("m%02d", i))
		}
		s := newStepped(t, reconcile.Options{}, names...)
		require.Equal(t, "m00", s.begin(t))
		s.touch("m99")
		s.end <- struct{}{}
		require.Equal(t, "m99", s.begin(t))
		// From now on there is always a change to look at, and still the first list is worked through.
		background := 0
		for i := 1; i <= 110; i++ {
			s.api.Create(configMap(fmt.Sprint("new", i)))
			synctest.Wait()
			s.end <- struct{}{}
			if name := s.begin(t); name[0] == 'm' {
				background++
				require.Equal(t, 10, i%11, "one of the first list after ten others, of which m99 was the first")
			}
		}
		require.Equal(t, 10, background)
	})
}

func TestGroupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("busy-%02d", i))
		}
		group := func(key reconcile.Key) string { return key.Name[:4] }
		s := newStepped(t, reconcile.Options{Group: group}, append(names, "idle-1", "idle-2")...)
		var order []string
		for range 5 {
			order = append(order, s.begin(t))
			s.end <- struct{}{}
		}
		require.Equal(t, []string{"busy-00", "idle-1", "busy-01", "idle-2", "busy-02"}, order)
	})
}

// Each object is named again in its turn, whatever the conditions say.
func TestResyncEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		for _, name := range []string{"a", "b", "c"} {
			api.Create(configMap(name))
		}
		c := newController(t, noting(log), reconcile.Options{ResyncEvery: time.Minute})
		inf := newMaps(t, api)
		reconcile.For(c, inf, func(*corev1.ConfigMap, *corev1.ConfigMap) bool { return false })
		reconcile.Watches(c, inf, func(*corev1.ConfigMap) []reconcile.Key { return []reconcile.Key{{Name: "watched"}} },
			func(*corev1.ConfigMap, *corev1.ConfigMap) bool { return false })
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.Len(t, taken(log), 4)
		for range 2 {
			time.Sleep(time.Minute + time.Second)
			named := taken(log)
			require.LessOrEqual(t, len(named), 6, "the second more may be another turn")
			require.Equal(t, []string{"default/a", "default/b", "default/c"}, slices.Compact(named))
		}
	})
}

func TestAResyncIsNoHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStepped(t, reconcile.Options{ResyncEvery: time.Minute}, "a", "b")
		require.Equal(t, "a", s.begin(t))
		s.end <- struct{}{}
		require.Equal(t, "b", s.begin(t))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		for _, key := range s.c.InspectKeys() {
			if key.Name == "a" {
				require.EqualValues(t, -reconcile.Background, key.Priority)
				return
			}
		}
		require.Fail(t, "a is not named")
	})
}

func TestOptionsOfTheQueueAreChecked(t *testing.T) {
	_, err := reconcile.NewController("c", noting(&journal{}), reconcile.Options{MaxOvertaken: -1,
		ResyncEvery: time.Millisecond})
	require.ErrorContains(t, err, "Options.MaxOvertaken is -1")
	require.ErrorContains(t, err, "Options.ResyncEvery is 1ms")
}

func TestTheLowestPriorityStaysTheLowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("a"))
		lowest := reconcile.Options{Priority: func(reconcile.Key) workqueue.Priority { return -128 }}
		c := newController(t, noting(&journal{}), lowest)
		reconcile.For(c, newMaps(t, api))
		never := &lease{free: make(chan struct{})}
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: never})
		synctest.Wait()
		require.Len(t, c.InspectKeys(), 1)
		require.Equal(t, -128, c.InspectKeys()[0].Priority, "although the first list has named it")
	})
}
