package clientgo

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// NewSharedInformer is NewSharedIndexInformer without indexes.
func NewSharedInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration) cache.SharedInformer {
	return NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, cache.Indexers{})
}

// NewSharedIndexInformer makes an informer of what lw lists. Objects of another type than exampleObject, unless that is nil, are not taken.
func NewSharedIndexInformer(
	lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	return NewSharedIndexInformerWithOptions(lw, exampleObject, cache.SharedIndexInformerOptions{
		ResyncPeriod: defaultEventHandlerResyncPeriod, Indexers: indexers,
	})
}

// NewSharedIndexInformerWithOptions is NewSharedIndexInformer with all of the options.
func NewSharedIndexInformerWithOptions(lw cache.ListerWatcher, exampleObject runtime.Object, options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	return newSharedInformer(lw, exampleObject, options)
}

// sharedInformer is a cache.SharedIndexInformer around an informer of ours. Its first handler, an inline one, writes the store, so everybody else is told
// of what is in the store already.
type sharedInformer struct {
	core        *informer.SharedIndexInformer[any]
	store       *indexer
	lw          cache.ListerWatcher
	example     runtime.Object
	description string // of the objects' type
	period      time.Duration

	mu sync.Mutex
	// Guarded by mu.
	started, stopped bool
	// Guarded by mu, and not changed once started is true, so that what Run starts may read them as they are.
	checkPeriod time.Duration // no handler resyncs more often, or at all if it is zero
	minWatch    time.Duration // how long a watch is asked to live, at least; zero: as usual
	transform   cache.TransformFunc
	watchErrors cache.WatchErrorHandlerWithContext
	reflector   *cache.Reflector // what watchErrors is given
}

func newSharedInformer(lw cache.ListerWatcher, example runtime.Object, options cache.SharedIndexInformerOptions) *sharedInformer {
	s := &sharedInformer{
		lw: lw, example: example, description: options.ObjectDescription,
		store:  newIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, options.Indexers),
		period: options.ResyncPeriod, checkPeriod: options.ResyncPeriod,
	}
	if s.description == "" {
		s.description = typeDescription(example)
	}
	if options.InformerMetricsProvider != nil && options.Identifier.Reserved() {
		s.store.versions = options.InformerMetricsProvider.NewStoreResourceVersionMetric(options.Identifier)
	}
	core, err := informer.Project[informer.Object](reporting{NewClient(lw), s}, s.take, informer.Options[informer.Object]{
		Name:             s.description,
		DisableWatchList: watchlist.DoesClientNotSupportWatchListSemantics(lw),
		StopGrace:        math.MaxInt64, // Run returns when every handler has
	})
	if err == nil {
		_, err = core.AddHandler(s.write, informer.HandlerOptions{Name: "store", Inline: true, Reached: func(_, resourceVersion string) { s.store.Bookmark(resourceVersion) }})
	}
	if err != nil {
		panic(err) // only a mistake made here can be the reason
	}
	s.core = core
	return s
}

// take makes what is stored of what came.
func (s *sharedInformer) take(object informer.Object) (any, error) {
	if want, got := reflect.TypeOf(s.example), reflect.TypeOf(object); want != nil && want != got {
		return nil, fmt.Errorf("a %v where a %v was expected", got, want)
	}
	if want := kindOf(s.example); !want.Empty() && want != object.GetObjectKind().GroupVersionKind() {
		return nil, fmt.Errorf("a %v where a %v was expected", object.GetObjectKind().GroupVersionKind(), want)
	}
	if s.transform == nil {
		return object, nil
	}
	return s.transform(object)
}

// write keeps the store in step with the core.
func (s *sharedInformer) write(e informer.Event[any]) {
	c := change{key: keyOf(e.Key), obj: e.New}
	if e.Type == informer.Deleted {
		c.obj, c.remove = e.Old, true
	}
	s.store.writer.Lock()
	defer s.store.writer.Unlock()
	if err := s.store.apply(c); err != nil {
		klog.Background().Error(err, "An object is missing from an index", "informer", s.description)
	}
}

func keyOf(key informer.Key) string {
	return cache.ObjectName{Namespace: key.Namespace, Name: key.Name}.String()
}

func (s *sharedInformer) Run(stopCh <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stopCh))
}

func (s *sharedInformer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	if !s.start() {
		klog.FromContext(ctx).Info("Warning: an informer runs only once, and this one has been started before", "informer", s.description)
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
	}()
	if err := s.core.Run(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "An informer did not stop as it should", "informer", s.description)
	}
}

// start reports whether the caller is the first to call it.
func (s *sharedInformer) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return false
	}
	s.started = true
	if s.watchErrors != nil {
		// It never runs: the handlers want to know its name and type.
		s.reflector = cache.NewReflectorWithOptions(s.lw, s.example, s.store, cache.ReflectorOptions{Name: s.description, TypeDescription: s.description})
	}
	return true
}

func (s *sharedInformer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *sharedInformer) HasSynced() bool { return s.core.HasSynced() }

func (s *sharedInformer) HasSyncedChecker() cache.DoneChecker {
	return checker{fmt.Sprintf("SharedIndexInformer %T", s.example), s.core.Synced()}
}

func (s *sharedInformer) LastSyncResourceVersion() string {
	return s.core.ResourceVersion(metav1.NamespaceAll)
}

func (s *sharedInformer) GetStore() cache.Store     { return s.store }
func (s *sharedInformer) GetIndexer() cache.Indexer { return s.store }

func (s *sharedInformer) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return fmt.Errorf("the indexers were not added, because the informer of %s has stopped", s.description)
	}
	return s.store.AddIndexers(indexers)
}

func (s *sharedInformer) GetController() cache.Controller { return idle{s} }

func (s *sharedInformer) SetTransform(fn cache.TransformFunc) error {
	return s.beforeStart(func() { s.transform = fn })
}

func (s *sharedInformer) SetWatchErrorHandler(fn cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { fn(r, err) })
}

func (s *sharedInformer) SetWatchErrorHandlerWithContext(fn cache.WatchErrorHandlerWithContext) error {
	return s.beforeStart(func() { s.watchErrors = fn })
}

func (s *sharedInformer) beforeStart(set func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return fmt.Errorf("the informer of %s has been started already", s.description)
	}
	set()
	return nil
}

// typeDescription names the type of an example object, or the kind of an unstructured one.
func typeDescription(example runtime.Object) string {
	switch kind := kindOf(example); {
	case example == nil:
		return "<unspecified>"
	case !kind.Empty():
		return kind.String()
	}
	return reflect.TypeOf(example).String()
}

// kindOf returns what an unstructured example says that its kind is, or nothing.
func kindOf(example runtime.Object) schema.GroupVersionKind {
	if u, ok := example.(*unstructured.Unstructured); ok {
		return u.GroupVersionKind()
	}
	return schema.GroupVersionKind{}
}

// gauged makes a number of a resourceVersion: its last 15 digits, which are exact as a float64.
func gauged(resourceVersion string) float64 {
	n, err := strconv.ParseInt(resourceVersion[max(0, len(resourceVersion)-15):], 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}
