package informer

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fifoScript plays a history of three keys, coded in bytes, into a FIFO that is emptied now and then, and the same
// history, step by step and with nothing in between, into a plain map. A batch comes into the store later than it
// leaves the FIFO; then the store must hold what the map did when it left.
func fifoScript(t *testing.T, script []byte) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	told := &history{inf: inf, rounds: rounds{}}
	_, err = inf.AddHandler(told.handle, HandlerOptions{Inline: true})
	require.NoError(t, err)

	truth := map[Key]*corev1.Pod{}
	now, epoch, reached := 1, uint64(1), "1"
	var underWay func()                                  // brings a batch into the store, and compares
	theListWatch(inf).fifo.listed(epoch, reached, false) // a list of nothing
	for _, op := range script {
		now++
		key := Key{Namespace: "default", Name: string(rune('a' + op%3))}
		held, exists := truth[key]
		next := func(uid types.UID) *corev1.Pod {
			p := pod(key.Name)
			p.UID, p.ResourceVersion = uid, strconv.Itoa(now)
			return p
		}
		live := func(p *corev1.Pod) {
			truth[key] = p
			theListWatch(inf).fifo.add(delta[*corev1.Pod]{item: item[*corev1.Pod]{key, p.UID, p.ResourceVersion, false,
				0, p}, epoch: epoch}, p.ResourceVersion)
			reached = p.ResourceVersion
		}
		switch kind := op / 3 % 8; kind {
		case 0, 1: // create or update
			uid := types.UID("uid-" + strconv.Itoa(now))
			if exists {
				uid = held.UID
			}
			live(next(uid))
		case 2: // delete, create again
			live(next(types.UID("uid-" + strconv.Itoa(now))))
		case 3, 4: // delete, with the last state or, as when it cannot be decoded, without
			if !exists {
				continue
			}
			delete(truth, key)
			d := delta[*corev1.Pod]{item: item[*corev1.Pod]{key: key, uid: held.UID,
				resourceVersion: strconv.Itoa(now)}, deleted: true, unseen: kind == 4, epoch: epoch}
			if kind == 3 {
				d.value = next(held.UID)
			}
			theListWatch(inf).fifo.add(d, strconv.Itoa(now))
			reached = strconv.Itoa(now)
		case 5: // a list, in which a key has gone missing, is begun; sometimes it is complete
			if now%5 > 0 {
				delete(truth, key)
			}
			epoch++
			for k, p := range truth {
				theListWatch(inf).fifo.add(delta[*corev1.Pod]{item: item[*corev1.Pod]{k, p.UID, p.ResourceVersion,
					false,
					0, p}, epoch: epoch}, "")
			}
			if now%5 > 0 {
				theListWatch(inf).fifo.listed(epoch, strconv.Itoa(now), true)
				reached = strconv.Itoa(now)
			}
		case 6: // a bookmark
			theListWatch(inf).fifo.advance(strconv.Itoa(now))
			reached = strconv.Itoa(now)
		case 7: // empty the FIFO, or fill the store
			if underWay != nil {
				underWay()
				underWay = nil
				continue
			}
			b, _ := theListWatch(inf).fifo.pop()
			requireBatch(t, b)
			require.Empty(t, theListWatch(inf).fifo.steps)
			truth, reached := maps.Clone(truth), reached
			underWay = func() {
				inf.token <- struct{}{}
				inf.writer.apply(theListWatch(inf), b.deltas)
				inf.writer.tell()
				inf.writer.finish(theListWatch(inf), b.outcome)
				<-inf.token
				theListWatch(inf).fifo.release(b)
				require.Equal(t, len(truth), inf.Len())
				for k, p := range truth {
					got, ok := inf.Get(k)
					require.True(t, ok, "%s is missing", k)
					require.Equal(t, p.ResourceVersion, got.ResourceVersion, "%s", k)
				}
				require.Equal(t, reached, inf.ResourceVersion(metav1.NamespaceAll))
			}
		}
	}
	require.NoError(t, told.err())
}

// requireBatch checks that a batch holds each key once: a deletion, a live state, or the one and then the other.
func requireBatch(t *testing.T, b batch[*corev1.Pod]) {
	seen := map[Key]struct{}{}
	for i, d := range b.deltas {
		if i > 0 && b.deltas[i-1].key == d.key {
			require.True(t, b.deltas[i-1].deleted && !d.deleted, "two deltas of %s that could be one", d.key)
			continue
		}
		require.NotContains(t, seen, d.key)
		seen[d.key] = struct{}{}
	}
}

