package informer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// land is an API server of several namespaces, as an informer's client finds it, and faults of single namespaces.
type land struct {
	*testing.T
	server *reconciletest.Server
	pods   func(namespace string) typedcorev1.PodInterface // of somebody whose requests have no faults
	link   *reconciletest.Link                             // the informer's way
	theirs *kubernetes.Clientset                           // over the link

	mu     sync.Mutex
	faults map[string]reconciletest.Fault // guarded by mu; of lists and watches of pods, by namespace
}

// inLand runs fn in virtual time, with pods a and b in each of the namespaces.
func inLand(t *testing.T, fn func(t *testing.T, w *land), namespaces ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: namespaces})
		w := &land{
			T: t, server: server, pods: kubernetes.NewForConfigOrDie(server.Config()).CoreV1().Pods,
			link: server.Link(), faults: map[string]reconciletest.Fault{},
		}
		w.theirs = kubernetes.NewForConfigOrDie(w.link.Config())
		w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.faults[r.Namespace]
		})
		for _, ns := range namespaces {
			w.create(ns, "a")
			w.create(ns, "b")
		}
		fn(t, w)
	})
}

// ours makes a client of pods over the link.
func (w *land) ours(t *testing.T) *Resource[*corev1.Pod] {
	pods, err := NewResource[*corev1.Pod](w.link.Config(), podsResource, ResourceOptions{})
	require.NoError(t, err)
	return pods
}

// fail gives the requests about a namespace a fault; nil takes it away. Watches that are open are not requests.
func (w *land) fail(namespace string, f reconciletest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[namespace] = f
}

func hang(ctx context.Context, _ func() (*http.Response, error)) (*http.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

var forbidden = reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
	fmt.Errorf("no")))

func (w *land) create(namespace, name string, tags ...string) {
	w.Helper()
	p := pod(name, tags...)
	p.Namespace = ""
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	_, err := w.pods(namespace).Create(w.Context(), p, metav1.CreateOptions{})
	require.NoError(w, err)
}

func (w *land) change(namespace, name string, tags ...string) {
	w.Helper()
	p, err := w.pods(namespace).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	p.Labels = map[string]string{"change": p.ResourceVersion}
	for _, tag := range tags {
		p.Labels[tag] = ""
	}
	_, err = w.pods(namespace).Update(w.Context(), p, metav1.UpdateOptions{})
	require.NoError(w, err)
}

