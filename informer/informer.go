package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/store"
)

var (
	// ErrStarted is returned by a second Run: an informer runs once.
	ErrStarted = errors.New("the informer has been started before")
	// ErrStopped is returned by whatever waits for an informer whose Run has returned.
	ErrStopped = errors.New("the informer has stopped")
	// ErrRewound is returned by whatever waits for a version that lies in a future which the cluster has gone back from.
	ErrRewound = errors.New("the cluster has gone back to an older state")
	// ErrStale is wrapped by what Fresh says of a cache that is older than Options.MaxStaleness.
	ErrStale = errors.New("the server has been silent for longer than Options.MaxStaleness")
	// ErrStuck is wrapped by Run's error when a handler had not returned StopGrace after the end of its context. The error names it.
	ErrStuck = lifecycle.ErrStuck
)

// Options may be left zero: everything that the client lists, held as it is.
type Options[T any] struct {
	// Name stands for the informer in logs and errors. Empty: the type of its objects.
	Name string
	// LabelSelector and FieldSelector restrict what is listed and watched. Nil: everything.
	LabelSelector labels.Selector
	FieldSelector fields.Selector
	// Transform changes each object before it is stored, to drop what nobody reads. It owns the object and may change it in place. If it fails or
	// panics, the key is invalid (see [SharedIndexInformer.Invalid]), the rest goes on, and Transform is tried again on the object as it left it,
	// after 1 s, 2 s, 4 s ... 5 min. Nil: objects are stored as they come.
	Transform func(T) (T, error)
	// PageSize is the number of objects in a page of a plain list. Zero: 500.
	PageSize int64
	// MaxBytes bounds what the informer holds, by the size of the objects in the form in which they come (protobuf or JSON): the objects in memory take some
	// times as much, and what an index, a handler's buffer or a reader of All holds comes on top. Only a client made by [REST] sees that size.
	//
	// If the first list needs more, it fails, and [SharedIndexInformer.WaitForSync] with it. What has no room later is rejected (see
	// [SharedIndexInformer.Invalid]), the cache is Stale, and a new list every 5 minutes brings it as far as there is room. The errors wrap [ErrTooLarge].
	// Zero: no bound.
	MaxBytes int64
	// DisableWatchList lists by plain, paged lists from the start. Servers that cannot stream a list are found out by themselves; this saves
	// the attempt. The fake clients of client-go need it: they never end the stream's list.
	DisableWatchList bool
	// DetectMutations looks for code that changes objects of the cache, which are shared: a bug that shows far away from where it is. Each object is compared
	// with what it was once a minute, and when it leaves the cache or is replaced; a change is logged, with the object's key and the field, and counted in
	// Health.Mutated. The cache stays as it was changed. Made for tests, where it should be on. Elsewhere
	// it takes 8 bytes for each scalar of each object, 2 kB for a pod of two containers, and tens of microseconds for each comparison of such a pod, on the
	// goroutine that feeds the store. For a Project it sees what fn returns.
	DetectMutations bool
	// MaxStaleness is how old the cache may be, counted from when the server last told something, for [SharedIndexInformer.Fresh] to vouch for it and for
	// Health to call it Live. A server with nothing to tell says so about once a minute, so two minutes are the least that makes sense. Zero: any age.
	MaxStaleness time.Duration
	// VerifyEvery compares the cache with the server about this often (10 % more or less), in case that the server loses an event, which nobody would
	// notice before the next list. It costs a list each time, and a second list of the keys meanwhile. Objects that differ although no event of theirs can be
	// under way are counted in Health.Differences, and logged in one line; the cache is Stale then, and is listed again. Zero: never. Otherwise at
	// least a minute.
	VerifyEvery time.Duration
	// StopGrace is how long Run waits, once its context has ended, for handlers to return. Zero: 10 s.
	StopGrace time.Duration
}

