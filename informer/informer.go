package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

var (
	// ErrStarted is returned by a second Run. An informer runs once.
	ErrStarted = errors.New("the informer has been started before")
	// ErrStopped is returned by methods that need Run, once Run has returned.
	ErrStopped = errors.New("the informer has stopped")
	// ErrRewound is returned by WaitForResourceVersion if the cluster goes back in time, as after a restore: then it
	// may never reach the version.
	ErrRewound = errors.New("the cluster has gone back to an older state")
	// ErrStale is wrapped by the error of Fresh for a cache that is older than Options.MaxStaleness.
	ErrStale = errors.New("the cache is older than Options.MaxStaleness")
	// ErrScope is wrapped by the errors of New and Rescope for a scope that cannot be followed.
	ErrScope = errors.New("the scope cannot be followed")
	// ErrOutOfScope is returned by WaitForResourceVersion for a namespace that the informer does not follow.
	ErrOutOfScope = errors.New("the namespace is out of the informer's scope")
	// ErrStuck is wrapped by Run's error if a goroutine has not ended Options.StopGrace after Run's context. The
	// error names the goroutine, and with it the handler.
	ErrStuck = lifecycle.ErrStuck
)

// Options may be left zero: everything that the client lists, held as it is.
type Options[T any] struct {
	// Name is the informer's name in logs and errors. Empty: the type of its objects.
	Name string
	// LabelSelector and FieldSelector restrict what is listed and watched. Nil: everything.
	LabelSelector labels.Selector
	FieldSelector fields.Selector
	// Transform changes each object before it is stored, for instance to drop fields that the program does not read.
	// It owns the object until it returns, and may change it in place. If it fails or panics, the key is invalid
	// (see [SharedIndexInformer.Invalid]), other objects are not affected, and Transform is called again with the
	// object as it left it, after 1 s, 2 s, 4 s ... 5 min. Several goroutines may call it at once. Nil: objects are
	// stored as they come.
	Transform func(T) (T, error)
	// Shard, if set, lets the informer keep a share of the objects, of those in its scope, where several replicas of a
	// program have a share each: memory, and with a [Resource] the time for decoding, fall with the share. Package
	// reconcile/sharding has functions that return one; one Shard is for one informer. An object outside of the share
	// costs its metadata, which the server sends for all objects.
	//
	// The share may change at any time: see [Sharded]. Then Get, lookups and handlers know nothing of an object that is
	// kept by another replica, as if there was none, so read only what belongs to the keys of this one. State, Synced
	// and Fresh do not tell whether the objects of a slice that has come are here: Health.Slices counts those of which
	// they are. An object that a change takes out of the share is Deleted, with FinalStateUnknown set; one whose slice
	// is given away is Deleted with Event.Left set, and its version may come back when the slice does. [NewReferenced]
	// takes no Shard: it keeps what is named.
	Shard Shard
	// PageSize is the number of objects in a page of a plain list. Zero: 500.
	PageSize int64
	// DisableWatchList lists by plain, paged lists from the start. It is not needed: the informer detects a server
	// that cannot stream a list, and the fake clients of client-go. It saves the attempt.
	DisableWatchList bool
	// DetectMutations looks for code that changes objects of the cache, which are shared. The informer compares each
	// object with its state when it was stored: once a minute, and when the object is replaced or leaves the cache.
	// It logs a change, with the object's key and the field, counts it in Health.Mutated, and does not undo it. Turn
	// it on in tests. In production consider the cost: 8 bytes for each scalar of each object, 2 kB for a pod of two
	// containers, and tens of microseconds for each comparison of such a pod, on the goroutine that feeds the store.
	// For a Project it compares what fn returned.
	DetectMutations bool
	// MaxStaleness is the longest time since Health.LastProgress. When it has passed, the cache is Stale
	// and [SharedIndexInformer.Fresh] returns an error. A server without news sends a bookmark about once a minute,
	// so the least value is two minutes. Zero: the cache may have any age.
	MaxStaleness time.Duration
	// VerifyEvery is how often the cache is compared with the server (10 % more or less): an event that the server
	// has lost would otherwise go unnoticed until the next list. Each comparison costs a list, and meanwhile the
	// memory for a second list of the keys. Objects that differ although no event of theirs can be under way are
	// counted in Health.Differences and logged in one line; then the cache is Stale and is listed again. Zero: never.
	// The least value is a minute.
	VerifyEvery time.Duration
	// MaxWatches is how many objects of one namespace an informer that [NewReferenced] has made watches one by one. If
	// more are named, it follows the metadata of all objects of the namespace, and lists each named object by its name
	// when it has changed; until half as many are named. See [Referenced]. Zero: 500.
	MaxWatches int
	// StopGrace is how long Run waits for handlers to return once its context has ended. Zero: 10 s.
	StopGrace time.Duration
}