func (w *land) delete(namespace, name string) {
	w.Helper()
	now := int64(0)
	require.NoError(w, w.pods(namespace).Delete(w.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// inScope returns the pods of the server that belong to a scope.
func (w *land) inScope(s Scope) (all []*corev1.Pod) {
	w.Helper()
	namespaces := s.Namespaces
	for _, namespace := range namespaces {
		list, err := w.pods(namespace).List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err)
		for i := range list.Items {
			p := &list.Items[i]
			if s.LabelSelector == nil || s.LabelSelector.Matches(labels.Set(p.Labels)) {
				all = append(all, p)
			}
		}
	}
	return all
}

// asked returns the namespaces that the informer has made requests with that verb for, in order, each once.
func (w *land) asked(verb string) (namespaces []string) {
	for _, r := range w.link.Requests() {
		if r.Verb == verb {
			namespaces = append(namespaces, r.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// namespaced makes an informer for namespaces, with a handler.
func (w *land) namespaced(opts Options[*corev1.Pod], namespaces ...string) (*informerOfPods, *history) {
	w.Helper()
	opts.DetectMutations = true
	inf, err := NewNamespaced[*corev1.Pod](w.theirs.CoreV1().Pods, append([]string{}, namespaces...), opts)
	require.NoError(w, err)
	return inf, w.listen(inf)
}

func (w *land) listen(inf *informerOfPods) *history {
	w.Helper()
	told := &history{inf: inf, rounds: rounds{}, rescoped: true}
	_, err := inf.AddHandler(told.handle, HandlerOptions{})
	require.NoError(w, err)
	return told
}

// agrees checks that an informer and its handlers know what the server has in the informer's scope, and nothing else.
func (w *land) agrees(inf *informerOfPods, handlers ...*history) {
	w.Helper()
	want := w.inScope(inf.Scope())
	require.Len(w, slices.Collect(inf.All()), len(want))
	for _, p := range want {
		held, ok := inf.Get(KeyOf(p))
		require.True(w, ok, "%s is missing; %s", KeyOf(p), inf.Health())
		require.Equal(w, p.ResourceVersion, held.ResourceVersion, "%s", KeyOf(p))
	}
	for _, told := range handlers {
		require.NoError(w, told.folded(want))
		require.NoError(w, told.err())
	}
	if inf.writer.detector != nil {
		require.NoError(w, mutations(inf))
	}
}

func (w *land) rescope(inf *informerOfPods, change func(*Scope)) {
	w.Helper()
	s := inf.Scope()
	change(&s)
	require.NoError(w, inf.Rescope(s))
}

func TestSeveralNamespacesInOneCache(t *testing.T) {
	for _, client := range []string{"typed", "REST"} {
		t.Run(client, func(t *testing.T) {
			inLand(t, func(t *testing.T, w *land) {
				var inf *informerOfPods
				var err error
				if client == "typed" {
					inf, err = NewNamespaced[*corev1.Pod](w.theirs.CoreV1().Pods, []string{"two", "one"},
						Options[*corev1.Pod]{})
				} else {
					inf, err = NewNamespaced(w.ours(t).In, []string{"two", "one"}, Options[*corev1.Pod]{})
				}
				require.NoError(t, err)
				require.Equal(t, Scope{Namespaces: []string{"one", "two"}}, inf.Scope())
				byName, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Name) })
				require.NoError(t, err)
				told := w.listen(inf)
				w.create("one", "c", "app")
				w.create("two", "c", "app")
				run(t, inf)
				synced(t, inf)
				synctest.Wait()
				require.Equal(t, []string{"one", "two"}, w.asked("watch"), "the third is nobody's business")
				w.agrees(inf, told)
				require.Len(t, told.lines(), 6)
				require.Len(t, slices.Collect(byName.Get("a")), 2, "an index is over all of them")

				w.change("one", "a")
				w.delete("two", "a")
				w.create("two", "d")
				w.create("three", "d")
				time.Sleep(time.Second)
				lines := told.lines()
				slices.Sort(lines)
				require.Equal(t, []string{"Added d", "Deleted a", "Updated a"}, slices.Compact(lines),
					"a pod on its way out is Updated first, unless it is merged")
				w.agrees(inf, told)
				require.Equal(t, Live, inf.Health().State)
				require.Equal(t, Live, inf.HealthIn("one").State)
				require.Empty(t, inf.HealthIn("three").State, "it is not followed")

				live, exists, err := inf.Live(t.Context(), Key{Namespace: "two", Name: "d"})
				require.NoError(t, err)
				require.True(t, exists)
				require.Equal(t, "two", live.Namespace)
				_, exists, err = inf.Live(t.Context(), Key{Namespace: "three", Name: "d"})
				require.NoError(t, err)
				require.False(t, exists, "it is out of scope")
			}, "one", "two", "three")
		})
	}
}

func TestVersionsAreReachedInEachNamespace(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, _ := w.namespaced(Options[*corev1.Pod]{}, "one", "two")
		require.Empty(t, inf.ResourceVersion("one"))
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		before := inf.ResourceVersion("two")
		w.change("one", "a")
		now := fmt.Sprint(w.server.Version())
		require.NoError(t, inf.WaitForResourceVersion(t.Context(), "one", now))
		require.Equal(t, now, inf.ResourceVersion("one"))
		require.Equal(t, before, inf.ResourceVersion("two"), "nothing has happened there")
		require.Equal(t, before, inf.ResourceVersion(metav1.NamespaceAll), "the lowest")
		require.Empty(t, inf.ResourceVersion("three"))
		require.ErrorIs(t, inf.WaitForResourceVersion(t.Context(), "three", now), ErrOutOfScope)

		all := make(chan error, 1)
		go func() { all <- inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, now) }()
		synctest.Wait()
		require.Empty(t, all, "the other namespace is behind")
		w.change("two", "a")
		require.NoError(t, <-all)

		leaving := make(chan error, 1)
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { leaving <- inf.WaitForResourceVersion(hour, "two", "1000000") }()
		synctest.Wait()
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"one"} })
		require.ErrorIs(t, <-leaving, ErrOutOfScope)
	}, "one", "two")
}

// A namespace that is refused stops nobody else, and starts by itself.
func TestOneNamespaceIsRefused(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		w.fail("two", forbidden)
		inf, told := w.namespaced(Options[*corev1.Pod]{Name: "pods"}, "one", "two", "three")
		run(t, inf)
		time.Sleep(time.Minute)
		require.False(t, inf.HasSynced())
		require.Equal(t, Live, inf.HealthIn("one").State)
		require.Equal(t, Live, inf.HealthIn("three").State)
		require.Equal(t, Denied, inf.Health().State)
		require.ErrorContains(t, inf.Health().LastError, "namespace two: ")
		require.True(t, apierrors.IsForbidden(inf.Health().LastError))
		require.Equal(t, 4, inf.Len())
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := inf.WaitForSync(waiting)
		require.ErrorContains(t, err, "namespace two: ")
		require.True(t, apierrors.IsForbidden(err))
		require.NoError(t, inf.Fresh("one"))
		require.True(t, apierrors.IsForbidden(inf.Fresh("two")))
		require.Error(t, inf.Fresh(metav1.NamespaceAll))
		require.NoError(t, inf.Fresh("elsewhere"))
		w.change("one", "a")
		synctest.Wait()
		require.Len(t, told.lines(), 5)

		w.fail("two", nil)
		synced(t, inf)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)
		w.agrees(inf, told)
	}, "one", "two", "three")
}

