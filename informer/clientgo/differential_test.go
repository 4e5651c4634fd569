//go:build !client_go_0_35

package clientgo

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// One script of what happens to some pods, to the watches and to the handlers is played before client-go's informer and
// before ours, each in a bubble of its own, with a server of its own that gives out the same UIDs and versions. Both
// stores must end as the server does; so must what each handler knows, folded from its notifications; and what a
// handler was told of a key must be states that the key had, in their order.
//
// More cannot be compared, as neither is told of every state: which of them are missed depends on when a list comes
// between. The differences that remain are known, and each is seen to occur, or it would not be one:
//
//	                                          client-go                      ours
//	deleted and created again in a gap        OnUpdate across two UIDs       OnDelete, OnAdd
//	requests after watches that broke         lists again, now and then      resumes
//
// The second shows in the number of lists only.
type differences struct{ updatesAcrossUIDs, lists int }

// state is what a handler knows of a pod, or the absence of one.
type state struct{ uid, version string }

func stateOf(obj any) state {
	p := obj.(*corev1.Pod)
	return state{string(p.UID), p.ResourceVersion}
}

// witness is a handler that follows what it is told and complains about what does not fit.
type witness struct {
	delay      time.Duration
	known      map[string]state   // what exists, by name
	past       map[string][]state // every state of a name, the absent ones included, that it was told of
	complaints []string
	acrossUIDs int
}

func newWitness(delay time.Duration) *witness {
	return &witness{delay: delay, known: map[string]state{}, past: map[string][]state{}}
}

func (w *witness) OnAdd(obj any, _ bool) {
	time.Sleep(w.delay)
	name, now := obj.(*corev1.Pod).Name, stateOf(obj)
	if before, exists := w.known[name]; exists {
		w.complain("%s is added at %v, and is known at %v", name, now, before)
	}
	w.know(name, now)
}

func (w *witness) OnUpdate(old, obj any) {
	time.Sleep(w.delay)
	name, before, now := obj.(*corev1.Pod).Name, stateOf(old), stateOf(obj)
	if known, exists := w.known[name]; !exists || known != before {
		w.complain("%s is updated from %v, and is known at %v", name, before, known)
	}
	switch {
	case before == now:
		return // a repetition
	case before.uid != now.uid:
		w.acrossUIDs++
		w.know(name, state{})
	}
	w.know(name, now)
}

func (w *witness) OnDelete(obj any) {
	time.Sleep(w.delay)
	var name string
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		name = strings.TrimPrefix(tombstone.Key, "default/")
	} else {
		name = obj.(*corev1.Pod).Name
	}
	if _, exists := w.known[name]; !exists {
		w.complain("%s is deleted, and is not known", name)
	}
	w.know(name, state{})
	delete(w.known, name)
}

func (w *witness) know(name string, s state) {
	w.known[name] = s
	w.past[name] = append(w.past[name], s)
}

func (w *witness) complain(format string, args ...any) {
	w.complaints = append(w.complaints, fmt.Sprintf(format, args...))
}

// stage is where a script is played: a server and the states that its objects have had.
type stage struct {
	*podAPI
	random *rand.Rand
	truth  map[string][]state // by name
	since  map[string][]int   // the versions at which these began
	down   atomic.Bool
	lists  atomic.Int64
}

// refuse is the answer of a server that may be down.
func (s *stage) refuse(metav1.ListOptions) error {
	if s.down.Load() {
		return errPicky
	}
	return nil
}

func (s *stage) create(name string) {
	p := s.Create(pod(name))
	s.became(p, stateOf(p))
}

func (s *stage) update(name string) {
	node := fmt.Sprint(s.random.IntN(1000))
	p := s.Update("default", name, func(p *corev1.Pod) { p.Spec.NodeName = node })
	s.became(p, stateOf(p))
}

func (s *stage) remove(name string) { s.became(s.Delete("default", name), state{}) }

func (s *stage) became(p *corev1.Pod, now state) {
	s.truth[p.Name] = append(s.truth[p.Name], now)
	s.since[p.Name] = append(s.since[p.Name], version(p.ResourceVersion))
}

func version(resourceVersion string) int {
	n, _ := strconv.Atoi(resourceVersion)
	return n
}

func (s *stage) exists(name string) bool {
	past := s.truth[name]
	return len(past) > 0 && past[len(past)-1] != state{}
}

// happen changes a pod, in a way that the script's random numbers choose.
func (s *stage) happen() {
	name := string(rune('a' + s.random.IntN(6)))
	if !s.exists(name) {
		s.create(name)
		return
	}
	switch s.random.IntN(4) {
	case 0:
		s.remove(name)
	case 1: // deleted, and created again
		s.remove(name)
		s.create(name)
	default:
		s.update(name)
	}
}

// checkVersion complains if the store lacks something of what there was at the version that it tells.
func (s *stage) checkVersion(t *testing.T, store cache.Store) {
	at := version(store.LastStoreSyncResourceVersion())
	held := map[string]state{}
	for _, obj := range store.List() {
		held[obj.(*corev1.Pod).Name] = stateOf(obj)
	}
	for name, past := range s.truth {
		then, _ := slices.BinarySearch(s.since[name], at+1)
		require.Contains(t, append([]state{{}}, past...)[then:], held[name], "%s in the store of version %d", name, at)
	}
}

type constructor func(cache.ListerWatcher) cache.SharedIndexInformer