// SharedIndexInformer holds a copy of what a client lists, keeps it up to date, and tells handlers of every change.
// Make one with [New], with [Project] to hold less than the whole objects, or with [NewNamespaced] to follow several
// namespaces. Its zero value is not useful.
//
// Some methods take a namespace, because a cache of several namespaces follows each of them by itself. It is one of
// these, or NamespaceAll for all of them together. For an informer of one client any namespace means the same: all
// that the client lists.
//
// All methods are safe for concurrent use. The objects that they return are the cache's own: copy one before you
// change it.
type SharedIndexInformer[T any] struct {
	// These never change. ready holds a token whenever there may be something in a FIFO; stopped is closed when Run
	// returns.
	name                   string
	stopGrace, verifyEvery time.Duration
	pageSize               int64
	maxWatches             int
	disableWatchList       bool
	origin                 origin
	decode                 decoder[T]
	store                  *indexer[T]
	weight                 *weight[T]
	health                 *health
	share                  *share // nil: everything is kept
	ready                  chan struct{}
	stopped                chan struct{}

	// The goroutine that has the token, which is the one slot of that channel, has the writer: see write.
	token  chan struct{}
	writer writer[T]

	// These guard themselves. Only the writer replaces followed.
	followed atomic.Pointer[followed[T]]
	started  atomic.Bool     // by Run, once
	group    lifecycle.Group // used while listen and follow are set

	mu sync.Mutex
	// Guarded by mu. listen and follow start the goroutines of a handler and of a list-watch. They are set from the
	// start of Run until its end begins; then ending is.
	listen func(*listener[T])
	follow func(*listWatch[T])
	ending bool
}

// New makes an informer for the objects that client lists. T is their pointer type, and follows from the type of opts;
// L follows from the client. If the compiler cannot infer L, the client lacks one of the methods of [Client].
//
//	pods, err := informer.New(resource, informer.Options[*corev1.Pod]{}) // resource is one of NewResource
//	pods, err := informer.New(clientset.CoreV1().Pods(namespace), informer.Options[*corev1.Pod]{})
//
// The error names everything that is wrong: a nil client, a client that lists objects of another type than T, options
// that have no meaning. New sends no request; Run does.
func New[T Object, L runtime.Object](client Client[L], opts Options[T]) (*SharedIndexInformer[T], error) {
	return build(only(client, opts, opts.change(true)), nil, opts, decodeObject(opts.Transform))
}

// Project makes an informer that holds, of each object, only what fn makes of it: a value of any type, such as a
// struct of the few fields that a controller reads.
//
//	facts, err := informer.Project(resource, func(p *corev1.Pod) (podFacts, error) { ... },
//		informer.Options[*corev1.Pod]{})
//
// T is the pointer type of the objects that client lists; V and L follow. Keys, UIDs and resourceVersions are kept
// apart from the values, so everything else is as with [New]. fn is called after Options.Transform, under the same
// rules: several goroutines may call it at once, and its failure makes the key invalid. It must neither keep nor
// change the object. Package informer/packed has such a function that keeps all of the object, as compressed bytes.
func Project[T Object, V any, L runtime.Object](client Client[L], fn func(T) (V, error),
	opts Options[T]) (*SharedIndexInformer[V], error) {
	return build(only(client, opts, opts.change(false)), nil, opts, decodeProjection(decodeObject(opts.Transform), fn))
}

