package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// slicer is a Shard: the slice of an object is the number in its label "slice" or, by key, at the end of its name. One
// without a number belongs to none.
type slicer struct {
	byKey bool
	cache Sharded // set when Run begins
	of    int     // of the first call of Keep, by Join
	keeps []int
	slow  sync.Map // names of objects whose first Hash takes 10 s: what the decoder has of a watch waits for it
}

func (s *slicer) KeyOnly() bool { return s.byKey }

func (s *slicer) Hash(o *metav1.ObjectMeta) (uint64, bool) {
	if _, slow := s.slow.LoadAndDelete(o.Name); slow {
		time.Sleep(10 * time.Second)
	}
	text := o.Labels["slice"]
	if s.byKey {
		text = o.Name[len(o.Name)-1:]
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

func (s *slicer) Join(cache Sharded) func() {
	s.cache = cache
	cache.Keep(s.of, s.keeps)
	return func() {}
}

// keep is Keep.
func (s *slicer) keep(slices ...int) {
	s.keeps = slices
	s.cache.Keep(s.of, slices)
}

// kept reports whether an object is to be kept.
func (s *slicer) kept(o *metav1.ObjectMeta) bool {
	n, ok := s.Hash(o)
	return !ok || slices.Contains(s.keeps, int(n)%s.of)
}

func label(slice int) string {
	if slice < 0 {
		return "none"
	}
	return fmt.Sprint(slice)
}

// inSlice creates a pod in a slice; -1 stands for none.
func (w *land) inSlice(namespace, name string, slice int) {
	w.Helper()
	p := pod(name)
	p.Namespace, p.Labels = "", map[string]string{"slice": label(slice)}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	_, err := w.pods(namespace).Create(w.Context(), p, metav1.CreateOptions{})
	require.NoError(w, err)
}

// reslice changes the label of a pod.
func (w *land) reslice(namespace, name string, slice int) {
	w.Helper()
	p, err := w.pods(namespace).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	p.Labels = map[string]string{"slice": label(slice), "at": p.ResourceVersion}
	_, err = w.pods(namespace).Update(w.Context(), p, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// TestOnlyAShareIsKept whoever decodes the objects, and whatever they are decoded to.
func TestOnlyAShareIsKept(t *testing.T) {
	t.Run("Resource", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*corev1.Pod]) (*SharedIndexInformer[*corev1.Pod], error) {
			return New(w.ours(t), o)
		})
	})
	t.Run("clientset", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*corev1.Pod]) (*SharedIndexInformer[*corev1.Pod], error) {
			return New[*corev1.Pod](w.theirs.CoreV1().Pods(""), o)
		})
	})
	t.Run("plain lists", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*corev1.Pod]) (*SharedIndexInformer[*corev1.Pod], error) {
			o.DisableWatchList, o.PageSize = true, 2
			return New(w.ours(t), o)
		})
	})
	t.Run("namespaces", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*corev1.Pod]) (*SharedIndexInformer[*corev1.Pod], error) {
			return NewNamespaced(w.ours(t).In, []string{"one", "two"}, o)
		})
	})
	t.Run("unstructured", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*unstructured.Unstructured]) (
			*SharedIndexInformer[*unstructured.Unstructured], error) {
			r, err := NewResource[*unstructured.Unstructured](w.link.Config(), podsResource, ResourceOptions{})
			require.NoError(t, err)
			return New(r, o)
		})
	})
	t.Run("dynamic client", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*unstructured.Unstructured]) (
			*SharedIndexInformer[*unstructured.Unstructured], error) {
			return New[*unstructured.Unstructured](dynamic.NewForConfigOrDie(w.link.Config()).Resource(podsResource), o)
		})
	})
	t.Run("metadata", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*metav1.PartialObjectMetadata]) (
			*SharedIndexInformer[*metav1.PartialObjectMetadata], error) {
			r, err := NewResource[*metav1.PartialObjectMetadata](w.link.Config(), podsResource, ResourceOptions{})
			require.NoError(t, err)
			return New(r, o)
		})
	})
	t.Run("projection", func(t *testing.T) {
		onlyAShare(t, func(w *land, o Options[*corev1.Pod]) (*SharedIndexInformer[string], error) {
			return Project(w.ours(t), func(p *corev1.Pod) (string, error) { return p.Name, nil }, o)
		})
	})
}