// What happens to one namespace's versions, lists and watches is nothing to the others.
func TestNamespacesAreListedAlone(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, told := w.namespaced(Options[*corev1.Pod]{}, "one", "two")
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		told.lines()
		lists := inf.HealthIn("one").Lists

		// 410 in one of them: the watch of the other is not disturbed, and the sweep leaves its objects where they are.
		w.fail("two", hang)
		w.link.CutWatches()
		time.Sleep(10 * time.Second)
		w.delete("two", "a")
		w.server.Compact()
		w.fail("two", nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"Deleted a unknown"}, told.lines())
		require.Equal(t, lists, inf.HealthIn("one").Lists, "it resumed")
		require.Greater(t, inf.HealthIn("two").Lists, lists)
		w.agrees(inf, told)

		listed := inf.HealthIn("two").Listed
		number := inf.Relist("two", nil)
		require.Less(t, listed, number)
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, inf.HealthIn("two").Listed, number)
		require.Equal(t, lists, inf.HealthIn("one").Lists)
		require.Less(t, inf.Health().Listed, number)
		number = inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, inf.Health().Listed, number)
		require.Empty(t, told.lines())
	}, "one", "two")
}

func TestOneNamespaceIsRewound(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, _ := w.namespaced(Options[*corev1.Pod]{}, "one", "two")
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		backup := w.server.Version()
		w.change("one", "a")
		w.change("two", "a")
		w.delete("two", "b")
		synctest.Wait()
		future := inf.ResourceVersion("two")
		waiting := make(chan error, 1)
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { waiting <- inf.WaitForResourceVersion(hour, "two", future+"0") }()
		synctest.Wait()     // it waits before the cluster goes back
		w.fail("one", hang) // it does not notice
		w.server.Restore(backup)
		inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Minute)
		require.Equal(t, 1, inf.HealthIn("two").Rewinds)
		require.Zero(t, inf.HealthIn("one").Rewinds)
		require.ErrorIs(t, <-waiting, ErrRewound)
		require.True(t, kube.Older(inf.ResourceVersion("two"), future))
		two := Scope{Namespaces: []string{"two"}}
		for _, p := range w.inScope(two) {
			held, _ := inf.Get(KeyOf(p))
			require.Equal(t, p.ResourceVersion, held.ResourceVersion)
		}
		w.fail("one", nil)
		inf.Relist("one", nil)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 2, inf.Health().Rewinds)
		w.agrees(inf)
	}, "one", "two")
}

func TestNamespacesComeAndGo(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, told := w.namespaced(Options[*corev1.Pod]{}, "one", "two")
		inline := &history{inf: inf, rounds: rounds{}, rescoped: true}
		var left []string
		_, err := inf.AddHandler(inline.handle, HandlerOptions{Inline: true, Reached: func(namespace, version string) {
			if version == "" {
				left = append(left, namespace)
			}
		}})
		require.NoError(t, err)
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		told.lines()
		inline.lines()
		first := inf.Synced()

		w.fail("three", reconciletest.Delay(time.Second, 0))
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"three", "one"} })
		require.ElementsMatch(t, []string{"Deleted a unknown", "Deleted b unknown"}, inline.lines(),
			"when Rescope returns they have gone")
		require.Equal(t, []string{"two"}, left)
		_, held := inf.Get(Key{Namespace: "two", Name: "a"})
		require.False(t, held)
		require.False(t, inf.HasSynced())
		require.NotEqual(t, first, inf.Synced())
		w.fail("three", nil)
		synced(t, inf)
		synctest.Wait()
		require.Len(t, told.lines(), 4)
		require.Equal(t, []string{"Added a initial", "Added b initial"}, inline.lines())
		w.agrees(inf, told, inline)
		w.change("two", "a")
		w.change("three", "a")
		synctest.Wait()
		require.Equal(t, []string{"Updated a"}, told.lines(), "nobody watches the other any more")

		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"two", "one"} })
		synced(t, inf)
		synctest.Wait()
		w.agrees(inf, told, inline)
		lists := inf.Health().Lists
		w.rescope(inf, func(*Scope) {})
		synctest.Wait()
		require.True(t, inf.HasSynced())
		require.Equal(t, lists, inf.Health().Lists, "nothing has changed")

		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{metav1.NamespaceAll} })
		synced(t, inf)
		synctest.Wait()
		require.Equal(t, 6, inf.Len())
		require.Equal(t, Live, inf.HealthIn("three").State)
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"two"} })
		synced(t, inf)
		synctest.Wait()
		w.agrees(inf, told, inline)
	}, "one", "two", "three")
}

