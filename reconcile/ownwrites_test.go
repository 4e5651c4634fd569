package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// town is a controller of the ConfigMaps of one namespace, whose Reconciler a test chooses. It reads Secrets and Pods,
// too. What each call sees of what the calls before it wrote is checked when it begins.
type town struct {
	*testing.T
	server  *reconciletest.Server
	link    *reconciletest.Link // the controller's way
	admin   typedcore.CoreV1Interface
	core    typedcore.CoreV1Interface // the controller's
	maps    *informer.SharedIndexInformer[*corev1.ConfigMap]
	secrets *informer.SharedIndexInformer[*corev1.Secret]
	pods    *informer.SharedIndexInformer[*corev1.Pod]
	c       *reconcile.Controller

	mu sync.Mutex
	// Guarded by mu. calls counts those of Reconcile, and wrongs says which of them saw a state older than a write.
	calls  int
	wrote  map[reconcile.Key][]shown
	wrongs []string
}

// shown is what a cache has to show after a write: the object at that version or a later one, or, if it is gone,
// nothing of it.
type shown struct {
	cache interface {
		Version(reconcile.Key) (informer.Version, bool)
	}
	object          reconcile.Key
	uid             types.UID
	resourceVersion string // empty: gone, or out of the selector
}

type townOptions struct {
	options   reconcile.Options
	secrets   labels.Selector // of the informer of Secrets
	untracked bool            // the clients are made without TrackWrites
}

func inTown(t *testing.T, o townOptions, act func(p *town, ctx context.Context, m *corev1.ConfigMap) error,
	story func(p *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		p := &town{T: t, server: server, link: server.Link(), wrote: map[reconcile.Key][]shown{}}
		p.admin = kubernetes.NewForConfigOrDie(server.Link().Config()).CoreV1()
		config := p.link.Config()
		if !o.untracked {
			config.Wrap(reconcile.TrackWrites)
		}
		p.core = kubernetes.NewForConfigOrDie(config).CoreV1()
		var err error
		p.maps, err = informer.New[*corev1.ConfigMap](p.core.ConfigMaps("default"),
			informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		p.secrets, err = informer.New[*corev1.Secret](p.core.Secrets("default"),
			informer.Options[*corev1.Secret]{LabelSelector: o.secrets})
		require.NoError(t, err)
		p.pods, err = informer.New[*corev1.Pod](p.core.Pods("default"), informer.Options[*corev1.Pod]{})
		require.NoError(t, err)
		p.c, err = reconcile.NewController("town", reconcile.Func(
			func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
				p.check(key)
				m, ok := p.maps.Get(key)
				if !ok {
					return reconcile.Result{}, nil
				}
				return reconcile.Result{}, act(p, ctx, m)
			}), o.options)
		require.NoError(t, err)
		reconcile.For(p.c, p.maps)
		reconcile.Owns(p.c, p.secrets, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		reconcile.DependsOn(p.c, p.pods)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{p.c}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		defer func() {
			cancel()
			require.NoError(t, <-done)
		}()
		synctest.Wait()
		story(p)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.wrongs)
		require.NotZero(t, p.calls)
	})
}

// check looks at the caches as a call finds them.
func (p *town) check(key reconcile.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	for _, w := range p.wrote[key] {
		has, held := w.cache.Version(w.object)
		switch same := held && has.UID == w.uid; {
		case w.resourceVersion == "" && same:
			p.wrongs = append(p.wrongs, fmt.Sprintf("call %d for %s sees %s at %s, which has been taken away",
				p.calls, key,
				w.object, has.ResourceVersion))
		case same && number(has.ResourceVersion) < number(w.resourceVersion):
			p.wrongs = append(p.wrongs, fmt.Sprintf("call %d for %s sees %s at %s and not at %s", p.calls, key,
				w.object,
				has.ResourceVersion, w.resourceVersion))
		}
	}
}

// has notes what a write of a call for the key left, at the server, of an object.
func (p *town) has(key reconcile.Key, w shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrote[key] = append(p.wrote[key], w)
}

func (p *town) named(name string) reconcile.Key {
	return reconcile.Key{Namespace: "default", Name: name}
}