func onlyAShare[T Object, V any](t *testing.T, build func(*land, Options[T]) (*SharedIndexInformer[V], error)) {
	inLand(t, func(t *testing.T, w *land) {
		for i := range 8 {
			w.inSlice("one", fmt.Sprint("p", i), i%4)
		}
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := build(w, Options[T]{Shard: s})
		require.NoError(t, err)
		var told []string
		_, err = inf.AddHandler(func(e Event[V]) {
			if e.Type == Updated { // the end of a pod may be one event, or two
				return
			}
			line := fmt.Sprint(e.Type, " ", e.Key.Name)
			if e.Initial {
				line += " initial"
			}
			if e.Left {
				line += " left"
			}
			told = append(told, line)
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		said := func(want ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(told)
			require.Equal(t, append([]string(nil), want...), told)
			told = nil
		}
		run(t, inf)
		synced(t, inf)
		said("Added a initial", "Added b initial", "Added p1 initial", "Added p5 initial")
		lists := inf.Health().Lists

		w.inSlice("one", "q", 2) // others' objects come, change and go
		w.reslice("one", "p2", 2)
		w.delete("one", "p6")
		said()
		w.reslice("one", "p5", 2) // one leaves by a change
		said("Deleted p5")
		w.reslice("one", "p2", 1) // and one comes
		said("Added p2")
		w.reslice("one", "p1", 1)
		w.reslice("one", "p1", -1) // nobody can say whose it is
		said()
		require.Equal(t, lists, inf.Health().Lists)
		require.Equal(t, inf.Health().State, Live)

		before := w.lists()
		s.keep(1, 2) // a slice comes
		require.NoError(t, s.cache.Wait(t.Context(), []int{1, 2}))
		said("Added p5 initial", "Added q initial")
		require.Equal(t, lists, inf.Health().Lists)
		if inf.pageSize == 500 {
			require.Equal(t, len(inf.followed.Load().listWatches), w.lists()-before, "one list of each namespace")
		}
		require.Equal(t, 2, inf.Health().Slices)
		before = w.lists()
		s.keep(2, 1) // nothing changes
		s.keep(2)    // a slice goes
		said("Deleted p2 left")
		w.delete("one", "p5")
		said("Deleted p5")
		w.delete("one", "p2")
		said()
		s.keep()
		said("Deleted q left")
		require.Equal(t, before, w.lists())
		require.Equal(t, []Key{{Namespace: "one", Name: "a"}, {Namespace: "one", Name: "b"},
			{Namespace: "one", Name: "p1"}}, sorted(inf.Keys()))
		_, _, err = inf.Live(t.Context(), Key{Namespace: "one", Name: "q"})
		if _, decodes := any(inf.followed.Load().listWatches[0].reflector.source).(*rawSource); decodes {
			require.ErrorIs(t, err, ErrNotKept)
		}
	}, "one")
}

// lists counts the requests for a list that the informer has made.
func (w *land) lists() (n int) {
	for _, r := range w.link.Requests() {
		if r.Verb == "list" {
			n++
		}
	}
	return n
}

func sorted(keys []Key) []Key {
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// shardScript plays changes of the share between changes of objects, with faults, and compares with a model: what the
// server has, without what is in other slices.
func shardScript(t *testing.T, script []byte) {
	namespaces := []string{"one", "two"}
	inLand(t, func(t *testing.T, w *land) {
		s := &slicer{byKey: len(script)%2 == 1, of: 4, keeps: []int{1}}
		opts := Options[*corev1.Pod]{Shard: s, PageSize: 2, DisableWatchList: len(script)%4 < 2, DetectMutations: true}
		var inf *informerOfPods
		var err error
		switch len(script) % 3 {
		case 0:
			inf, err = New(w.ours(t), opts)
		case 1:
			inf, err = New[*corev1.Pod](w.theirs.CoreV1().Pods(""), opts)
		default:
			inf, err = NewNamespaced(w.ours(t).In, namespaces, opts)
		}
		require.NoError(t, err)
		told, slow := w.listen(inf), &history{inf: inf, rounds: rounds{}, rescoped: true}
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) { slow.handle(e); time.Sleep(time.Second) },
			HandlerOptions{})
		require.NoError(t, err)
		gone := deletions{s: s, deleted: map[types.UID]bool{}}
		_, err = inf.AddHandler(gone.handle, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		for _, op := range script {
			namespace, name, slice := namespaces[op%2], fmt.Sprint("p", op/2%6), int(op/3)%5-1
			p, err := w.pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			exists := err == nil
			switch kind := op / 12; {
			case kind < 7 && !exists:
				w.inSlice(namespace, name, slice)
			case kind < 5:
				w.reslice(namespace, name, slice)
			case kind < 7:
				gone.add(p.UID)
				w.delete(namespace, name)
			case kind < 13:
				var keeps []int
				for i := range 4 {
					if op>>i&1 == 1 {
						keeps = append(keeps, i)
					}
				}
				s.keep(keeps...)
			case kind < 14:
				w.link.CutWatches()
			case kind < 15:
				w.server.Compact()
			case kind < 16:
				w.fail([]string{"", "one", "two"}[op%3], []reconciletest.Fault{nil, forbidden, hang,
					reconciletest.Reset}[op%4])
			case kind < 18:
				w.heal("", "one", "two")
				w.filled(inf, s)
			default:
				time.Sleep(time.Duration(op) * 10 * time.Millisecond)
			}
		}
		w.heal("", "one", "two")
		w.filled(inf, s)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)
		want := w.kept(s, namespaces...)
		require.Len(t, inf.Keys(), len(want), "%v", inf.Keys())
		for _, p := range want {
			held, ok := inf.Get(KeyOf(p))
			require.True(t, ok, "%s is missing", KeyOf(p))
			require.Equal(t, p.ResourceVersion, held.ResourceVersion)
		}
		for _, h := range []*history{told, slow} {
			require.NoError(t, h.folded(want))
			require.NoError(t, h.err())
		}
		require.Empty(t, gone.wrong)
		require.NoError(t, mutations(inf))
	}, namespaces...)
}

// deletions checks that nothing is told to be deleted that has only left, where the slice of an object never changes.
type deletions struct {
	s *slicer

	mu      sync.Mutex
	deleted map[types.UID]bool
	wrong   []string
}

func (d *deletions) add(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted[uid] = true
}

func (d *deletions) handle(e Event[*corev1.Pod]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Type == Deleted && !e.Left && d.s.byKey && !d.deleted[e.UID] {
		d.wrong = append(d.wrong, e.Key.String())
	}
	if e.Left && (e.Type != Deleted || !e.FinalStateUnknown) {
		d.wrong = append(d.wrong, "left "+e.Key.String())
	}
}

func (w *land) heal(namespaces ...string) {
	for _, namespace := range namespaces {
		w.fail(namespace, nil)
	}
}

// kept returns what the server has and a slicer keeps.
func (w *land) kept(s *slicer, namespaces ...string) (all []*corev1.Pod) {
	for _, p := range w.inScope(Scope{Namespaces: namespaces}) {
		if s.kept(&p.ObjectMeta) {
			all = append(all, p)
		}
	}
	return all
}

// filled waits for all slices, and checks that the store has what was there before.
func (w *land) filled(inf *informerOfPods, s *slicer) {
	w.Helper()
	before := w.kept(s, "one", "two")
	ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
	defer cancel()
	require.NoError(w, s.cache.Wait(ctx, s.keeps))
	require.Equal(w, len(s.keeps), inf.Health().Slices)
	for _, p := range before {
		held, ok := inf.Get(KeyOf(p))
		if _, judged := s.Hash(&p.ObjectMeta); judged && s.came(inf, p) {
			require.True(w, ok, "%s is missing", KeyOf(p))
			require.GreaterOrEqual(w, version(held.ResourceVersion), version(p.ResourceVersion))
		}
	}
}

// came reports whether an object is older than the latest list, so that the store has it whatever the watch does.
func (s *slicer) came(inf *informerOfPods, p *corev1.Pod) bool {
	reached := inf.ResourceVersion(p.Namespace)
	return reached != "" && version(p.ResourceVersion) <= version(reached)
}

func TestEverybodyKnowsTheShare(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 31))
		script := make([]byte, 60+seed%12)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { shardScript(t, script) })
	}
}

