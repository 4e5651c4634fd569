package informer

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// fifoScript plays a history of three keys, coded in bytes, into a FIFO that is emptied now and then, and the same history, step by step and with
// nothing in between, into a plain map. Whenever the FIFO has been emptied, the store that it feeds must hold what the map does.
func fifoScript(t *testing.T, script []byte) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	told := &history{inf: inf, rounds: rounds{}}
	_, err = inf.AddHandler(told.handle, HandlerOptions{Inline: true})
	require.NoError(t, err)

	truth := map[Key]*corev1.Pod{}
	now, epoch, order, reached := 1, uint64(1), []Key{}, "1"
	theLane(inf).fifo.listed(epoch, reached) // a list of nothing
	for _, op := range script {
		now++
		key := Key{Namespace: "default", Name: string(rune('a' + op%3))}
		held, exists := truth[key]
		queued := func() {
			if _, waiting := theLane(inf).fifo.places[key]; !waiting {
				order = append(order, key)
			}
		}
		next := func(uid types.UID) *corev1.Pod {
			p := pod(key.Name)
			p.UID, p.ResourceVersion = uid, strconv.Itoa(now)
			return p
		}
		live := func(p *corev1.Pod) {
			queued()
			truth[key] = p
			theLane(inf).fifo.add(delta[*corev1.Pod]{item: item[*corev1.Pod]{key, p.UID, p.ResourceVersion, false, 0, p}, epoch: epoch}, p.ResourceVersion)
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
			queued()
			delete(truth, key)
			d := delta[*corev1.Pod]{item: item[*corev1.Pod]{key: key, uid: held.UID, resourceVersion: strconv.Itoa(now)}, deleted: true, unseen: kind == 4, epoch: epoch}
			if kind == 3 {
				d.value = next(held.UID)
			}
			theLane(inf).fifo.add(d, strconv.Itoa(now))
			reached = strconv.Itoa(now)
		case 5: // a list, in which a key has gone missing, is begun; sometimes it is complete
			if now%5 > 0 {
				delete(truth, key)
			}
			epoch++
			for k, p := range truth {
				if _, waiting := theLane(inf).fifo.places[k]; !waiting {
					order = append(order, k)
				}
				theLane(inf).fifo.add(delta[*corev1.Pod]{item: item[*corev1.Pod]{k, p.UID, p.ResourceVersion, false, 0, p}, epoch: epoch}, "")
			}
			if now%5 > 0 {
				theLane(inf).fifo.swept(epoch)
				theLane(inf).fifo.listed(epoch, strconv.Itoa(now))
				reached = strconv.Itoa(now)
			}
		case 6: // a bookmark
			theLane(inf).fifo.reached(strconv.Itoa(now))
			reached = strconv.Itoa(now)
		case 7: // empty the FIFO
			b, _ := theLane(inf).fifo.pop()
			requireBatch(t, b, order)
			order = order[:0]
			inf.lockWriter()
			inf.apply(theLane(inf), b.deltas)
			inf.tell(klog.Background())
			inf.finish(theLane(inf), b, klog.Background())
			inf.tell(klog.Background())
			inf.unlockWriter()
			require.Equal(t, len(truth), inf.Len())
			for k, p := range truth {
				got, ok := inf.Get(k)
				require.True(t, ok, "%s is missing", k)
				require.Equal(t, p.ResourceVersion, got.ResourceVersion, "%s", k)
			}
			require.Empty(t, theLane(inf).fifo.steps)
			require.Equal(t, reached, inf.ResourceVersion(metav1.NamespaceAll))
		}
	}
	require.NoError(t, told.err())
}

// requireBatch checks that a batch holds, in the order in which they came, each key once: a deletion, a live state, or the one and then the other.
func requireBatch(t *testing.T, b batch[*corev1.Pod], order []Key) {
	var keys []Key
	for i, d := range b.deltas {
		if i > 0 && b.deltas[i-1].key == d.key {
			require.True(t, b.deltas[i-1].deleted && !d.deleted, "two deltas of %s that could be one", d.key)
			continue
		}
		keys = append(keys, d.key)
	}
	require.Equal(t, append([]Key(nil), order...), keys)
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
	f.reached("1")
	b, any := f.pop()
	require.True(t, any)
	require.Len(t, b.deltas, n)
	f.applied(b)
	for _, d := range f.spare[:cap(f.spare)] {
		require.Zero(t, d, "it keeps an object alive")
	}
	return cap(f.steps), cap(f.spare)
}

func TestDeltaFIFOForgetsTheMemoryOfAGreatList(t *testing.T) {
	f := newDeltaFIFO[int](make(chan struct{}, 1), &budget{})
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
			f := newDeltaFIFO[int](make(chan struct{}, 1), &budget{})
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

// The store holds one object, and while nobody pops, it is deleted, and so is its successor: the store must hear of the one that it holds.
func TestDeltaFIFOKeepsTheFirstDeletion(t *testing.T) {
	f := newDeltaFIFO[int](make(chan struct{}, 1), &budget{})
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
	b := &budget{}
	f := newDeltaFIFO[int](make(chan struct{}, 1), b)
	step := delta[int]{item: item[int]{size: 5}}
	f.add(step, "3")
	f.drop()
	require.Zero(t, b.waiting.Load(), "what was in it takes no room")
	f.add(step, "4")
	require.Zero(t, b.waiting.Load(), "nor does what comes too late")
	_, any := f.pop()
	require.False(t, any)
}