// put makes or changes a ConfigMap.
func (p *town) put(name string) {
	p.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string]string{"put": time.Now().Format(time.RFC3339Nano)}}
	_, err := p.admin.ConfigMaps("default").Update(p.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = p.admin.ConfigMaps("default").Create(p.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(p, err)
}

// touch changes an annotation of a ConfigMap.
func (p *town) touch(name string) {
	p.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now().Format(time.RFC3339Nano))
	_, err := p.admin.ConfigMaps("default").Patch(p.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(p, err)
}

// Removing the last finalizer of an object that is being deleted deletes it, and the answer has the version that the
// cache has already. The next call must not find the object there and clean up a second time.
func TestTheLastFinalizerIsRemovedOnce(t *testing.T) {
	const finalizer = "town/clean-up"
	for name, remove := range map[string]func(p *town, ctx context.Context, m *corev1.ConfigMap) error{
		"update": func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
			m = m.DeepCopy()
			m.Finalizers = nil
			_, err := p.core.ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
			return err
		},
		"merge patch": func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
			_, err := p.core.ConfigMaps("default").Patch(ctx, m.Name, types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		},
		"JSON patch": func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
			_, err := p.core.ConfigMaps("default").Patch(ctx, m.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
			return err
		},
		"objects.Finalize": func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
			_, _, err := objects.Finalize(ctx, p.core.ConfigMaps("default"), m, finalizer,
				func(context.Context) (done bool, err error) { return true, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			cleaned := map[string]int{}
			inTown(t, townOptions{}, func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
				if m.DeletionTimestamp == nil {
					return nil
				}
				p.mu.Lock()
				cleaned[m.Name]++
				p.mu.Unlock()
				if _, ok := p.secrets.Get(reconcile.Key{Namespace: m.Namespace, Name: m.Name}); ok {
					err := p.core.Secrets("default").Delete(ctx, m.Name, metav1.DeleteOptions{})
					if err != nil && !apierrors.IsNotFound(err) {
						return err
					}
				}
				if err := remove(p, ctx, m); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				p.has(informer.KeyOf(m), shown{cache: p.maps, object: informer.KeyOf(m), uid: m.UID})
				return nil
			}, func(p *town) {
				const n = 20
				for i := range n {
					m, err := p.admin.ConfigMaps("default").Create(p.Context(),
						&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
							Name: fmt.Sprint("m-", i), Finalizers: []string{finalizer}}}, metav1.CreateOptions{})
					require.NoError(p, err)
					_, err = p.admin.Secrets("default").Create(p.Context(),
						&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
							Name: m.Name, OwnerReferences: []metav1.OwnerReference{
								*metav1.NewControllerRef(m, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}},
						}, metav1.CreateOptions{})
					require.NoError(p, err)
				}
				time.Sleep(time.Second)
				p.link.DelayWatches("secrets", 20*time.Millisecond)
				p.link.DelayWatches("configmaps", 30*time.Millisecond)
				for i := range n {
					require.NoError(p, p.admin.ConfigMaps("default").Delete(p.Context(), fmt.Sprint("m-", i),
						metav1.DeleteOptions{}))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Len(p, cleaned, n)
				for name, times := range cleaned {
					require.Equal(p, 1, times, name)
				}
			})
		})
	}
}