func FuzzShard(f *testing.F) {
	f.Add([]byte{0, 110, 170, 250, 120, 200, 190, 250})
	f.Fuzz(shardScript)
}

// TestACacheThatListsForASliceIsLive, and complete for those that it has.
func TestACacheThatListsForASliceIsLive(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		for i := range 4 {
			w.inSlice("one", fmt.Sprint("p", i), i)
		}
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		w.fail("", hang)
		s.keep(1, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.cache.Wait(ctx, []int{1}))
		w.inSlice("one", "q", 1)
		w.delete("one", "p1")
		synctest.Wait()
		require.True(t, inf.HasSynced())
		_, held := inf.Get(Key{Namespace: "one", Name: "q"})
		require.True(t, held, "the watch goes on")
		_, held = inf.Get(Key{Namespace: "one", Name: "p1"})
		require.False(t, held)
		require.ErrorIs(t, s.cache.Wait(ctx, []int{2}), context.DeadlineExceeded)
		require.Equal(t, Live, inf.Health().State)
		require.NoError(t, inf.Fresh(""))
		require.True(t, inf.HasSynced())
		require.Equal(t, 1, inf.Health().Slices)
		w.fail("", nil)
		require.NoError(t, s.cache.Wait(t.Context(), []int{2}))
		_, held = inf.Get(Key{Namespace: "one", Name: "p2"})
		require.True(t, held)
	}, "one")
}