// SharedIndexInformer holds a copy of what a client lists, keeps it up to date, and tells handlers of every change. Make one with [New], or
// with [Project] to hold less than the whole objects.
//
// All methods are safe for concurrent use. Objects that it gives out are shared by everybody: read them, and copy one before you change it.
type SharedIndexInformer[T any] struct {
	name      string
	stopGrace time.Duration
	reflector *reflector[T]
	fifo      *deltaFIFO[T]
	store     *indexer[T]
	health    *health

	// writer is a token, held by whoever changes the store, the list of indexes or the list of listeners. It is no mutex, because handlers
	// and index functions, the user's code, run while it is held: see HandlerOptions.Inline and AddIndex for what they may not do.
	writer chan struct{}
	// Held with the writer token: who is told of changes, and the scratch space for what they are told.
	listeners       []*listener[T]
	events, repeats []Event[T]
	// Held with the writer token; nil unless Options.DetectMutations.
	detector *detector[T]
	// Held with the writer token: the keys of all that has come in since a comparison with the server began; nil while there is none. See verify.
	touched     map[Key]struct{}
	verifyEvery time.Duration
	// reminder fires when somebody's turn may have come, see remind. It is set by Run, and after that reset with the writer token held.
	reminder *time.Timer
	// Held with the writer token: the epoch from which on versions count, see batch.
	rewound uint64
	// inside is the inline listener whose handler is being called, so that Run can name it if it never returns.
	inside atomic.Pointer[listener[T]]

	synced, stopped chan struct{} // closed when the store holds a complete list, and when Run returns

	started atomic.Bool // by Run, once
	mu      sync.Mutex
	// Guarded by mu. listen is set, and group used, from the start of Run until its end begins; then ending is.
	listen func(*listener[T])
	ending bool
	group  lifecycle.Group
}

// New makes an informer for the objects that client lists. T is their pointer type; L follows from the client:
//
//	pods, err := informer.New[*corev1.Pod](clientset.CoreV1().Pods(metav1.NamespaceAll), informer.Options[*corev1.Pod]{})
//
// It returns an error if the client is nil, lists objects of another type than T, or if an option has no meaning. Nothing is requested
// before Run.
func New[T Object, L runtime.Object](client Client[L], opts Options[T]) (*SharedIndexInformer[T], error) {
	return build(client, opts, decodeObject(opts.Transform))
}

// Project makes an informer that holds, of each object, only what fn makes of it: a value of any type, such as a struct of the few fields that a controller
// reads.
//
//	facts, err := informer.Project[*corev1.Pod](client, func(p *corev1.Pod) (podFacts, error) { ... }, informer.Options[*corev1.Pod]{})
//
// T is the pointer type of the objects that client lists; V and L follow. Keys, UIDs and resourceVersions are kept apart from the values, so everything
// else is as with [New]. fn runs after Options.Transform, and its failure is treated like one of that. It must neither keep nor change the object.
func Project[T Object, V any, L runtime.Object](client Client[L], fn func(T) (V, error), opts Options[T]) (*SharedIndexInformer[V], error) {
	if fn == nil {
		return nil, fmt.Errorf("informer %s: Project: the function is nil", opts.name())
	}
	return build(client, opts, decodeProjection(decodeObject(opts.Transform), fn))
}