// An informer may follow no namespace, at first and later: it is synced, knows of nothing, and asks nobody.
func TestNoNamespaceIsFollowed(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, told := w.namespaced(Options[*corev1.Pod]{MaxStaleness: 2 * time.Minute})
		require.Equal(t, Listing, inf.Health().State)
		run(t, inf)
		nothing := func() {
			t.Helper()
			synctest.Wait()
			require.True(t, inf.HasSynced())
			require.Equal(t, Live, inf.Health().State)
			require.NoError(t, inf.Fresh(metav1.NamespaceAll))
			require.Empty(t, inf.ResourceVersion(metav1.NamespaceAll))
			require.Empty(t, inf.HealthIn("one").State)
			require.Empty(t, inf.Scope().Namespaces)
			require.NotNil(t, inf.Scope().Namespaces)
			w.agrees(inf, told)
		}
		nothing()
		time.Sleep(time.Hour)
		nothing()
		require.Empty(t, w.asked("list"))

		w.rescope(inf, func(s *Scope) { s.Namespaces = append(s.Namespaces, "one") })
		synced(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"Added a initial", "Added b initial"}, told.lines())
		w.rescope(inf, func(s *Scope) { s.Namespaces = s.Namespaces[:0] })
		nothing()
		require.ElementsMatch(t, []string{"Deleted a unknown", "Deleted b unknown"}, told.lines())
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{metav1.NamespaceAll} })
		synced(t, inf)
		synctest.Wait()
		w.agrees(inf, told)
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{} })
		nothing()
	}, "one", "two")
}

func TestSelectorsChange(t *testing.T) {
	red, blue := labels.SelectorFromSet(labels.Set{"red": ""}), labels.SelectorFromSet(labels.Set{"blue": ""})
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			inLand(t, func(t *testing.T, w *land) {
				w.create("one", "r", "red")
				w.create("one", "rb", "red", "blue")
				w.create("one", "bl", "blue")
				inf, err := New[*corev1.Pod](w.theirs.CoreV1().Pods("one"),
					Options[*corev1.Pod]{LabelSelector: red, DisableWatchList: !streaming})
				require.NoError(t, err)
				told := w.listen(inf)
				run(t, inf)
				synced(t, inf)
				synctest.Wait()
				require.ElementsMatch(t, []string{"Added r initial", "Added rb initial"}, told.lines())

				w.fail("one", hang)
				require.NoError(t, inf.Rescope(Scope{LabelSelector: blue}))
				time.Sleep(time.Second)
				require.Equal(t, 2, inf.Len(), "as long as nothing else is known")
				require.Equal(t, Listing, inf.Health().State)
				require.ErrorContains(t, inf.Fresh(metav1.NamespaceAll), "no complete list yet")
				w.fail("one", nil)
				synced(t, inf)
				synctest.Wait()
				require.ElementsMatch(t, []string{"Added bl initial", "Deleted r unknown"}, told.lines(),
					"what is selected as before is no news")
				require.Equal(t, blue, inf.Scope().LabelSelector)

				require.NoError(t, inf.Rescope(Scope{FieldSelector: fields.OneTermEqualSelector("metadata.name", "r")}))
				synced(t, inf)
				synctest.Wait()
				require.ElementsMatch(t, []string{"Added r initial", "Deleted bl unknown", "Deleted rb unknown"},
					told.lines())
				w.change("one", "r")
				w.change("one", "a")
				synctest.Wait()
				require.Equal(t, []string{"Updated r"}, told.lines())
				require.NoError(t, told.err())
			}, "one")
		})
	}
}

// How far the store had got with another selection says nothing of what is selected now.
func TestAVersionIsReachedOfWhatIsSelected(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		x, y := labels.SelectorFromSet(labels.Set{"x": ""}), labels.SelectorFromSet(labels.Set{"y": ""})
		w.create("one", "y0", "y")
		inf, _ := w.namespaced(Options[*corev1.Pod]{LabelSelector: x}, "one")
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		now := inf.ResourceVersion("one")
		require.NotEmpty(t, now)
		waits := make(chan error, 1)
		inf.token <- struct{}{}
		w.create("one", "x0", "x") // which is on its way to the store when the selection changes
		synctest.Wait()
		<-inf.token
		w.fail("one", hang)
		w.rescope(inf, func(s *Scope) { s.LabelSelector = y })
		go func() { waits <- inf.WaitForResourceVersion(t.Context(), "one", now) }()
		time.Sleep(time.Second)
		require.Empty(t, inf.ResourceVersion("one"))
		require.Empty(t, waits)
		w.fail("one", nil)
		require.NoError(t, <-waits)
		_, held := inf.Get(Key{Namespace: "one", Name: "y0"})
		require.True(t, held)
	}, "one")
}