// TestAListBesideTheWatchIsOld by the time that it arrives: what the watch has told meanwhile counts.
func TestAListBesideTheWatchIsOld(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		for i := range 4 {
			w.inSlice("one", fmt.Sprint("p", i), 2)
		}
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		told := w.listen(inf)
		run(t, inf)
		synced(t, inf)
		w.fail("", func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
			answer, err := next()
			time.Sleep(10 * time.Second)
			return answer, err
		})
		s.keep(1, 2)
		time.Sleep(time.Second)
		w.delete("one", "p0")
		w.delete("one", "p1")
		w.inSlice("one", "p1", 2) // another one of the name
		w.reslice("one", "p2", 3) // it leaves the share
		w.reslice("one", "p3", 2)
		require.NoError(t, s.cache.Wait(t.Context(), []int{2}))
		synctest.Wait()
		want := w.kept(s, "one")
		require.Len(t, inf.Keys(), len(want), "%v", inf.Keys())
		require.NoError(t, told.folded(want))
		require.NoError(t, told.err())
	}, "one")
}

// TestAnEventIsDecodedBeforeItsSliceComes, and received after: then it has no object, which a list has to bring.
func TestAnEventIsDecodedBeforeItsSliceComes(t *testing.T) {
	for name, lags := range map[string]bool{"and a list is later": false, "and a list is older": true} {
		t.Run(name, func(t *testing.T) {
			inLand(t, func(t *testing.T, w *land) {
				s := &slicer{of: 4, keeps: []int{1}}
				inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
				require.NoError(t, err)
				w.fail("", func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
					answer, err := next()
					answer.Body = twoAtOnce{answer.Body}
					return answer, err
				})
				run(t, inf)
				synced(t, inf)
				old := w.listed("one")
				s.slow.Store("second", nil)
				w.inSlice("one", "first", 2)
				w.inSlice("one", "second", 1)
				time.Sleep(5 * time.Second) // the first is decoded, and the second is not
				w.fail("", func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
					w.fail("", nil)
					answer, err := next()
					if lags {
						answer.Body.Close()
						answer = old
					}
					time.Sleep(10 * time.Second) // the events come in between
					return answer, err
				})
				before := w.lists()
				s.keep(1, 2)
				require.NoError(t, s.cache.Wait(t.Context(), []int{2}))
				_, held := inf.Get(Key{Namespace: "one", Name: "first"})
				require.True(t, held)
				want := 1
				if lags {
					want = 2
				}
				require.Equal(t, want, w.lists()-before)
			}, "one")
		})
	}
}