// The server no longer has what a key wrote, and the cache still has an older state of it. The key must not act on
// that.
func TestACacheThatHoldsAnOlderStateIsNotActedOnAlthoughTheObjectIsGone(t *testing.T) {
	for name, then := range map[string]func(p *town){
		"gone": func(p *town) {
			require.NoError(p, p.admin.Secrets("default").Delete(p.Context(), "s", metav1.DeleteOptions{}))
		},
		"replaced": func(p *town) {
			require.NoError(p, p.admin.Secrets("default").Delete(p.Context(), "s", metav1.DeleteOptions{}))
			_, err := p.admin.Secrets("default").Create(p.Context(), secretCalled("s"), metav1.CreateOptions{})
			require.NoError(p, err)
		},
		"no longer selected": func(p *town) {
			_, err := p.admin.Secrets("default").Patch(p.Context(), "s", types.MergePatchType,
				[]byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
			require.NoError(p, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, townOptions{secrets: labels.Set{"town": "yes"}.AsSelector()}, func(p *town, ctx context.Context,
				m *corev1.ConfigMap) error {
				key := informer.KeyOf(m)
				s, ok := p.secrets.Get(p.named("s"))
				if !ok {
					return nil
				}
				s, err := p.core.Secrets("default").Patch(ctx, s.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"stringData":{"seen":%q}}`, m.ResourceVersion), metav1.PatchOptions{})
				if err == nil {
					p.has(key, shown{p.secrets, informer.KeyOf(s), s.UID, s.ResourceVersion})
				}
				return err
			}, func(p *town) {
				_, err := p.admin.Secrets("default").Create(p.Context(), secretCalled("s"), metav1.CreateOptions{})
				require.NoError(p, err)
				time.Sleep(time.Second)
				p.link.DelayWatches("secrets", reconciletest.Never)
				p.put("m")
				time.Sleep(time.Second)
				then(p)
				for range 120 {
					time.Sleep(time.Second)
					p.touch("m")
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				require.Greater(p, p.calls, 5, "lists go on where the watch has ended")
			})
		})
	}
}

func secretCalled(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"town": "yes"}}}
}

// A pod that is terminating already is killed at once, and somebody makes another one of that name. The next call must
// not take the new one for the old one, which the cache still shows.
func TestAPodThatIsKilledWhileItTerminatesIsWaitedForUntilItIsGone(t *testing.T) {
	inTown(t, townOptions{}, func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
		pod, ok := p.pods.Get(p.named("p"))
		if !ok || pod.DeletionTimestamp == nil {
			return nil
		}
		now := int64(0)
		err := p.core.Pods("default").Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err == nil {
			p.has(informer.KeyOf(m), shown{cache: p.pods, object: p.named("p"), uid: pod.UID})
		}
		return err
	}, func(p *town) {
		create := func() *corev1.Pod {
			pod, err := p.admin.Pods("default").Create(p.Context(),
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
					Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				}, metav1.CreateOptions{})
			require.NoError(p, err)
			return pod
		}
		create()
		require.NoError(p, p.admin.Pods("default").Delete(p.Context(), "p", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		p.link.DelayWatches("pods", 2*time.Second)
		p.put("m")
		synctest.Wait()
		_, err := p.admin.Pods("default").Get(p.Context(), "p", metav1.GetOptions{})
		require.True(p, apierrors.IsNotFound(err), "the controller has killed it: %v", err)
		second := create()
		for range 5 {
			p.touch("m")
			time.Sleep(time.Second)
		}
		got, err := p.admin.Pods("default").Get(p.Context(), "p", metav1.GetOptions{})
		require.NoError(p, err, "the second pod of that name has been killed")
		require.Equal(p, second.UID, got.UID)
	})
}

// A call creates a Secret in a goroutine, and gives up waiting for that after a moment. Something names the key all the
// time. There is one Secret in the end, whatever becomes of the first request.
func TestWhateverBecomesOfAWriteThatIsUnderWayItsKeyWaits(t *testing.T) {
	ordinary := func(ctx context.Context) context.Context { return ctx }
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("no"))
	for name, test := range map[string]struct {
		ctx   func(context.Context) context.Context
		fault reconciletest.Fault // of the first creation
	}{
		"the call's ctx, and the answer is late":        {ordinary, reconciletest.Delay(0, 5*time.Second)},
		"the call's ctx, and the client gives up late":  {ordinary, givenUpLate},
		"a ctx that goes on, and the answer is late":    {context.WithoutCancel, reconciletest.Delay(0, 5*time.Second)},
		"a ctx that goes on, and the write is late":     {context.WithoutCancel, reconciletest.Delay(5*time.Second, 0)},
		"a ctx that goes on, and the answer is lost":    {context.WithoutCancel, late(reconciletest.LoseAnswer)},
		"a ctx that goes on, and the write is not made": {context.WithoutCancel, late(reconciletest.Reset)},
		"a ctx that goes on, and the write is refused":  {context.WithoutCancel, late(reconciletest.Refuse(refused))},
	} {
		t.Run(name, func(t *testing.T) {
			var writers sync.WaitGroup
			inTown(t, townOptions{options: reconcile.Options{AllowHotLoops: true}},
				func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
					if p.secrets.Len() == 0 {
						p.createInTheBackground(test.ctx(ctx), &writers)
					}
					return nil
				}, func(p *town) {
					p.link.DelayWatches("secrets", 2*time.Second)
					p.firstCreation(test.fault)
					p.put("m")
					for range 1_500 {
						time.Sleep(10 * time.Millisecond)
						p.touch("m")
					}
					writers.Wait()
					time.Sleep(time.Minute)
					require.Len(p, p.secretsMade(), 1)
				})
		})
	}
}

// The server asks a goroutine that has outlived its call to come back later. client-go waits for that outside of the
// transport, so nothing is under way, the key runs, and may write, too. Only when the request is sent again does the
// key wait for it.
func TestAWriteIsNotUnderWayWhileTheServerPutsItOff(t *testing.T) {
	var writers sync.WaitGroup
	var late string // the name of what the goroutine has created
	var sent, unseen int
	inTown(t, townOptions{options: reconcile.Options{AllowHotLoops: true}},
		func(p *town, ctx context.Context, m *corev1.ConfigMap) error {
			p.mu.Lock()
			if _, shown := p.secrets.Get(p.named(late)); late != "" && !shown {
				unseen++
			}
			sent++
			first := sent == 1
			p.mu.Unlock()
			if first { // time stands still while somebody waits for mu
				p.createInTheBackground(context.WithoutCancel(ctx), &writers)
			}
			return nil
		}, func(p *town) {
			p.link.DelayWatches("secrets", 2*time.Second)
			p.firstCreation(reconciletest.Refuse(apierrors.NewTooManyRequests("later", 3)))
			p.put("m")
			runsIn := func(d time.Duration) int {
				before := p.count()
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					p.touch("m")
				}
				return p.count() - before
			}
			require.Greater(p, runsIn(2*time.Second), 100, "the key is not held back while client-go waits")
			require.Empty(p, p.secretsMade())
			writers.Wait()
			p.mu.Lock()
			late = p.secretsMade()[0].Name
			p.mu.Unlock()
			require.Zero(p, runsIn(time.Second), "the cache does not show what has been written now")
			require.NotZero(p, runsIn(3*time.Second))
			require.Zero(p, unseen)
		})
}

// createInTheBackground creates a Secret, and waits for that for 10 ms.
func (p *town) createInTheBackground(ctx context.Context, writers *sync.WaitGroup) {
	created := make(chan struct{})
	writers.Go(func() {
		defer close(created)
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}
		_, _ = p.core.Secrets("default").Create(ctx, s, metav1.CreateOptions{})
	})
	select {
	case <-created:
	case <-time.After(10 * time.Millisecond):
	}
}

// firstCreation makes the controller's first write of a Secret fail.
func (p *town) firstCreation(fault reconciletest.Fault) {
	var first sync.Once
	p.link.Inject(func(r reconciletest.Request) (f reconciletest.Fault) {
		if r.Writes() && r.Resource.Resource == "secrets" {
			first.Do(func() { f = fault })
		}
		return f
	})
}

func (p *town) secretsMade() []corev1.Secret {
	made, err := p.admin.Secrets("default").List(p.Context(), metav1.ListOptions{})
	require.NoError(p, err)
	return made.Items
}

// count returns how many calls there have been.
func (p *town) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// late is a fault after 5 s.
func late(fault reconciletest.Fault) reconciletest.Fault {
	return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		time.Sleep(5 * time.Second)
		return fault(ctx, serve)
	}
}

// givenUpLate is an answer that is late, to a client that gives up some time after it is told to.
func givenUpLate(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
	resp, err := serve()
	select {
	case <-time.After(5 * time.Second):
		return resp, err
	case <-ctx.Done():
		time.Sleep(100 * time.Millisecond)
		return nil, ctx.Err()
	}
}

// Somebody makes an object that the cache selects, and a call takes it out of the selection before the cache has seen
// it. The cache is about to show the object; a call that finds it there would act on a state from before the write.
func TestAnObjectThatIsTakenOutOfTheSelectionBeforeTheCacheHasSeenItIsWaitedFor(t *testing.T) {
	for name, takeOut := range map[string]func(p *town, ctx context.Context) error{
		"patched": func(p *town, ctx context.Context) error {
			_, err := p.core.Secrets("default").Patch(ctx, "s", types.MergePatchType,
				[]byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
			return err
		},
		"deleted": func(p *town, ctx context.Context) error {
			return p.core.Secrets("default").Delete(ctx, "s", metav1.DeleteOptions{})
		},
		"patched, then deleted": func(p *town, ctx context.Context) error {
			_, err := p.core.Secrets("default").Patch(ctx, "s", types.MergePatchType,
				[]byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
			return errors.Join(err, p.core.Secrets("default").Delete(ctx, "s", metav1.DeleteOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			taken := false
			inTown(t, townOptions{secrets: labels.Set{"town": "yes"}.AsSelector()}, func(p *town, ctx context.Context,
				m *corev1.ConfigMap) error {
				if taken {
					return nil
				}
				s, err := p.core.Secrets("default").Get(ctx, "s", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				if err = errors.Join(err, takeOut(p, ctx)); err == nil {
					p.has(informer.KeyOf(m), shown{cache: p.secrets, object: p.named("s"), uid: s.UID})
					taken = true
				}
				return err
			}, func(p *town) {
				p.put("m")
				time.Sleep(time.Second)
				p.link.DelayWatches("secrets", 2*time.Second)
				_, err := p.admin.Secrets("default").Create(p.Context(), secretCalled("s"), metav1.CreateOptions{})
				require.NoError(p, err)
				time.Sleep(100 * time.Millisecond)
				p.touch("m")
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				require.True(p, taken)
				// The watch now brings the two changes at different times.
				for range 100 {
					time.Sleep(50 * time.Millisecond)
					p.touch("m")
				}
				require.Zero(p, p.c.Stats().Parked, "an object outside of the selection holds no key back for long")
			})
		})
	}
}