// build makes an informer of values V out of objects T.
func build[V any, T Object, L runtime.Object](client Client[L], opts Options[T], decode decoder[V]) (*SharedIndexInformer[V], error) {
	name := opts.name()
	switch v := reflect.ValueOf(client); {
	case client == nil, v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("informer %s: the client is nil", name)
	case opts.PageSize < 0:
		return nil, fmt.Errorf("informer %s: Options.PageSize is %d; it is a number of objects, or zero for the default", name, opts.PageSize)
	case opts.MaxStaleness < 0:
		return nil, fmt.Errorf("informer %s: Options.MaxStaleness is %s; it is a duration, or zero for any age", name, opts.MaxStaleness)
	case opts.VerifyEvery != 0 && opts.VerifyEvery < time.Minute:
		return nil, fmt.Errorf("informer %s: Options.VerifyEvery is %s; it is at least a minute, or zero for never", name, opts.VerifyEvery)
	case opts.MaxBytes < 0:
		return nil, fmt.Errorf("informer %s: Options.MaxBytes is %d; it is a number of bytes, or zero for no bound", name, opts.MaxBytes)
	case opts.StopGrace < 0:
		return nil, fmt.Errorf("informer %s: Options.StopGrace is %s; it is a duration, or zero for the default", name, opts.StopGrace)
	}
	src, err := newSource(client, opts.Transform != nil)
	if err == nil {
		err = checkItemType[T, L]()
	}
	if _, bytes := src.(*rawSource); err == nil && opts.MaxBytes != 0 && !bytes {
		err = errors.New("Options.MaxBytes needs a client made by informer.REST: others do not tell the size of an object")
	}
	if err != nil {
		return nil, fmt.Errorf("informer %s: %w", name, err)
	}

	fifo, held, h := newDeltaFIFO[V](), newIndexer[V](), newHealth(opts.MaxStaleness)
	r := &reflector[V]{
		source:   src,
		selector: selector(opts),
		pageSize: opts.PageSize,
		decode:   decode,
		fifo:     fifo,
		budget:   budget[V]{opts.MaxBytes, held},
		health:   h,
		asked:    make(chan error, 1),
	}
	if r.pageSize == 0 {
		r.pageSize = 500
	}
	if !opts.DisableWatchList {
		r.streamsLeft = streamTries
	}
	inf := &SharedIndexInformer[V]{
		name: name, stopGrace: opts.StopGrace, reflector: r, fifo: fifo, store: held, health: h,
		writer: make(chan struct{}, 1), synced: make(chan struct{}), stopped: make(chan struct{}),
	}
	inf.verifyEvery = opts.VerifyEvery
	if opts.DetectMutations {
		inf.detector = newDetector[V]()
	}
	if inf.stopGrace == 0 {
		inf.stopGrace = 10 * time.Second
	}
	return inf, nil
}

func (opts Options[T]) name() string {
	if opts.Name != "" {
		return opts.Name
	}
	return reflect.TypeFor[T]().String()
}

func selector[T any](opts Options[T]) metav1.ListOptions {
	var s metav1.ListOptions
	if opts.LabelSelector != nil {
		s.LabelSelector = opts.LabelSelector.String()
	}
	if opts.FieldSelector != nil {
		s.FieldSelector = opts.FieldSelector.String()
	}
	return s
}

// Name returns Options.Name, or what stands for it.
func (inf *SharedIndexInformer[T]) Name() string { return inf.name }