// TestASliceComesBetweenTwoEvents of one answer, before any list for it has begun.
func TestASliceComesBetweenTwoEvents(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s, Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
			if p.Name == "first" {
				s.keep(1, 2)
			}
			return p, nil
		}})
		require.NoError(t, err)
		w.fail("", func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
			answer, err := next()
			answer.Body = twoAtOnce{answer.Body}
			return answer, err
		})
		run(t, inf)
		synced(t, inf)
		w.inSlice("one", "first", 1)
		w.inSlice("one", "second", 2)
		synctest.Wait()
		require.NoError(t, s.cache.Wait(t.Context(), []int{2}))
		_, held := inf.Get(Key{Namespace: "one", Name: "second"})
		require.True(t, held)
	}, "one")
}

// twoAtOnce is the body of an answer that brings pods first and second at once.
type twoAtOnce struct{ io.ReadCloser }

func (b twoAtOnce) Read(into []byte) (n int, err error) {
	has := func(name string) bool { return bytes.Contains(into[:n], []byte(name)) }
	for err == nil && (n == 0 || has("first") && !has("second")) {
		var more int
		more, err = b.ReadCloser.Read(into[n:])
		n += more
	}
	return n, err
}

// listed is the answer to a list that was asked for now.
func (w *land) listed(namespace string) *http.Response {
	w.Helper()
	list, err := w.pods(namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	list.APIVersion, list.Kind = "v1", "PodList"
	body, err := json.Marshal(list)
	require.NoError(w, err)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{}}
}

// TestARefusedNamespaceKeepsNoSlice from coming to the others.
func TestARefusedNamespaceKeepsNoSlice(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		w.inSlice("one", "p", 2)
		w.fail("two", forbidden)
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := NewNamespaced(w.ours(t).In, []string{"one", "two"}, Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.keep(1, 2)
		require.NoError(t, s.cache.Wait(t.Context(), []int{2}))
		_, held := inf.Get(Key{Namespace: "one", Name: "p"})
		require.True(t, held)
	}, "one", "two")
}

// TestWaitSaysWhatKeepsASlice from coming: of several namespaces, the error of one that has not all of it.
func TestWaitSaysWhatKeepsASlice(t *testing.T) {
	broken := reconciletest.Refuse(apierrors.NewInternalError(fmt.Errorf("no")))
	within := func(t *testing.T, s *slicer) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.cache.Wait(ctx, s.keeps)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return err
	}
	t.Run("of another namespace", func(t *testing.T) {
		inLand(t, func(t *testing.T, w *land) {
			s := &slicer{of: 4, keeps: []int{1}}
			inf, err := NewNamespaced(w.ours(t).In, []string{"one", "two"}, Options[*corev1.Pod]{Shard: s})
			require.NoError(t, err)
			run(t, inf)
			synced(t, inf)
			w.fail("one", broken)
			w.fail("two", hang)
			s.keep(1, 2)
			require.ErrorContains(t, within(t, s), "namespace one")
			w.fail("one", nil)
			time.Sleep(29 * time.Second)
			require.NotContains(t, within(t, s).Error(), "namespace one", "it has all of it by now")
		}, "one", "two")
		inLand(t, func(t *testing.T, w *land) {
			s := &slicer{of: 4, keeps: []int{1}}
			inf, err := NewNamespaced(w.ours(t).In, []string{"one", "two"}, Options[*corev1.Pod]{Shard: s})
			require.NoError(t, err)
			run(t, inf)
			synced(t, inf)
			w.fail("one", hang)
			w.fail("two", broken)
			s.keep(1, 2)
			require.ErrorContains(t, within(t, s), "namespace two")
		}, "one", "two")
	})
	t.Run("of another selection", func(t *testing.T) {
		inLand(t, func(t *testing.T, w *land) {
			s := &slicer{of: 4, keeps: []int{1}}
			inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
			require.NoError(t, err)
			run(t, inf)
			synced(t, inf)
			w.fail("", broken)
			w.rescope(inf, func(s *Scope) { s.LabelSelector = labels.SelectorFromSet(labels.Set{"x": ""}) })
			require.True(t, apierrors.IsInternalError(within(t, s)))
		}, "one")
	})
}