// perform plays the script of a seed and returns the server's objects at the end, and how the informer differs from the
// other one.
func perform(t *testing.T, seed uint64, construct constructor) (end map[string]state, found differences) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{podAPI: newPodAPI(), random: rand.New(rand.NewPCG(seed, 11)), truth: map[string][]state{},
			since: map[string][]int{}}
		s.NoStreaming = s.random.IntN(2) == 0
		s.BeforeWatch = s.refuse
		s.BeforeList = func(opts metav1.ListOptions) error {
			if opts.Limit != 1 { // or it is but the question of the server's version
				s.lists.Add(1)
			}
			return s.refuse(opts)
		}
		for range 5 {
			s.happen()
		}
		inf := construct(listWatch(s.podAPI))
		quick, slow := newWitness(0), newWitness(700*time.Millisecond)
		add(t, inf, quick)
		add(t, inf, slow)
		gone := newWitness(0)
		leaving := add(t, inf, gone)
		stop := run(t, inf)
		witnesses := map[string]*witness{"quick": quick, "slow": slow}

		for step := range 60 {
			switch s.random.IntN(14) {
			default:
				s.happen()
			case 0:
				s.Cut()
			case 1:
				s.Bookmark()
			case 2: // the server forgets what happened while nobody could ask it
				s.down.Store(true)
				s.Cut()
				for range s.random.IntN(6) {
					s.happen()
				}
				s.Compact()
				time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
				s.down.Store(false)
			case 3: // a burst behind a slow network
				s.Hold()
				for range s.random.IntN(10) {
					s.happen()
				}
				time.Sleep(time.Second)
				s.Release()
			case 4:
				late := newWitness(0)
				add(t, inf, late)
				witnesses[fmt.Sprint("late ", step)] = late
			case 5:
				require.NoError(t, inf.RemoveEventHandler(leaving))
			case 6:
				time.Sleep(time.Duration(s.random.IntN(60_000)) * time.Millisecond)
			}
			s.checkVersion(t, inf.GetStore())
			if s.random.IntN(3) > 0 {
				synctest.Wait()
				s.checkVersion(t, inf.GetStore())
			}
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()

		end = map[string]state{}
		for _, p := range s.Objects() {
			end[p.Name] = stateOf(p)
		}
		held := map[string]state{}
		for _, obj := range inf.GetStore().List() {
			held[obj.(*corev1.Pod).Name] = stateOf(obj)
		}
		require.Equal(t, end, held, "the store")
		for who, w := range witnesses {
			require.Empty(t, w.complaints, who)
			require.Equal(t, end, w.known, who)
			found.updatesAcrossUIDs += w.acrossUIDs
			for name, past := range w.past {
				require.NoError(t, within(past, s.truth[name]), "%s, %s", who, name)
			}
		}
		require.Empty(t, gone.complaints)
		found.lists = int(s.lists.Load())
		stop()
	})
	return end, found
}

// within reports whether all states that a handler was told of are among the true ones, in their order. To have never
// existed is true at the beginning.
func within(told, truth []state) error {
	rest := append([]state{{}}, truth...)
	for i, s := range told {
		at := slices.Index(rest, s)
		if at < 0 {
			return fmt.Errorf("state %d, %v, of %v is not in what was left of %v", i, s, told, truth)
		}
		rest = rest[at:]
	}
	return nil
}

func TestInformersAgreeWithClientGo(t *testing.T) {
	// client-go delays whoever reports errors, by a clock that does not know of bubbles.
	defer func(handlers []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = handlers }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) {}}

	seeds := uint64(60)
	if os.Getenv("THERMOSTAT_SOAK") != "" {
		seeds = 3000
	}
	var theirs, ours differences
	for seed := range seeds {
		t.Logf("seed %d", seed)
		end, found := perform(t, seed, func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		})
		theirs.updatesAcrossUIDs += found.updatesAcrossUIDs
		theirs.lists += found.lists
		same, found := perform(t, seed, func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		})
		ours.updatesAcrossUIDs += found.updatesAcrossUIDs
		ours.lists += found.lists
		require.True(t, maps.Equal(end, same), "the script has not been the same for both: %v, %v", end, same)
	}
	t.Logf("client-go: %+v, ours: %+v", theirs, ours)
	require.Positive(t, theirs.updatesAcrossUIDs)
	require.Zero(t, ours.updatesAcrossUIDs)
	require.Greater(t, theirs.lists, ours.lists)
}

func TestAWitnessComplains(t *testing.T) {
	at := func(uid, version string) *corev1.Pod {
		p := pod("a")
		p.UID, p.ResourceVersion = "u", version
		return p
	}
	for what, misbehave := range map[string]func(*witness){
		"is known at":     func(w *witness) { w.OnAdd(at("u", "1"), true); w.OnAdd(at("u", "2"), false) },
		"is updated from": func(w *witness) { w.OnAdd(at("u", "1"), true); w.OnUpdate(at("u", "2"), at("u", "3")) },
		"is not known":    func(w *witness) { w.OnDelete(at("u", "1")) },
	} {
		w := newWitness(0)
		misbehave(w)
		require.Len(t, w.complaints, 1)
		require.Contains(t, w.complaints[0], what)
	}
	one, two := state{"u", "1"}, state{"u", "2"}
	require.NoError(t, within([]state{one, {}, two}, []state{one, {}, one, two}))
	require.Error(t, within([]state{two, one}, []state{one, two}))
}
