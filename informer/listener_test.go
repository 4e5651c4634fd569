package informer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// listenerScript plays changes of a store with four keys, coded in bytes, to a listener that merges what waits and is
// emptied in parts. What comes out must be what a slow but honest handler may see.
func listenerScript(t *testing.T, script []byte) {
	told := &history{rounds: rounds{}}
	l := newListener(told.handle, HandlerOptions{})
	truth, states := map[Key]*corev1.Pod{}, map[Key][]string{}
	now, marked := 1, false
	deliver := func(n int) {
		for range n {
			if l.next() {
				l.work(t.Context(), klog.Background())
			}
		}
	}
	push := func(e Event[*corev1.Pod]) {
		states[e.Key] = append(states[e.Key], e.ResourceVersion)
		e.Initial = !marked
		l.push(len(truth), e)
	}
	for _, op := range script {
		now++
		key := Key{Namespace: "default", Name: string(rune('a' + op%4))}
		held := truth[key]
		next := func(uid types.UID) *corev1.Pod {
			p := pod(key.Name)
			p.UID, p.ResourceVersion = uid, strconv.Itoa(now)
			truth[key] = p
			return p
		}
		switch op / 4 % 8 {
		case 0, 1, 2:
			if held == nil {
				p := next(types.UID(strconv.Itoa(now)))
				push(Event[*corev1.Pod]{Type: Added, Key: key, UID: p.UID, ResourceVersion: p.ResourceVersion, New: p})
			} else {
				p := next(held.UID)
				push(Event[*corev1.Pod]{Type: Updated, Key: key, UID: p.UID, ResourceVersion: p.ResourceVersion,
					Old: held, New: p})
			}
		case 3, 4:
			if held != nil {
				delete(truth, key)
				push(Event[*corev1.Pod]{Type: Deleted, Key: key, UID: held.UID, ResourceVersion: strconv.Itoa(now),
					Old: held})
			}
		case 5:
			deliver(int(op % 4))
		case 6:
			l.mu.Lock()
			l.mergeLocked()
			require.LessOrEqual(t, l.waiting, 2*4+1, "more than two events for some key")
			l.mu.Unlock()
		case 7:
			if !marked {
				marked = true
				l.push(len(truth), Event[*corev1.Pod]{})
			}
		}
	}
	deliver(l.pending())
	require.Zero(t, l.pending())
	require.NoError(t, told.err())
	require.NoError(t, told.folded(slices.Collect(func(yield func(*corev1.Pod) bool) {
		for _, p := range truth {
			if !yield(p) {
				return
			}
		}
	})))
	for _, e := range told.all() {
		require.Contains(t, states[e.Key], e.ResourceVersion, "%s %s: a state that never was", e.Type, e.Key)
	}
	if marked {
		select {
		case <-l.synced:
		default:
			require.Fail(t, "the mark got lost")
		}
	}
}

func TestAHandlerThatIsBehindSeesASubsequenceOfTheTruth(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 120)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		listenerScript(t, script)
	}
}

func FuzzListener(f *testing.F) {
	f.Add([]byte{0, 4, 28, 12, 0, 24, 20, 24})
	f.Fuzz(listenerScript)
}

// The handler is slower than the changes, for ever; still it must come to the end of the initial state.
func TestMergingNeverPostponesTheMark(t *testing.T) {
	l := newListener(func(Event[int]) {}, HandlerOptions{})
	log := klog.Background()
	const keys = 2000
	for i := range keys {
		l.push(keys, Event[int]{Type: Added, Key: Key{Name: strconv.Itoa(i)}, Initial: true})
	}
	l.push(keys, Event[int]{})
	delivered := 0
	for i := 0; ; i++ {
		require.Less(t, delivered, 2*keys, "the mark is never reached")
		for j := range 10 {
			l.push(keys, Event[int]{Type: Updated, Key: Key{Name: strconv.Itoa((10*i + j) % keys)}})
		}
		require.True(t, l.next())
		delivered += len(l.hand)
		l.work(t.Context(), log)
		select {
		case <-l.synced:
			return
		default:
		}
	}
}

// Only what was there at first is initial, and not what has taken its key since.
func TestMergingKeepsWhatIsInitial(t *testing.T) {
	initial := Event[int]{Type: Added, Key: named("a"), UID: "1", New: 1, Initial: true}
	updated := Event[int]{Type: Updated, Key: named("a"), UID: "1", Old: 1, New: 2}
	deleted := Event[int]{Type: Deleted, Key: named("a"), UID: "1", Old: 2}
	again := Event[int]{Type: Added, Key: named("a"), UID: "2", New: 3}
	require.Equal(t, []Event[int]{{Type: Added, Key: named("a"), UID: "1", New: 2, Initial: true}},
		merge([]Event[int]{initial, updated}))
	require.Equal(t, []Event[int]{again}, merge([]Event[int]{initial, updated, deleted, again}))
	require.Equal(t, []Event[int]{deleted, again}, merge([]Event[int]{updated, deleted, again})[:2])
	require.Empty(t, merge([]Event[int]{initial, updated, deleted}))
}

func TestWhatWaitsForAHandlerIsBoundedByTheStore(t *testing.T) {
	for _, stored := range []int{1, 5000} {
		t.Run(fmt.Sprintf("stored=%d", stored), func(t *testing.T) {
			l := newListener(func(Event[int]) {}, HandlerOptions{})
			for i := range 100_000 {
				typ := Updated
				if i < stored {
					typ = Added
				}
				l.push(stored, Event[int]{Type: typ, Key: Key{Name: strconv.Itoa(i % stored)}})
				require.LessOrEqual(t, l.pending(), max(minBuffer, 2*stored)+chunk)
				if i%20 == 0 {
					l.next() // a handler that is never done: the array must not grow behind it, either
				}
			}
			require.LessOrEqual(t, cap(l.batches), 4*max(minBuffer, 2*stored))
		})
	}
}

func TestAHandlerThatIsNeverQuiteDoneHoldsNoMemoryBehindIt(t *testing.T) {
	l := newListener(func(Event[int]) {}, HandlerOptions{})
	for i := range 100_000 {
		l.push(10, Event[int]{Type: Added, Key: Key{Name: strconv.Itoa(i)}})
		if i > 0 {
			l.next() // one is always left
		}
	}
	require.Equal(t, 1, l.waiting)
	require.Less(t, cap(l.batches), 16)
}

func TestABurstThatHasPassedHoldsNoMemory(t *testing.T) {
	l := newListener(func(Event[int]) {}, HandlerOptions{})
	for i := range 50_000 {
		l.push(50_000, Event[int]{Type: Added, Key: Key{Name: strconv.Itoa(i)}})
	}
	for range 50_000 {
		require.True(t, l.next())
	}
	require.LessOrEqual(t, cap(l.batches), minBuffer)
	require.Equal(t, minBuffer, l.limit)
}