// Whatever a namespace's list-watch is at, taking it away does not wait, and Run ends at once.
func TestANamespaceIsTakenAwayInEveryPhase(t *testing.T) {
	for name, fault := range map[string]reconciletest.Fault{
		"listing": hang, "refused": forbidden, "answering slowly": reconciletest.Delay(0, time.Second),
		"backing off": reconciletest.Reset, "live": nil,
		"busy": reconciletest.Refuse(apierrors.NewTooManyRequests("later", 3600)),
	} {
		for _, streaming := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streaming=%t", name, streaming), func(t *testing.T) {
				inLand(t, func(t *testing.T, w *land) {
					w.fail("two", fault)
					inf, told := w.namespaced(Options[*corev1.Pod]{DisableWatchList: !streaming,
						VerifyEvery: time.Minute}, "one", "two")
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- inf.Run(ctx) }()
					time.Sleep(500 * time.Millisecond)
					began := time.Now()
					w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"one"} })
					require.Zero(t, time.Since(began))
					synctest.Wait()
					require.True(t, inf.HasSynced(), "the rest is complete")
					require.Equal(t, Live, inf.Health().State)
					w.agrees(inf, told)
					time.Sleep(time.Minute)
					w.agrees(inf, told)
					began = time.Now()
					cancel()
					require.NoError(t, <-done)
					require.Zero(t, time.Since(began))
				}, "one", "two")
			})
		}
	}
}

// A handler that joins while a namespace is still being listed has its first state when that is complete.
func TestAHandlerJoinsWhileANamespaceIsListed(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, told := w.namespaced(Options[*corev1.Pod]{}, "one")
		run(t, inf)
		synced(t, inf)
		w.fail("two", hang)
		w.rescope(inf, func(s *Scope) { s.Namespaces = append(s.Namespaces, "two") })
		late := &history{inf: inf, rounds: rounds{}, rescoped: true}
		joined, err := inf.AddHandler(late.handle, HandlerOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.ElementsMatch(t, []string{"Added a initial", "Added b initial"}, late.lines())
		require.False(t, closed(joined.Synced()))
		w.change("one", "a")
		w.create("one", "c")
		synctest.Wait()
		require.Equal(t, []string{"Updated a", "Added c"}, late.lines(), "what is new there is new")
		w.fail("two", nil)
		<-joined.Synced()
		synctest.Wait()
		require.Equal(t, []string{"Added a initial", "Added b initial"}, late.lines())
		w.agrees(inf, told, late)
	}, "one", "two")
}

// A list that was under way with the old selectors, and arrives afterwards, is not what was asked for.
func TestAnOldListDoesNotCompleteANewScope(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.onWatch = silence
			asked := make(chan struct{})
			p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				if opts.LabelSelector == "" {
					<-asked // whatever becomes of ctx
				} else {
					time.Sleep(time.Second)
				}
				return p.podAPI.List(context.WithoutCancel(ctx), opts)
			}
			run(t, inf)
			synctest.Wait()
			inf.token <- struct{}{} // nothing is applied yet
			close(asked)
			synctest.Wait()
			<-inf.token
			require.NoError(t, inf.Rescope(Scope{LabelSelector: labels.SelectorFromSet(labels.Set{"x": ""})}))
			synctest.Wait()
			require.False(t, inf.HasSynced())
			synced(t, inf)
			synctest.Wait()
			require.Zero(t, inf.Len())
			told.lines()
		})
}

