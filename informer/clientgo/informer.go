package clientgo

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/internal/tap"
	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// NewSharedInformer is NewSharedIndexInformer without indexes.
func NewSharedInformer(lw cache.ListerWatcher, exampleObject runtime.Object,
	defaultEventHandlerResyncPeriod time.Duration) cache.SharedInformer {
	return NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, cache.Indexers{})
}

// NewSharedIndexInformer makes an informer of what lw lists. Objects of another type than exampleObject, unless that is
// nil, are not taken.
func NewSharedIndexInformer(
	lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration,
	indexers cache.Indexers,
) cache.SharedIndexInformer {
	return NewSharedIndexInformerWithOptions(lw, exampleObject, cache.SharedIndexInformerOptions{
		ResyncPeriod: defaultEventHandlerResyncPeriod, Indexers: indexers,
	})
}

// NewSharedIndexInformerWithOptions is NewSharedIndexInformer with all of the options.
func NewSharedIndexInformerWithOptions(lw cache.ListerWatcher, exampleObject runtime.Object,
	options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	return newSharedInformer(lw, exampleObject, options)
}

// sharedInformer is a cache.SharedIndexInformer around an informer of ours. Its first handler, an inline one, writes
// the store, so the other handlers are told of what is in the store already.
type sharedInformer struct {
	core        *informer.SharedIndexInformer[any]
	store       *indexer
	lw          cache.ListerWatcher
	example     runtime.Object
	description string // of the objects' type
	period      time.Duration
	pack        Packing // nil: objects are held as they are

	mu sync.Mutex
	// Guarded by mu.
	started, stopped bool
	// Guarded by mu, and not changed once started is true, so that what Run starts may read them as they are.
	checkPeriod time.Duration // no handler resyncs more often, or at all if it is zero
	minWatch    time.Duration // how long a watch is asked to live, at least; zero: as usual
	transform   cache.TransformFunc
	watchErrors cache.WatchErrorHandlerWithContext
	reflector   *cache.Reflector // what watchErrors is given
	streams     bool             // lists may be streamed
}

func newSharedInformer(lw cache.ListerWatcher, example runtime.Object,
	options cache.SharedIndexInformerOptions) *sharedInformer {
	s := &sharedInformer{
		lw: lw, example: example, description: options.ObjectDescription,
		store:  newIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, options.Indexers),
		period: options.ResyncPeriod, checkPeriod: options.ResyncPeriod,
	}
	if s.description == "" {
		s.description = typeDescription(example)
	}
	s.store.versions = versionMetric(options)
	client := &reporting{Client: NewClient(lw), informer: s,
		tap: tap.New(example, func() intern.Change { return changeOf(s) })}
	core, err := informer.Project[informer.Object](client, s.project, informer.Options[informer.Object]{
		Name:             s.description,
		DisableWatchList: streamsNoLists(lw),
		StopGrace:        math.MaxInt64, // Run returns when every handler has
	})
	if err == nil {
		_, err = core.AddHandler(mirror{s}.write,
			informer.HandlerOptions{Name: "store", Inline: true, Every: true, Reached: mirror{s}.reached})
	}
	if err != nil {
		panic(err) // only a mistake made here can be the reason
	}
	s.core = core
	s.store.byHand, s.store.listed = map[string]int{}, func() int { return core.Health().Listed }
	return s
}

// changeOf says when objects that have been decoded may be changed.
func changeOf(s *sharedInformer) intern.Change {
	switch {
	case s.transform == nil:
		return intern.Never
	case s.pack != nil: // they are not kept
		return intern.Always
	}
	return intern.AtFirst
}

// streamsNoLists reports whether lw says that its client does not stream lists, as a fake clientset does. The name of
// the method is client-go's.
func streamsNoLists(lw cache.ListerWatcher) bool {
	says, ok := lw.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && says.IsWatchListSemanticsUnSupported()
}

// project returns what is stored of an object that has arrived.
func (s *sharedInformer) project(object informer.Object) (any, error) {
	if want, got := reflect.TypeOf(s.example), reflect.TypeOf(object); want != nil && want != got {
		return nil, fmt.Errorf("a %v where a %v was expected", got, want)
	}
	if want := kindOf(s.example); !want.Empty() && want != object.GetObjectKind().GroupVersionKind() {
		return nil, fmt.Errorf("a %v where a %v was expected", object.GetObjectKind().GroupVersionKind(), want)
	}
	if s.transform == nil {
		return s.pack.held(object)
	}
	transformed, err := s.transform(object)
	if err != nil {
		return nil, err
	}
	return s.pack.held(transformed)
}