func TestDeltaFIFOLosesNothingOnTheWayToTheStore(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		script := make([]byte, 100)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		fifoScript(t, script)
	}
}

func FuzzDeltaFIFO(f *testing.F) {
	f.Add([]byte{0, 9, 0, 21, 6, 9, 21, 15, 18, 21})
	f.Fuzz(fifoScript)
}

// fill adds n steps, and returns for how many the FIFO has room once they are in the store: before, and in the batch.
func fill(t *testing.T, f *deltaFIFO[int], n int) (steps, deltas int) {
	for i := range n {
		f.add(delta[int]{item: item[int]{key: Key{Name: strconv.Itoa(i)}}}, "")
	}
	f.advance("1")
	b, any := f.pop()
	require.True(t, any)
	require.Len(t, b.deltas, n)
	f.release(b)
	for _, d := range f.spare[:cap(f.spare)] {
		require.Zero(t, d, "it keeps an object alive")
	}
	return cap(f.steps), cap(f.spare)
}

func TestDeltaFIFOForgetsTheMemoryOfAGreatList(t *testing.T) {
	f := newDeltaFIFO[int](make(chan struct{}, 1), new(atomic.Bool), storedEverything)
	steps, deltas := fill(t, f, mostSpare+1)
	require.Zero(t, steps)
	require.Zero(t, deltas)
	_, any := f.pop()
	require.False(t, any)
}

func TestDeltaFIFOKeepsTheMemoryOfABurstForABurst(t *testing.T) {
	for name, last := range map[string]func(t *testing.T, f *deltaFIFO[int]){
		"until little comes for a while": func(t *testing.T, f *deltaFIFO[int]) {
			for range mostSmall {
				fill(t, f, 10)
			}
		},
		"until nothing comes": func(t *testing.T, f *deltaFIFO[int]) { fill(t, f, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newDeltaFIFO[int](make(chan struct{}, 1), new(atomic.Bool), storedEverything)
			for range 3 { // large batches, and small ones among them
				for i := range mostSmall {
					n := 10
					if i == 0 {
						n = mostSpare
					}
					steps, deltas := fill(t, f, n)
					require.GreaterOrEqual(t, steps, mostSpare)
					require.GreaterOrEqual(t, deltas, mostSpare)
				}
			}
			fill(t, f, mostSpare)
			last(t, f)
			steps, deltas := fill(t, f, 10)
			require.LessOrEqual(t, steps, leastSpare)
			require.LessOrEqual(t, deltas, leastSpare)
		})
	}
}

// The store holds one object, and while nobody pops, it is deleted, and so is its successor: the store must hear of the
// one that it holds.
func TestDeltaFIFOKeepsTheFirstDeletion(t *testing.T) {
	f := newDeltaFIFO[int](make(chan struct{}, 1), new(atomic.Bool), storedEverything)
	step := func(uid types.UID, deleted bool) delta[int] {
		return delta[int]{item: item[int]{uid: uid}, deleted: deleted}
	}
	f.add(step("1", true), "")
	f.add(step("2", false), "")
	f.add(step("2", true), "")
	b, _ := f.pop()
	require.Len(t, b.deltas, 1)
	require.Equal(t, types.UID("1"), b.deltas[0].uid)
}

func TestDeltaFIFOTakesNothingOnceItIsDropped(t *testing.T) {
	f := newDeltaFIFO[int](make(chan struct{}, 1), new(atomic.Bool), storedEverything)
	step := delta[int]{item: item[int]{value: 5}}
	f.add(step, "3")
	f.drop()
	f.add(step, "4")
	_, any := f.pop()
	require.False(t, any)
}