func TestRescopeSaysWhatIsWrong(t *testing.T) {
	nothing := Scope{Namespaces: []string{"one"}}
	inLand(t, func(t *testing.T, w *land) {
		inf, _ := w.namespaced(Options[*corev1.Pod]{Name: "pods"}, "one")
		many := func(names ...string) Scope { return Scope{Namespaces: names} }
		for text, s := range map[string]Scope{
			"its Namespaces are nil":                  {},
			`namespace "one" is given twice`:          many("one", "two", "one"),
			`stands beside namespace "one"`:           many("one", metav1.NamespaceAll),
			`"a/b" cannot be the name of a namespace`: many("a/b"),
			"the label selector selects nothing":      {Namespaces: []string{"one"}, LabelSelector: labels.Nothing()},
			"the field selector selects nothing":      {Namespaces: []string{"one"}, FieldSelector: fields.Nothing()},
		} {
			err := inf.Rescope(s)
			require.ErrorIs(t, err, ErrScope, text)
			require.ErrorContains(t, err, text)
			require.ErrorContains(t, err, "informer pods: Rescope")
			require.Equal(t, nothing, inf.Scope())
			if len(s.Namespaces) != 1 || s.LabelSelector == nil && s.FieldSelector == nil {
				_, err = NewNamespaced[*corev1.Pod](w.theirs.CoreV1().Pods, s.Namespaces, Options[*corev1.Pod]{})
				require.ErrorIs(t, err, ErrScope, text)
			}
		}
		_, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{LabelSelector: labels.Nothing()})
		require.ErrorIs(t, err, ErrScope)
		one, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
		require.NoError(t, err)
		require.ErrorIs(t, one.Rescope(many("one")), ErrScope)
		require.NoError(t, one.Rescope(Scope{}))

		var none func(string) typedcorev1.PodInterface
		known := func(namespace string) *podAPI {
			require.Equal(t, "one", namespace, "nobody follows it")
			return newPodAPI()
		}
		nobody, err := NewNamespaced[*corev1.Pod](known, []string{}, Options[*corev1.Pod]{})
		require.NoError(t, err)
		require.NoError(t, nobody.Rescope(many("one")))
		require.NoError(t, nobody.Rescope(Scope{Namespaces: []string{}}))
		for _, namespaces := range [][]string{{"one"}, {}} {
			_, err = NewNamespaced[*corev1.Pod](none, namespaces, Options[*corev1.Pod]{})
			require.ErrorContains(t, err, "the function that makes the clients is nil")
		}
		_, err = NewNamespaced[*corev1.Pod](func(string) *podAPI { return nil }, []string{"one"},
			Options[*corev1.Pod]{})
		require.ErrorContains(t, err, "namespace one: the client is nil")

		third, _ := w.namespaced(Options[*corev1.Pod]{}, "two")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, third.Run(ctx))
		require.ErrorIs(t, third.Rescope(many("one")), ErrStopped)
	}, "one", "two")
}

// A client that does not keep to its namespace is found out, before it undoes what others do.
func TestObjectsOfAnotherNamespace(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, err := NewNamespaced[*corev1.Pod](
			func(string) typedcorev1.PodInterface { return w.pods(metav1.NamespaceAll) }, []string{"one", "two"},
			Options[*corev1.Pod]{})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(time.Minute)
		require.False(t, inf.HasSynced())
		require.ErrorContains(t, inf.Health().LastError, "object two/a in the list or watch of namespace one")
	}, "one", "two")
}

// What a namespace that has left is stuck in is nobody else's business, nor is what it had on its way to the store.
func TestANamespaceThatIsStuckMayLeave(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		release := make(chan struct{})
		stuck := sync.OnceFunc(func() { <-release })
		inf, err := NewNamespaced(w.ours(t).In, []string{"one", "two"}, Options[*corev1.Pod]{
			Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
				if p.Name == "stuck" {
					stuck()
				}
				return p, nil
			}})
		require.NoError(t, err)
		told := w.listen(inf)
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		leaves := inf.followed.Load().of(part{namespace: "one"})
		busy := make(chan struct{})
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "busy" && e.Type == Added {
				<-busy
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		w.create("one", "busy")
		synctest.Wait()
		w.create("one", "waits")
		w.create("one", "stuck")
		synctest.Wait()
		rescoped := make(chan struct{})
		go func() {
			defer close(rescoped)
			w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"two"} })
		}()
		synctest.Wait()
		require.NotEmpty(t, leaves.fifo.steps)
		close(busy)
		<-rescoped
		synctest.Wait()
		require.Empty(t, leaves.fifo.steps, "nothing keeps the objects alive")
		close(release)
		synctest.Wait()
		require.Empty(t, leaves.fifo.steps, "nor does what comes too late")
		w.agrees(inf, told)
	}, "one", "two")
}

// What could not be taken in one namespace is not forgotten when another is listed, but with its own.
func TestWhatIsRejectedBelongsToItsNamespace(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, _ := w.namespaced(Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
			if p.Name == "bad" {
				return nil, errPicky
			}
			return p, nil
		}}, "one", "two")
		w.create("one", "bad")
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		number := inf.Relist("two", nil)
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, inf.HealthIn("two").Listed, number)
		require.ErrorIs(t, inf.Invalid(Key{Namespace: "one", Name: "bad"}), errPicky)
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"two"} })
		require.NoError(t, inf.Invalid(Key{Namespace: "one", Name: "bad"}))
		require.Zero(t, inf.Health().Rejected)
	}, "one", "two")
}

// In one namespace of two: the other is neither blamed nor listed.
func TestNamespacesAreVerifiedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxies := map[string]*proxy{"one": {podAPI: newPodAPI()}, "two": {podAPI: newPodAPI()}}
		in := func(namespace, name string) *corev1.Pod {
			p := pod(name)
			p.Namespace = namespace
			return p
		}
		for namespace, p := range proxies {
			p.NoTimeout = true
			p.Create(in(namespace, "a"))
		}
		inf, err := NewNamespaced[*corev1.Pod](func(namespace string) *proxy { return proxies[namespace] },
			[]string{"one", "two"},
			Options[*corev1.Pod]{DisableWatchList: true, VerifyEvery: time.Hour})
		require.NoError(t, err)
		proxies["two"].lossy(0)
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		proxies["two"].Create(in("two", "lost"))
		proxies["one"].Create(in("one", "b"))
		lists := inf.HealthIn("one").Lists
		for range 90 {
			for _, p := range proxies {
				p.Bookmark()
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		require.Equal(t, 1, inf.Health().Differences)
		_, held := inf.Get(Key{Namespace: "two", Name: "lost"})
		require.True(t, held)
		require.Equal(t, lists, inf.HealthIn("one").Lists)
	})
}