// Run lists, watches and tells handlers until ctx ends, and returns when every goroutine that it started has ended. It returns nil then,
// an error that wraps [ErrStuck] if a handler did not return in time, or [ErrStarted] at once when it is called again. Whatever the server
// does is no reason to return: Run keeps trying, and [SharedIndexInformer.Health] tells. Events that wait for a handler at the end are dropped.
func (inf *SharedIndexInformer[T]) Run(ctx context.Context) error {
	if inf.started.Swap(true) {
		return fmt.Errorf("informer %s: %w", inf.name, ErrStarted)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := klog.FromContext(ctx).WithValues("informer", inf.name)

	inf.lockWriter()
	inf.reminder = time.NewTimer(0)
	inf.reminder.Stop()
	inf.mu.Lock()
	inf.health.log, inf.reflector.log = log, log
	inf.listen = func(l *listener[T]) {
		if !l.inline && l.start() {
			inf.group.Go("handler "+l.name+" of informer "+inf.name, func() { l.run(ctx, log) })
		}
	}
	for _, l := range inf.listeners {
		inf.listen(l)
	}
	inf.group.Go("reflector of informer "+inf.name, func() { inf.reflector.run(ctx) })
	inf.group.Go("store of informer "+inf.name, func() { inf.process(ctx, log) })
	if inf.verifyEvery > 0 {
		inf.group.Go("verifier of informer "+inf.name, func() { inf.verify(ctx, log) })
	}
	inf.mu.Unlock()
	inf.unlockWriter()

	<-ctx.Done()
	inf.mu.Lock()
	inf.listen, inf.ending = nil, true
	inf.mu.Unlock()
	err := inf.group.Wait(inf.stopGrace)
	if l := inf.inside.Load(); err != nil && l != nil {
		err = fmt.Errorf("%w, inside its inline handler %s", err, l.name)
	}
	inf.health.enter(Stopped, nil)
	close(inf.stopped)
	return err
}

func (inf *SharedIndexInformer[T]) lockWriter()   { inf.writer <- struct{}{} }
func (inf *SharedIndexInformer[T]) unlockWriter() { <-inf.writer }

// becomeWriter is lockWriter for whoever must not wait for ever: somebody's code may have kept the token past the end of Run.
func (inf *SharedIndexInformer[T]) becomeWriter() error {
	select {
	case inf.writer <- struct{}{}:
		return nil
	default:
	}
	select {
	case inf.writer <- struct{}{}:
		return nil
	case <-inf.stopped:
		return ErrStopped
	}
}

// AddHandler lets h be told of every change. It may be called before Run and while it runs; then h is first told of everything that the
// store holds, as Added with Initial set, and misses nothing that follows. An inline handler is told so before AddHandler returns, by this
// goroutine. Once Run ends, the error is [ErrStopped].
func (inf *SharedIndexInformer[T]) AddHandler(h Handler[T], opts HandlerOptions) (*Registration, error) {
	switch {
	case h == nil:
		return nil, fmt.Errorf("informer %s: AddHandler: the handler is nil", inf.name)
	case opts.Resync != 0 && opts.Resync < minResync:
		return nil, fmt.Errorf("informer %s: AddHandler: HandlerOptions.Resync is %s; it is at least %s, or zero for never", inf.name, opts.Resync, minResync)
	}
	if err := inf.becomeWriter(); err != nil {
		return nil, fmt.Errorf("informer %s: AddHandler: %w", inf.name, err)
	}
	defer inf.unlockWriter()
	l := newListener(h, opts)
	inf.mu.Lock()
	if inf.ending {
		inf.mu.Unlock()
		return nil, fmt.Errorf("informer %s: AddHandler: %w", inf.name, ErrStopped)
	}
	if inf.listen != nil {
		inf.listen(l)
	}
	inf.mu.Unlock()

	// The store stands still while the writer token is held, so the snapshot and the events that follow meet without a gap.
	stored := inf.store.Rows()
	var joined []Event[T]
	for row := range store.Row(stored) {
		it := inf.store.item(row)
		joined = append(joined, Event[T]{Type: Added, Key: it.key, UID: it.uid, ResourceVersion: it.resourceVersion, New: it.value, Initial: true})
		if len(joined) == chunk {
			inf.push(l, inf.health.log, stored, joined)
			joined = nil
		}
	}
	if inf.HasSynced() {
		joined = append(joined, Event[T]{})
	}
	inf.push(l, inf.health.log, stored, joined)
	// Those that have been removed are forgotten here, too: when nothing changes, nobody else would.
	inf.listeners = append(slices.DeleteFunc(inf.listeners, (*listener[T]).isRemoved), l)
	if l.resync != nil && inf.HasSynced() {
		inf.reminder.Reset(0)
	}
	return &Registration{synced: l.synced, pending: l.pending, merged: l.mergedAway, done: l.ended, remove: func(ctx context.Context) error { return inf.removeListener(ctx, l) }}, nil
}

func (inf *SharedIndexInformer[T]) removeListener(ctx context.Context, l *listener[T]) error {
	l.remove()
	if !l.inline {
		select {
		case <-l.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case inf.writer <- struct{}{}: // nobody is inside the handler now, and the next tell forgets it
		inf.unlockWriter()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Synced is closed once the store holds a complete list.
func (inf *SharedIndexInformer[T]) Synced() <-chan struct{} { return inf.synced }

// HasSynced reports whether the store holds a complete list.
func (inf *SharedIndexInformer[T]) HasSynced() bool {
	select {
	case <-inf.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until the store holds a complete list. If ctx ends before, the error wraps the reason why there is none yet, such as the
// server's 403, and the cause of ctx; if Run returns before, it is [ErrStopped].
func (inf *SharedIndexInformer[T]) WaitForSync(ctx context.Context) error {
	select {
	case <-inf.synced:
		return nil
	default:
	}
	select {
	case <-inf.synced:
		return nil
	case <-inf.stopped:
		return fmt.Errorf("informer %s: %w before its first list was complete", inf.name, ErrStopped)
	case <-ctx.Done():
	}
	if err := inf.Health().LastError; err != nil {
		return fmt.Errorf("informer %s: no complete list yet (%w): %w", inf.name, context.Cause(ctx), err)
	}
	return fmt.Errorf("informer %s: no complete list yet: %w", inf.name, context.Cause(ctx))
}

// Fresh returns nil if the cache may be acted on: it holds a complete list, and the server has told something within Options.MaxStaleness. Otherwise the
// error says why not: it wraps what keeps the list from being complete, or [ErrStale] and the latest trouble, if there was any.
func (inf *SharedIndexInformer[T]) Fresh() error {
	if err := inf.health.fresh(inf.HasSynced()); err != nil {
		return fmt.Errorf("informer %s: %w", inf.name, err)
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

// ResourceVersion returns the version of the server that the store has reached: everything that happened up to it is in the store. Bookmarks
// move it, too. Empty: no list has been completed.
func (inf *SharedIndexInformer[T]) ResourceVersion() string { return inf.store.version() }

// WaitForResourceVersion waits until the store has reached a version: that of an object which has just been written, say. By then handlers that are
// inline have been told of it; the others soon will be.
//
// It returns [ErrStopped] if Run returns before, [ErrRewound] if the cluster goes back in time meanwhile, so that the version may never come, and an error
// at once if the version is no number, as those of some aggregated APIs: then there is no before and after. If ctx ends, the error wraps its cause.
func (inf *SharedIndexInformer[T]) WaitForResourceVersion(ctx context.Context, resourceVersion string) error {
	fail := func(err error) error {
		return fmt.Errorf("informer %s: waiting for resourceVersion %q, at %q: %w", inf.name, resourceVersion, inf.ResourceVersion(), err)
	}
	if _, err := resourceversion.CompareResourceVersion(resourceVersion, resourceVersion); err != nil {
		return fail(err)
	}
	rewinds := inf.Health().Rewinds
	for {
		reached, moved := inf.store.versionAndMove()
		switch {
		case inf.Health().Rewinds != rewinds:
			return fail(ErrRewound)
		case reached == "" || older(reached, resourceVersion):
		default:
			if _, err := resourceversion.CompareResourceVersion(reached, resourceVersion); err != nil {
				return fail(err)
			}
			return nil
		}
		select {
		case <-moved:
		case <-inf.stopped:
			return fail(ErrStopped)
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}

// Invalid returns why the present state of that object, as it is on the server, could not be taken into the store, or nil. Such an object exists: nobody
// is told that it was deleted. Get answers with its last good state, if there was one.
func (inf *SharedIndexInformer[T]) Invalid(key Key) error { return inf.store.rejected(key) }

// Health tells how the cache is doing.
func (inf *SharedIndexInformer[T]) Health() Health {
	h := inf.health.get()
	inf.store.RLock()
	defer inf.store.RUnlock()
	h.Rejected, h.Bytes = len(inf.store.invalid), inf.store.bytes.Load()
	return h
}