// TestTheNumberOfSlicesChanges: nothing of the old numbers is taken for one of the new, however soon the next call of
// Keep comes.
func TestTheNumberOfSlicesChanges(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		for i := range 8 {
			w.inSlice("one", fmt.Sprint("p", i), i)
		}
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		told := w.listen(inf)
		run(t, inf)
		synced(t, inf)
		require.Len(t, inf.Keys(), 4, "a, b, p1 and p5")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.of = 8
		s.keep(1)
		err = s.cache.Wait(ctx, []int{1})
		require.ErrorIs(t, err, context.Canceled, "it has not been listed")
		require.NotContains(t, err.Error(), "nil", "no list has failed")
		s.keep(1, 2)
		require.Error(t, s.cache.Wait(ctx, []int{1}))
		require.NoError(t, s.cache.Wait(t.Context(), []int{1, 2}))
		synctest.Wait()
		require.Len(t, inf.Keys(), 4, "p1 and p2 are among them, and p5 is not")
		s.keep(2, 5)
		require.NoError(t, s.cache.Wait(t.Context(), []int{2, 5}))
		synctest.Wait()
		want := w.kept(s, "one")
		require.Len(t, want, 4)
		require.Len(t, inf.Keys(), 4)
		require.NoError(t, told.folded(want))
		require.NoError(t, told.err())
		s.cache.Keep(0, nil) // nobody knows any more how many there are
		synctest.Wait()
		require.Len(t, inf.Keys(), 2, "a and b")
		s.cache.Keep(8191, nil)
		require.Panics(t, func() { s.cache.Keep(8192, nil) })
	}, "one")
}

// TestAListIsBeforeThoseThatGo with the old number of slices: what it brings of the new ones stays, though the store
// has it already.
func TestAListIsBeforeThoseThatGo(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		w.inSlice("two", "p", 1)
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := NewNamespaced(w.ours(t).In, []string{"one", "two"}, Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "slow" {
				time.Sleep(20 * time.Second)
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		told := w.listen(inf)
		run(t, inf)
		synced(t, inf)
		w.inSlice("one", "slow", 1) // the store turns to namespace two next, and to the share after that
		time.Sleep(time.Second)
		s.of = 8
		s.keep(1)
		require.NoError(t, s.cache.Wait(t.Context(), []int{1}))
		synctest.Wait()
		_, held := inf.Get(Key{Namespace: "two", Name: "p"})
		require.True(t, held)
		require.NotContains(t, told.lines(), "Deleted p unknown")
	}, "one", "two")
}

// TestAnOldNumberOfSlicesComesBack while the store is busy: there is no slice of a number that is too high now.
func TestAnOldNumberOfSlicesComesBack(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		w.inSlice("one", "p", 3)
		s := &slicer{of: 4, keeps: []int{3}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "slow" {
				time.Sleep(20 * time.Second)
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		w.inSlice("one", "slow", -1)
		synctest.Wait()
		for i := range eras {
			s.cache.Keep(3-i%2, []int{0})
		}
		require.NoError(t, s.cache.Wait(t.Context(), []int{0}))
		synctest.Wait()
		_, held := inf.Get(Key{Namespace: "one", Name: "p"})
		require.False(t, held)
	}, "one")
}

// TestSlicesThatComeAllTheTime do not keep the first of them waiting: each list goes on to its end.
func TestSlicesThatComeAllTheTime(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		for i := range 16 {
			w.inSlice("one", fmt.Sprint("p", i), i)
		}
		s, taken := &slicer{of: 16, keeps: []int{0}}, 0
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s, Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
			taken++
			return p, nil
		}})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		w.fail("", func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
			time.Sleep(10 * time.Second)
			return next()
		})
		before := w.lists()
		keeps := []int{0}
		for i := 1; i < 16; i++ {
			keeps = append(keeps, i)
			s.keep(keeps...)
			time.Sleep(2 * time.Second)
			if i == 6 {
				require.Equal(t, 2, inf.Health().Slices, "the first that came is here")
			}
		}
		require.NoError(t, s.cache.Wait(t.Context(), keeps))
		require.Len(t, inf.Keys(), 18)
		synctest.Wait()
		require.Equal(t, 18, taken, "each list brings only what has come")
		require.LessOrEqual(t, w.lists()-before, 5, "and one list is for all that came during another")
	}, "one")
}