// Whoever wants every step gets it, in order, and the store never has to look at two states of one key at once.
func TestDeltaFIFOKeepsEveryStepWhileSomebodyWantsIt(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 9))
		every := new(atomic.Bool)
		every.Store(true)
		f := newDeltaFIFO[int](make(chan struct{}, 1), every, storedEverything)
		var added, popped []string
		last := map[Key]string{}
		for version := range 300 {
			key := named(strconv.Itoa(random.IntN(6)))
			switch d := (delta[int]{item: item[int]{key: key}, deleted: random.IntN(4) == 0}); {
			case random.IntN(40) == 0:
				b, _ := f.pop()
				for some := b.next(5); len(some) > 0; some = b.next(5) {
					require.LessOrEqual(t, len(some), 5)
					keys := map[Key]bool{}
					for _, d := range some {
						require.False(t, keys[d.key], "seed %d: a key comes twice in %v", seed, some)
						keys[d.key] = true
						popped = append(popped, d.resourceVersion)
					}
				}
				f.release(b)
				last = map[Key]string{}
			case random.IntN(10) == 0 && last[d.key] != "": // what waits already, or is later than this
				d.deleted, d.repeated, d.resourceVersion = false, true, "0"
				if again := random.IntN(2) == 0 && last[d.key] != "gone"; again {
					d.resourceVersion = last[d.key]
					added = append(added, d.resourceVersion)
				}
				f.add(d, "")
			default:
				d.resourceVersion = strconv.Itoa(version + 1)
				added, last[d.key] = append(added, d.resourceVersion), d.resourceVersion
				if d.deleted {
					last[d.key] = "gone"
				}
				f.add(d, d.resourceVersion)
			}
		}
		every.Store(false)
		f.add(delta[int]{item: item[int]{key: named("last"), resourceVersion: "first"}}, "")
		f.add(delta[int]{item: item[int]{key: named("last"), resourceVersion: "merged"}}, "")
		b, _ := f.pop()
		for some := b.next(chunk); len(some) > 0; some = b.next(chunk) {
			for _, d := range some {
				popped = append(popped, d.resourceVersion)
			}
		}
		require.Equal(t, append(added, "merged"), popped, "seed %d", seed)
		require.Empty(t, f.cuts)
	}
}

// A handler that wants every change is told of it; the others' buffers are merged as always, and when it has left, so
// is what waits for the store.
func TestEveryChangeIsToldToThoseWhoWantIt(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var every []string
		count := func(counts *int) Handler[*corev1.Pod] { return func(Event[*corev1.Pod]) { *counts++ } }
		wants, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if !e.Initial {
				every = append(every, e.Type.String())
			}
		}, HandlerOptions{Every: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		for range 3 {
			p.Create(pod("new"))
			p.Update("default", "new", func(*corev1.Pod) {})
			p.Update("default", "new", func(*corev1.Pod) {})
			p.Delete("default", "new")
		}
		synctest.Wait()
		round := []string{"Added", "Updated", "Updated", "Deleted"}
		require.Equal(t, slices.Concat(round, round, round), every)

		require.NoError(t, wants.Remove(t.Context()))
		p.Update("default", "a", func(*corev1.Pod) {}) // it is forgotten at the next event
		synctest.Wait()
		seen := 0
		_, err = inf.AddHandler(count(&seen), HandlerOptions{Inline: true})
		require.NoError(t, err)
		seen = 0
		inf.token <- struct{}{} // the store is busy
		for range 100 {
			p.Update("default", "a", func(*corev1.Pod) {})
		}
		time.Sleep(time.Second)
		<-inf.token
		synctest.Wait()
		require.LessOrEqual(t, seen, 2, "one that the store had taken before, and the newest")
		healed(t, p, inf, told)
	})
}

// What is created and deleted while the store stands still leaves nothing: the store never held it.
func TestDeltaFIFOForgetsWhatTheStoreNeverHeld(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		blocked := make(chan struct{})
		_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Type == Updated {
				<-blocked
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		p.Update("default", "a", func(*corev1.Pod) {})
		p.Create(pod("inflight"))
		synctest.Wait()
		for range 100 {
			p.Create(pod("inflight-too"))
			p.Delete("default", "inflight-too")
			for _, name := range []string{"c", "d", "e", "f"} {
				p.Create(pod(name))
			}
			for _, name := range []string{"d", "c", "f", "e"} {
				p.Delete("default", name)
			}
			synctest.Wait()
		}
		p.Delete("default", "inflight")
		p.Delete("default", "b")
		p.Create(pod("b"))
		p.Delete("default", "b")
		p.Create(pod("stays"))
		synctest.Wait()
		require.LessOrEqual(t, inf.Health().Queued, 3, "the deletions of b and inflight, and what stays")
		close(blocked)
		synctest.Wait()
		require.Equal(t, []string{"a", "stays"}, names(inf))
		healed(t, p, inf, told)
	})
}

// storedEverything is the answer of a store that may know of any key.
func storedEverything(Key) stored { return stored{held: true} }

// A step may be in while the FIFO does not look filled yet.
func TestADropMissesNothing(t *testing.T) {
	f := newDeltaFIFO[*corev1.Pod](make(chan struct{}, 1), new(atomic.Bool), func(Key) stored { return stored{} })
	f.add(delta[*corev1.Pod]{item: item[*corev1.Pod]{key: named("a")}}, "")
	f.filled.Store(false)
	f.drop()
	require.Zero(t, f.len())
}
