package informer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// contest is one script, played before one informer, in a bubble of its own: the script's server, and what the informer
// makes of it.
type contest struct {
	*testing.T
	*proxy
	contestant
	kind kind

	// What the informer is made with; set before begin.
	transform func(*corev1.Pod) (*corev1.Pod, error)
	resync    time.Duration
	ours      Options[*corev1.Pod] // what only ours can be asked for
	hear      func(notice)         // what the handler does with it; nil: nothing

	mu   sync.Mutex
	told []notice
}

// notice is what a handler was told, in terms that both informers have.
type notice struct {
	at       time.Time
	typ      EventType
	old, now *corev1.Pod // what is deleted is old, and nil if nothing is known of it
}

// contestant is an informer that has been started.
type contestant struct {
	version func(name string) string // what the store holds of a pod: its resourceVersion, or nothing
	synced  func() bool              // whether the handler has had the whole first list
	stop    context.CancelFunc
	done    chan struct{} // closed when Run has returned
}

type kind func(*contest) contestant

// play runs a script with a server that holds the pods a and b, and returns its figure, and its time in virtual time.
func play(t *testing.T, k kind, script func(*contest) int) (figure int, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &contest{T: t, proxy: &proxy{podAPI: newPodAPI()}, kind: k}
		c.Create(pod("a"))
		c.Create(pod("b"))
		began := time.Now()
		figure = script(c)
		took = time.Since(began)
		c.stop()
		<-c.done
	})
	return figure, took
}

// start starts the informer and lets it come to rest.
func (c *contest) start() {
	c.contestant = c.kind(c)
	synctest.Wait()
}

// begin starts the informer, which has no reason not to hold what the server does.
func (c *contest) begin() {
	c.start()
	for _, o := range c.Objects() {
		require.Equal(c, o.ResourceVersion, c.version(o.Name))
	}
}

// tell is everybody's handler.
func (c *contest) tell(typ EventType, old, now *corev1.Pod) {
	n := notice{time.Now(), typ, old, now}
	c.mu.Lock()
	c.told = append(c.told, n)
	c.mu.Unlock()
	if c.hear != nil {
		c.hear(n)
	}
}

// count returns how much of what was told is so.
func (c *contest) count(is func(notice) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, what := range c.told {
		if is(what) {
			n++
		}
	}
	return n
}

// asks returns how many requests came with this verb since the last look at them.
func (c *contest) asks(verbs ...string) int {
	n := 0
	for _, asked := range c.verbs() {
		for _, verb := range verbs {
			if asked == verb {
				n++
			}
		}
	}
	return n
}

// within waits until is, and returns how many of these steps it took; no more than most.
func (c *contest) within(most int, step time.Duration, is func() bool) int {
	for n := range most {
		synctest.Wait()
		if is() {
			return n
		}
		time.Sleep(step)
	}
	return most
}

func thermostat(c *contest) contestant {
	opts := c.ours
	opts.Transform = c.transform
	inf, err := New[*corev1.Pod](c.proxy, opts)
	require.NoError(c, err)
	registration, err := inf.AddHandler(func(e Event[*corev1.Pod]) { c.tell(e.Type, e.Old, e.New) },
		HandlerOptions{Resync: c.resync})
	require.NoError(c, err)
	ctx, cancel := context.WithCancel(klog.NewContext(c.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = inf.Run(ctx) // ErrStuck, where a handler is
	}()
	return contestant{
		version: func(name string) string {
			if p, ok := inf.Get(named(name)); ok {
				return p.ResourceVersion
			}
			return ""
		},
		synced: func() bool {
			select {
			case <-registration.Synced():
				return true
			default:
				return false
			}
		},
		stop: cancel, done: done,
	}
}

func clientGo(c *contest) contestant {
	inf := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
			error) {
			return c.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, ofPods), nil
		},
	}, &corev1.Pod{}, c.resync, cache.Indexers{})
	if c.transform != nil {
		require.NoError(c, inf.SetTransform(func(o any) (any, error) { return c.transform(o.(*corev1.Pod)) }))
	}
	registration, err := inf.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.tell(Added, nil, o.(*corev1.Pod)) },
		UpdateFunc: func(old, o any) { c.tell(Updated, old.(*corev1.Pod), o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			old, _ := o.(*corev1.Pod)
			c.tell(Deleted, old, nil)
		},
	}, c.resync)
	require.NoError(c, err)
	ctx, cancel := context.WithCancel(klog.NewContext(c.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	return contestant{
		version: func(name string) string {
			if o, ok, _ := inf.GetStore().GetByKey("default/" + name); ok {
				return o.(*corev1.Pod).ResourceVersion
			}
			return ""
		},
		synced: registration.HasSynced,
		stop:   cancel, done: done,
	}
}

// ofPods makes pods of bookmarks, as a client of pods decodes them: client-go's informer wants nothing else.
func ofPods(e watch.Event) (watch.Event, bool) {
	if b, ok := e.Object.(*metav1.PartialObjectMetadata); ok {
		e.Object = &corev1.Pod{ObjectMeta: b.ObjectMeta}
	}
	return e, true
}

// quietly keeps client-go from crashing, and from delaying whoever reports an error by a clock that does not know of
// bubbles.
func quietly(t *testing.T) {
	errors, panics, crash := utilruntime.ErrorHandlers, utilruntime.PanicHandlers, utilruntime.ReallyCrash
	t.Cleanup(func() {
		utilruntime.ErrorHandlers, utilruntime.PanicHandlers, utilruntime.ReallyCrash = errors, panics, crash
	})
	utilruntime.ErrorHandlers, utilruntime.PanicHandlers, utilruntime.ReallyCrash = nil, nil, false
}