// TestAListForASliceThatFails is told, and the cache remembers nothing of the changes that it is not about to need.
func TestAListForASliceThatFails(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s})
		require.NoError(t, err)
		running, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		done := make(chan error, 1)
		go func() { done <- inf.Run(running) }()
		synced(t, inf)
		w.fail("", forbidden)
		s.keep(1, 2)
		for i := range 200 {
			w.inSlice("one", "p", i%4)
			time.Sleep(time.Second)
			w.delete("one", "p")
			w.inSlice("one", fmt.Sprint("p", i), i%4)
		}
		h := inf.Health()
		require.Equal(t, Live, h.State)
		require.True(t, apierrors.IsForbidden(h.LastError), "%v", h.LastError)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = s.cache.Wait(ctx, []int{2})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		stop()
		require.NoError(t, <-done)
		require.Less(t, len(inf.followed.Load().listWatches[0].reflector.filling.told), 100)
	}, "one")
}

// TestASliceGoesAndComesDuringAList: what the list does not have has left, and was not deleted.
func TestASliceGoesAndComesDuringAList(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		w.inSlice("one", "p1", 1)
		w.inSlice("one", "p2", 2)
		s := &slicer{byKey: true, of: 4, keeps: []int{1, 2}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s, DisableWatchList: true})
		require.NoError(t, err)
		var gone []string
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
			switch {
			case e.Key.Name == "slow1":
				time.Sleep(20 * time.Second)
			case e.Type == Deleted:
				gone = append(gone, fmt.Sprint(e.Key.Name, " ", e.Left))
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		w.inSlice("one", "slow1", 1)
		time.Sleep(time.Second)
		s.keep(1)
		inf.Relist("", nil)
		time.Sleep(5 * time.Second)
		w.fail("", func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
			time.Sleep(time.Minute)
			return next()
		})
		s.keep(1, 2)
		require.NoError(t, s.cache.Wait(t.Context(), []int{1, 2}))
		require.Contains(t, gone, "p2 true")
		require.NotContains(t, gone, "p2 false")
		_, held := inf.Get(Key{Namespace: "one", Name: "p2"})
		require.True(t, held)
		w.fail("", nil)
		w.link.DelayWatches("pods", reconciletest.Never)
		w.delete("one", "p1")
		list := inf.Relist("", nil)
		for inf.Health().Listed < list {
			time.Sleep(time.Second)
		}
		require.Contains(t, gone, "p1 false", "it was deleted")
	}, "one")
}

// TestAnInvalidObjectLeavesWithItsSlice.
func TestAnInvalidObjectLeavesWithItsSlice(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		w.inSlice("one", "p", 1)
		s := &slicer{of: 4, keeps: []int{1}}
		inf, err := New(w.ours(t), Options[*corev1.Pod]{Shard: s, Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
			if p.Name == "p" {
				return nil, fmt.Errorf("no")
			}
			return p, nil
		}})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		key := Key{Namespace: "one", Name: "p"}
		require.Error(t, inf.Invalid(key))
		s.keep(2)
		synctest.Wait()
		require.NoError(t, inf.Invalid(key))
		time.Sleep(time.Hour)
		require.NoError(t, inf.Invalid(key), "it is tried again, and is another replica's")
		s.keep(1)
		require.NoError(t, s.cache.Wait(t.Context(), []int{1}))
		require.Error(t, inf.Invalid(key))
	}, "one")
}

// TestAShardIsForOneKindOfCache.
func TestAShardIsForOneKindOfCache(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		_, err := NewReferenced(w.ours(t).In, Options[*corev1.Pod]{Shard: &slicer{}})
		require.ErrorContains(t, err, "Options.Shard is set")
	})
}