// origin is where the list-watches of an informer get their sources from.
type origin struct {
	source     func(namespace string) (source, error)
	mistake    error       // why there can be no source
	namespaced bool        // it has one for each namespace
	references *references // what is followed by name; nil: everything is followed
	share      *share      // of Options.Shard
	// metadata makes the client of a namespace for metadata only, or returns nil; it is set with references.
	metadata func(namespace string) Client[*List[*metav1.PartialObjectMetadata]]
	resource schema.GroupVersionResource // zero if it is not known
}

// only is the origin of an informer of one client.
func only[T Object, L runtime.Object](client Client[L], opts Options[T], change intern.Change) origin {
	share := newShare(opts.Shard)
	decoder := decoders(change, false, share)
	from := origin{share: share, source: func(string) (source, error) { return newSource[T](client, decoder) }}
	if c, says := any(client).(interface {
		GroupVersionResource() schema.GroupVersionResource
	}); says && !kube.IsNil(client) {
		from.resource = c.GroupVersionResource()
	}
	return from
}

// build makes an informer of values V out of objects T.
func build[T Object, V any](from origin, namespaces []string, opts Options[T],
	decode decoder[V]) (*SharedIndexInformer[V], error) {
	inf := &SharedIndexInformer[V]{
		name: cmp.Or(opts.Name, reflect.TypeFor[T]().String()), verifyEvery: opts.VerifyEvery,
		stopGrace: cmp.Or(opts.StopGrace, 10*time.Second),
		origin:    from, decode: decode, pageSize: cmp.Or(opts.PageSize, 500), disableWatchList: opts.DisableWatchList,
		maxWatches: cmp.Or(opts.MaxWatches, defaultWatches),
		store:      newIndexer[V](), weight: &weight[V]{}, health: &health{maxStaleness: opts.MaxStaleness},
		share: from.share,
		ready: make(chan struct{}, 1), token: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	inf.writer.inf, inf.writer.store, inf.writer.health = inf, inf.store, inf.health
	inf.writer.guides = make(guides[V])
	if opts.DetectMutations {
		inf.writer.detector = newDetector[V]()
	}
	first, err := new(followed[V]).rescoped(inf, Scope{Namespaces: namespaces, LabelSelector: opts.LabelSelector,
		FieldSelector: opts.FieldSelector, ByName: from.references != nil})
	wrong := append(opts.check(), err)
	if decode == nil {
		wrong = append(wrong, errors.New("Project: the function is nil"))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("informer %s: %w", inf.name, err)
	}
	inf.followed.Store(first)
	if inf.share != nil {
		connect(inf.share, inf)
	}
	return inf, nil
}

// check returns an error for each number that has no meaning.
func (opts Options[T]) check() (wrong []error) {
	bad := func(format string, value any) { wrong = append(wrong, fmt.Errorf(format, value)) }
	if opts.PageSize < 0 {
		bad("Options.PageSize is %d; it is a number of objects, or zero for the default", opts.PageSize)
	}
	if opts.MaxWatches < 0 {
		bad("Options.MaxWatches is %d; it is a number of objects, or zero for the default", opts.MaxWatches)
	}
	if opts.MaxStaleness != 0 && opts.MaxStaleness < 2*time.Minute {
		bad("Options.MaxStaleness is %s; it is at least two minutes, or zero for any age", opts.MaxStaleness)
	}
	if opts.VerifyEvery != 0 && opts.VerifyEvery < time.Minute {
		bad("Options.VerifyEvery is %s; it is at least a minute, or zero for never", opts.VerifyEvery)
	}
	if opts.StopGrace < 0 {
		bad("Options.StopGrace is %s; it is a duration, or zero for the default", opts.StopGrace)
	}
	return wrong
}

// Name returns Options.Name, or the type of the objects if that is empty.
func (inf *SharedIndexInformer[T]) Name() string { return inf.name }

// Run lists, watches and tells handlers until ctx ends. It returns nil when every goroutine that it started has
// ended, or, after Options.StopGrace, an error that wraps [ErrStuck]. A second Run returns [ErrStarted] at once. No
// error of the server ends Run: it keeps trying, and [SharedIndexInformer.Health] tells. When ctx ends, events that
// wait for a handler are dropped.
func (inf *SharedIndexInformer[T]) Run(ctx context.Context) error {
	if inf.started.Swap(true) {
		return fmt.Errorf("%w: %s runs once; a Manager that has it runs it", ErrStarted, inf.name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := klog.FromContext(ctx).WithValues("informer", inf.name)

	defer inf.share.join()()
	_ = inf.write(func(w *writer[T]) { // it fails only when Run has returned
		w.start(ctx, log)
		w.sync() // an informer of what is named has nothing to list yet
	})

	<-ctx.Done()
	inf.mu.Lock()
	inf.listen, inf.follow, inf.ending = nil, nil, true
	inf.mu.Unlock()
	err := inf.group.Wait(inf.stopGrace)
	if l := inf.writer.inside.Load(); err != nil && l != nil {
		err = fmt.Errorf("%w, inside its inline handler %s", err, l.name)
	}
	for _, l := range inf.followed.Load().listWatches {
		l.health.stop()
	}
	close(inf.stopped)
	return err
}

// start starts the informer's goroutines, which end when ctx does.
func (w *writer[T]) start(ctx context.Context, log klog.Logger) {
	inf := w.inf
	w.ctx, w.log, inf.health.log = ctx, log, log
	w.reminder = time.NewTimer(0)
	w.reminder.Stop()
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.listen = func(l *listener[T]) {
		if !l.inline && l.start() {
			watched, ended := context.WithCancel(ctx)
			know := func(err error) { inf.health.handlerStuck(&l.pulse, l.ended, err) }
			l.pulse.watch(watched, "handler "+l.name, know)
			inf.group.Keep("handler "+l.name+" of informer "+inf.name, func() {
				l.run(ctx, log)
				ended()
				know(nil)
			})
		}
	}
	for _, l := range w.listeners {
		inf.listen(l)
	}
	inf.follow = func(l *listWatch[T]) { l.start(ctx, inf, log) }
	for _, l := range inf.followed.Load().listWatches {
		inf.follow(l)
	}
	w.pulse.watch(ctx, "store", func(err error) {
		for _, l := range inf.followed.Load().listWatches {
			l.health.knows(stuckStore, err)
		}
	})
	inf.group.Go("store of informer "+inf.name, func() { inf.feed(ctx) })
}

// Synced is closed once the store holds a complete list, of each namespace if there are several. After a
// [SharedIndexInformer.Rescope] that adds something to list, Synced returns another channel, which is open; the one
// before stays closed.
func (inf *SharedIndexInformer[T]) Synced() <-chan struct{} { return inf.followed.Load().synced }

// HasSynced reports whether the store holds a complete list.
func (inf *SharedIndexInformer[T]) HasSynced() bool { return closed(inf.followed.Load().synced) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Fresh returns nil if the cache of a namespace may be acted on: Run has not ended, the cache holds a complete list, it
// holds nothing that may be gone, no goroutine that feeds it stands still, and Health.LastProgress is not longer ago
// than Options.MaxStaleness. Otherwise the error wraps the reason: [ErrStopped], what keeps the list from being
// complete, what is wrong, or [ErrStale] and the latest failure, if there was one. For a namespace out of scope Fresh
// returns nil.
func (inf *SharedIndexInformer[T]) Fresh(namespace string) error {
	followed := inf.followed.Load()
	if followed.scope.ByName && namespace != metav1.NamespaceAll {
		return freshByName(inf, followed, namespace)
	}
	listWatches := followed.in(namespace)
	for _, l := range listWatches {
		if err := l.health.fresh(); err != nil {
			return fmt.Errorf("informer %s: %w", inf.name, err)
		}
	}
	if len(listWatches) == 0 && namespace == metav1.NamespaceAll && closed(inf.stopped) {
		return fmt.Errorf("informer %s: %w", inf.name, ErrStopped)
	}
	return nil
}

// Get returns the object of that key, if the store holds one.
func (inf *SharedIndexInformer[T]) Get(key Key) (T, bool) { return inf.store.Get(key) }

// Len returns how many objects the store holds.
func (inf *SharedIndexInformer[T]) Len() int { return inf.store.Len() }

// All returns all objects: one consistent snapshot, taken when the loop starts, in no particular order.
func (inf *SharedIndexInformer[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, value := range inf.store.Values() {
			if !yield(value) {
				return
			}
		}
	}
}

// Keys returns the keys of all objects, in no particular order.
func (inf *SharedIndexInformer[T]) Keys() []Key { return inf.store.Keys() }

// ResourceVersion returns the version that the store has reached in a namespace: everything that happened there up to
// that version is in the store. Bookmarks move it, too. For NamespaceAll, if the informer follows several namespaces,
// it is the lowest of theirs, and if it follows single objects, the lowest of those that are known. Empty: no list of
// what is in scope has been completed.
func (inf *SharedIndexInformer[T]) ResourceVersion(namespace string) string {
	lowest := ""
	followed := inf.followed.Load()
	for _, l := range followed.in(namespace) {
		switch version := l.reached.get(); {
		case version == "" && followed.scope.ByName:
		case version == "":
			return ""
		case lowest == "" || kube.Older(version, lowest):
			lowest = version
		}
	}
	return lowest
}

// Health tells how the cache is doing.
func (inf *SharedIndexInformer[T]) Health() Health {
	h := inf.HealthIn(metav1.NamespaceAll)
	h.Bytes = inf.weight.get(inf.store)
	for _, g := range inf.followed.Load().guides() {
		h.Bytes += g.metadata.weight.get(g.metadata.store)
	}
	return h
}

// HealthIn tells how the cache of a namespace is doing; State is empty if the namespace is out of scope. Rejected and
// the fields after it are counted for all namespaces together. Bytes is zero, since to weigh a cache takes a while.
func (inf *SharedIndexInformer[T]) HealthIn(namespace string) Health {
	followed := inf.followed.Load()
	listWatches := followed.in(namespace)
	all := namespace == metav1.NamespaceAll
	h := Health{}
	switch {
	case all && followed.scope.ByName:
		h = together(inf, listWatches)
	case all && len(listWatches) == 0:
		h = ofNothing(inf, followed)
	case len(listWatches) == 0:
		return Health{}
	default:
		h = worst(listWatches)
	}
	if all { // namespaces that have left count, too
		h.Lists, h.Rewinds = int(inf.health.lists.Load()), int(inf.health.rewinds.Load())
	}
	inf.health.count(&h)
	h.Resource, h.Slices = inf.origin.resource, inf.share.size()
	for _, l := range listWatches {
		h.Queued += l.fifo.len()
		if l.reflector.guide.Load() != nil {
			h.ByMetadata++
		}
	}
	inf.store.RLock()
	defer inf.store.RUnlock()
	h.Rejected = len(inf.store.invalid)
	return h
}

// ofNothing is the health of an informer that follows no namespace: there is nothing that it could miss.
func ofNothing[T any](inf *SharedIndexInformer[T], followed *followed[T]) Health {
	switch {
	case closed(inf.stopped):
		return Health{State: Stopped, Since: followed.since}
	case !inf.HasSynced(): // Run has not begun
		return Health{State: Listing, Since: followed.since}
	default:
		return Health{State: Live, Since: followed.since}
	}
}