// scopeScript plays changes of the scope between changes of what is in it, with faults, and compares with what the
// server has in the scope in the end.
func scopeScript(t *testing.T, script []byte) {
	namespaces := []string{"one", "two", "three"}
	selectors := []labels.Selector{nil, labels.SelectorFromSet(labels.Set{"red": ""}),
		labels.SelectorFromSet(labels.Set{"blue": ""})}
	inLand(t, func(t *testing.T, w *land) {
		inf, told := w.namespaced(Options[*corev1.Pod]{PageSize: 2, DisableWatchList: len(script)%2 == 1}, "one", "two")
		inline, slow, late := &history{inf: inf, rounds: rounds{}, rescoped: true},
			&history{inf: inf, rounds: rounds{}, rescoped: true}, &history{}
		_, err := inf.AddHandler(inline.handle, HandlerOptions{Inline: true})
		require.NoError(t, err)
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) { slow.handle(e); time.Sleep(time.Second) },
			HandlerOptions{})
		require.NoError(t, err)
		byNamespace, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Namespace) })
		require.NoError(t, err)
		run(t, inf)
		for i, op := range script {
			namespace, name := namespaces[op%3], string(rune('a'+op/3%4))
			var tags []string
			if op%2 == 0 {
				tags = append(tags, "red")
			}
			if op%5 < 2 {
				tags = append(tags, "blue")
			}
			_, err := w.pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			exists := err == nil
			switch kind := op / 12; {
			case kind < 9 && !exists:
				w.create(namespace, name, tags...)
			case kind < 6:
				w.change(namespace, name, tags...)
			case kind < 9:
				w.delete(namespace, name)
			case kind < 13:
				w.rescope(inf, func(s *Scope) {
					if i := slices.Index(s.Namespaces, namespace); i >= 0 {
						s.Namespaces = slices.Delete(s.Namespaces, i, i+1)
					} else {
						s.Namespaces = append(s.Namespaces, namespace)
					}
				})
				for ns := range namespaces {
					if scope := inf.Scope(); !slices.Contains(scope.Namespaces, namespaces[ns]) {
						require.Empty(t, slices.Collect(byNamespace.Get(namespaces[ns])),
							"what is out of scope has gone")
					}
				}
			case kind < 15:
				w.rescope(inf, func(s *Scope) { s.LabelSelector = selectors[op%3] })
			case kind < 16:
				w.link.CutWatches()
			case kind < 17:
				w.server.Compact()
			case kind < 18:
				w.fail(namespace, []reconciletest.Fault{nil, forbidden, hang, reconciletest.Reset}[op%4])
			default:
				time.Sleep(time.Duration(op) * 20 * time.Millisecond)
			}
			if i == len(script)/2 {
				late = w.listen(inf)
			}
		}
		for _, namespace := range namespaces {
			w.fail(namespace, nil)
		}
		synced(t, inf)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		w.agrees(inf, told, inline, slow)
		if len(script) > 0 {
			w.agrees(inf, late)
		}
		require.Equal(t, Live, inf.Health().State)
		require.ElementsMatch(t, inf.Scope().Namespaces, func() (live []string) {
			for _, namespace := range namespaces {
				if inf.HealthIn(namespace).State == Live {
					live = append(live, namespace)
				}
			}
			return live
		}())
	}, namespaces...)
}

func TestEverybodyKnowsTheScope(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 30))
		script := make([]byte, 60+seed%2)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		scopeScript(t, script)
	}
}

func FuzzScope(f *testing.F) {
	f.Add([]byte{0, 110, 170, 250, 120, 200, 190, 250})
	f.Fuzz(scopeScript)
}

// What is in scope before and after a Rescope stays, whatever list-watch follows it: nobody is told it was deleted.
func TestWhatStaysInScopeIsNotDeleted(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inLand(t, func(t *testing.T, w *land) {
			inf, told := w.namespaced(Options[*corev1.Pod]{DisableWatchList: plain}, "one", "two")
			run(t, inf)
			synced(t, inf)
			synctest.Wait()
			told.lines()
			w.fail("", reconciletest.Delay(time.Second, 0))
			w.rescope(inf, func(s *Scope) { s.Namespaces = []string{metav1.NamespaceAll} })
			w.delete("two", "b")
			require.Equal(t, 4, inf.Len())
			synced(t, inf)
			synctest.Wait()
			require.ElementsMatch(t, []string{"Deleted b unknown", "Added a initial", "Added b initial"}, told.lines())
			w.agrees(inf, told)

			w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"one", "three"} })
			require.Equal(t, 4, inf.Len(), "what is out of scope has gone")
			synced(t, inf)
			synctest.Wait()
			require.Equal(t, []string{"Deleted a unknown"}, told.lines())
			w.agrees(inf, told)
			w.change("one", "a")
			synctest.Wait()
			require.Equal(t, []string{"Updated a"}, told.lines())
			w.agrees(inf, told)
		}, "one", "two", "three")
	}
}