// mirror is the handler by which an informer keeps its store in step with the core.
type mirror struct{ *sharedInformer }

// write applies an event to the store. Events come in the order in which the server sent them, as nothing is merged;
// so one from a watch moves the store to its version.
func (m mirror) write(e informer.Event[any]) {
	if e.Resync {
		return
	}
	obj, remove := e.New, e.Type == informer.Deleted
	if remove {
		obj = e.Old
	}
	changes := []change{{key: m.keyOf(e.Key, obj), obj: obj, remove: remove}}
	if e.Type == informer.Updated {
		if before := m.keyOf(e.Key, e.Old); before != changes[0].key {
			changes = []change{{key: before, remove: true}, changes[0]}
		}
	}
	m.store.writer.Lock()
	defer m.store.writer.Unlock()
	for _, c := range changes {
		delete(m.store.byHand, c.key)
	}
	m.apply(changes)
	if !e.Listed {
		m.store.Bookmark(e.ResourceVersion)
	}
}

// apply changes the store, whose writer is held.
func (m mirror) apply(changes []change) {
	if err := m.store.apply(changes...); err != nil {
		klog.Background().Error(err, "An object is missing from an index", "informer", m.description)
	}
}

// reached is called when the core holds everything up to that version, and the store all that the core does. What was
// written to the store by hand before the latest list was complete is undone then.
func (m mirror) reached(_, resourceVersion string) {
	m.store.writer.Lock()
	defer m.store.writer.Unlock()
	if undo := m.store.writtenBefore(); len(undo) > 0 {
		truth := m.held(undo)
		var changes []change
		for _, key := range undo {
			obj, held := truth[key]
			changes = append(changes, change{key: key, obj: obj, remove: !held})
		}
		m.apply(changes)
	}
	m.store.Bookmark(resourceVersion)
}

// held returns what the core holds of the objects that have these keys in the store.
func (m mirror) held(keys []string) map[string]any {
	held := map[string]any{}
	for _, key := range keys {
		name, err := cache.ParseObjectName(key)
		if err != nil {
			continue
		}
		core := informer.Key{Namespace: name.Namespace, Name: name.Name}
		if obj, ok := m.core.Get(core); ok && m.keyOf(core, obj) == key {
			held[key] = obj
		}
	}
	if m.transform == nil || len(held) == len(keys) {
		return held
	}
	for obj := range m.core.All() { // those that the transform function has renamed
		if key := m.keyOf(informer.Key{}, obj); slices.Contains(keys, key) {
			held[key] = obj
		}
	}
	return held
}

// keyOf returns the key in the store of an object that has that key in the core: its own, which may be another one once
// the transform function has changed it.
func (s *sharedInformer) keyOf(key informer.Key, obj any) string {
	if s.transform == nil {
		return keyOf(key)
	}
	var own string
	var err error
	panicked := lifecycle.Try(func() { own, err = s.store.keyFunc(s.store.packs.object(obj)) })
	if panicked != nil || err != nil {
		return keyOf(key) // it is no object any more
	}
	return own
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
		klog.FromContext(ctx).Info("Warning: an informer runs only once, and this one has been started before",
			"informer", s.description)
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
	s.started, s.streams = true, features.FeatureGates().Enabled(features.WatchListClient)
	if s.watchErrors != nil {
		// It never runs: the handlers want to know its name and type.
		s.reflector = cache.NewReflectorWithOptions(s.lw, s.example, s.store,
			cache.ReflectorOptions{Name: s.description, TypeDescription: s.description})
	}
	return true
}

func (s *sharedInformer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *sharedInformer) HasSynced() bool { return s.core.HasSynced() }

func (s *sharedInformer) LastSyncResourceVersion() string {
	return s.core.ResourceVersion(metav1.NamespaceAll)
}

func (s *sharedInformer) GetStore() cache.Store     { return s.store }
func (s *sharedInformer) GetIndexer() cache.Indexer { return s.store }

func (s *sharedInformer) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return s.stoppedBefore("the indexers")
	}
	return s.store.AddIndexers(indexers)
}

// stoppedBefore is the error of a call that comes too late.
func (s *sharedInformer) stoppedBefore(what string) error {
	return fmt.Errorf("the informer of %s has stopped already, and does not take %s", s.description, what)
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