// A list-watch that takes objects over knows how far the store has got with them, and sees that the cluster goes back.
func TestAHeirSeesThatTheClusterHasGoneBack(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, _ := w.namespaced(Options[*corev1.Pod]{}, "one", "two")
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		backup := w.server.Version()
		w.change("one", "a")
		w.change("two", "a")
		synctest.Wait()
		w.fail("one", hang)
		w.fail("two", hang)
		w.fail("", hang)
		w.server.Restore(backup)
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{metav1.NamespaceAll} })
		w.fail("", nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1, inf.Health().Rewinds)
		for _, p := range append(w.inScope(Scope{Namespaces: []string{"one"}}),
			w.inScope(Scope{Namespaces: []string{"two"}})...) {
			held, _ := inf.Get(KeyOf(p))
			require.Equal(t, p.ResourceVersion, held.ResourceVersion)
		}
	}, "one", "two")
}

// What a list-watch knows of the store outlives one that takes over and never has a list.
func TestAHeirOfAHeirSeesThatTheServerIsBehind(t *testing.T) {
	for _, selects := range []bool{false, true} { // the list-watch in between has other selectors before it leaves
		inLand(t, func(t *testing.T, w *land) {
			inf, told := w.namespaced(Options[*corev1.Pod]{}, "one", "two")
			run(t, inf)
			synced(t, inf)
			backup := w.server.Version()
			w.create("one", "c")
			w.delete("two", "a")
			synctest.Wait()
			w.fail("", forbidden)
			w.rescope(inf, func(s *Scope) { s.Namespaces = []string{metav1.NamespaceAll} })
			time.Sleep(time.Minute)
			if selects {
				w.rescope(inf, func(s *Scope) { s.LabelSelector = labels.Everything() })
				w.rescope(inf, func(s *Scope) { s.LabelSelector = nil })
			}
			told.lines()

			w.server.Restore(backup)
			w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"one", "two"} })
			synctest.Wait()
			require.Empty(t, told.lines(), "the server may only be behind")
			require.Zero(t, inf.Health().Rewinds)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, 2, inf.Health().Rewinds)
			require.ElementsMatch(t, []string{"Added a initial", "Deleted c unknown"}, told.lines())
		}, "one", "two")
	}
}

// A list of a cluster that has gone back is cut short; the list-watch that takes over goes on with it.
func TestAHeirKnowsWhichVersionsCount(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		cut := false
		config := w.link.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if cut && strings.Contains(req.URL.Path, "/namespaces/one/") && req.URL.Query().Has("continue") {
					return nil, errors.New("the second page does not come")
				}
				return next.RoundTrip(req)
			})
		})
		inf, err := NewNamespaced[*corev1.Pod](kubernetes.NewForConfigOrDie(config).CoreV1().Pods, []string{"one"},
			Options[*corev1.Pod]{PageSize: 1, DisableWatchList: true})
		require.NoError(t, err)
		told := w.listen(inf)
		run(t, inf)
		synced(t, inf)
		backup := w.server.Version()
		for range 9 {
			w.change("one", "b")
		}
		synctest.Wait()
		cut = true
		w.server.Restore(backup)
		w.change("one", "b")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotZero(t, inf.Health().Rewinds)
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{metav1.NamespaceAll} })
		time.Sleep(time.Minute)
		synctest.Wait()
		w.agrees(inf, told)
	}, "one")
}

// What is said of a namespace may be said as soon as it is in the scope.
func TestANamespaceIsStuckWhileItJoins(t *testing.T) {
	inLand(t, func(t *testing.T, w *land) {
		inf, told := w.namespaced(Options[*corev1.Pod]{}, "one")
		run(t, inf)
		synced(t, inf)
		var asking sync.WaitGroup
		asking.Go(func() {
			for inf.HealthIn("two").State == "" {
				runtime.Gosched()
			}
			two := inf.followed.Load().of(part{namespace: "two"}).health
			two.knows(stuckStore, errStuck)
			two.knows(stuckStore, nil)
		})
		w.rescope(inf, func(s *Scope) { s.Namespaces = []string{"one", "two"} })
		asking.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.agrees(inf, told)
	}, "one", "two")
}
