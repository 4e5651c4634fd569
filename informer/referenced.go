package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

var (
	// ErrNotNamed is wrapped by the error of [Referenced.Get] for an object that nothing names.
	ErrNotNamed = errors.New("not followed, since nothing names it")
	// ErrNotKnown is wrapped by the errors of [Referenced.Get] and Fresh for an object that is named, and of which the
	// cache does not know yet whether it exists.
	ErrNotKnown = errors.New("not known yet")
)

// Referenced is a cache of those objects of a resource that are named, such as the 200 Secrets that the objects of a
// program name, of 33,000 in the cluster. Make one with [NewReferenced], and say with [AddReferences] or
// [Referenced.NamedBy] what names its objects.
//
// Each object is followed by a list and a watch of its own, by metadata.name, from when it is first named until nothing
// names it any more. So the cache is as large as what is named, and a Role that grants list and watch with
// resourceNames is enough. An object that the server does not let the program see affects no other.
//
// It is a [SharedIndexInformer] with these differences:
//
//   - Synced is closed when Run begins. [Referenced.Get] says of each object whether it is known.
//   - Where a method takes a namespace, it takes the key of an object instead, as [Key.String] prints it, or
//     NamespaceAll. Fresh wraps [ErrNotKnown] for an object that is not known yet.
//   - An object that nothing names any more leaves the cache: handlers are told Deleted, with FinalStateUnknown set.
//     Event does not tell that from a deletion; [Referenced.Get] does.
//   - Rescope returns an error.
//
// A name costs a watch, of which a real server and this process each hold tens of kilobytes. So if more than
// Options.MaxWatches objects of one namespace are named, and the client is a [Resource], the metadata of the whole
// namespace is listed and watched instead, and each named object is listed by its name when it is named and when its
// metadata shows another version: one request for each change. That needs the right to list and watch all objects of
// the namespace. Without it the objects are watched one by one; a log line says so, and so does Health.ByMetadata. An
// object that is followed by metadata is Listing until the metadata has been listed, although Get returns it as soon as
// it has been listed itself, and Stale while the metadata cannot be followed. Its handlers are told Deleted with
// FinalStateUnknown set.
//
//	a name, with a server over HTTP/2   heap     stacks   goroutines   in the server
//	with a watch (3,000 names)          17 kB    21 kB    3            72 kB
//	by metadata (10,000 names)          6.3 kB   4.3 kB   1            5 kB
//
// Each object of a namespace whose metadata is followed takes 0.2 kB.
type Referenced[T any] struct {
	*SharedIndexInformer[T]
}

// NewReferenced makes a cache of the objects that are named. client makes the client of a namespace, as for
// [NewNamespaced]; NamespaceAll stands for objects that live in none.
//
//	secrets, err := informer.NewReferenced(resource.In, informer.Options[*corev1.Secret]{})
//	_, err = informer.AddReferences(sites, secrets, func(s *v1.Website) []informer.Key {
//		return []informer.Key{{Namespace: s.Namespace, Name: s.Spec.Secret}}
//	})
//
// Package reconcile has References, which does the latter for a controller.
//
// It returns the errors of [New].
func NewReferenced[T Object, L runtime.Object, C Client[L]](client func(namespace string) C,
	opts Options[T]) (*Referenced[T], error) {
	from := each[T, L](client, decoders(opts.change(true), true, nil))
	from.references = &references{changed: make(map[Key]struct{}), made: time.Now()}
	from.metadata = func(namespace string) Client[*List[*metav1.PartialObjectMetadata]] {
		if r, ok := any(client(namespace)).(*Resource[T]); ok && r.at().check() == nil {
			return onlyMetadata(r)
		}
		return nil
	}
	inf, err := build(from, nil, opts, decodeObject(opts.Transform))
	if err != nil {
		return nil, err
	}
	switch {
	case client == nil:
		return nil, fmt.Errorf("informer %s: the function that makes the clients is nil", inf.name)
	case opts.Shard != nil:
		return nil, fmt.Errorf("informer %s: Options.Shard is set, and a Referenced keeps what is named", inf.name)
	}
	from.references.ready = inf.ready
	return &Referenced[T]{inf}, nil
}

// NamedBy adds a function that says whether an object is named. An object is followed while one of these functions
// returns true for it. [Referenced.Recheck] says for which objects the answer may have changed. The functions are
// called on the cache's own goroutine and by Fresh: they must be quick, and must not wait for the cache.
func (r *Referenced[T]) NamedBy(named func(Key) bool) {
	refs := r.origin.references
	refs.mu.Lock()
	defer refs.mu.Unlock()
	refs.named = append(refs.named, named)
}

// Recheck says that the functions of [Referenced.NamedBy] may answer differently for these objects than before. It does
// not wait until they are followed, and may be called from any handler.
func (r *Referenced[T]) Recheck(keys ...Key) { r.origin.references.recheck(keys) }

// Get returns the object of that key, or false if the server had none when the cache last heard of it. The error wraps
// [ErrNotNamed] if nothing names the object. It wraps [ErrNotKnown], and the reason, such as a 403, if the object is
// named and the cache has no answer of the server yet. So false without an error is always what the server has said. If
// the cache could not take the object, the error is that of Invalid.
func (r *Referenced[T]) Get(key Key) (value T, exists bool, err error) {
	l := r.followed.Load().listWatch(key)
	if l != nil && l.health.complete() {
		value, exists, err = r.store.getOrInvalid(key)
		// The object leaves the store after its list-watch has left what is followed.
		if r.followed.Load().listWatch(key) == l {
			return value, exists, err
		}
	}
	var none T
	if err = r.Fresh(key.String()); err == nil { // at the last moment
		err = fmt.Errorf("informer %s: object %s is %w", r.name, briefKey(key), ErrNotKnown)
	}
	return none, false, err
}

// Live is Live of a SharedIndexInformer for an object that is named. For any other its error wraps [ErrNotNamed], or
// [ErrNotKnown] in the moment before the cache begins to follow the object, since the cache does not ask for it.
func (r *Referenced[T]) Live(ctx context.Context, key Key) (value T, exists bool, err error) {
	if r.followed.Load().listWatch(key) == nil {
		if err = r.Fresh(key.String()); err == nil { // followed at the last moment
			err = fmt.Errorf("informer %s: object %s is %w", r.name, briefKey(key), ErrNotKnown)
		}
		return value, false, err
	}
	return r.SharedIndexInformer.Live(ctx, key)
}

// AddReferences lets the objects of an informer name objects of a [Referenced]. names returns the keys that an object
// names; a key without a name names nothing. It is the function of an index, which AddReferences returns: under the key
// of an object it finds those that name it. So the rules of [AddIndex] hold for names.
func AddReferences[R, T any](from *SharedIndexInformer[R], to *Referenced[T],
	names func(R) []Key) (*Index[Key, R], error) {
	switch {
	case to == nil:
		return nil, errors.New("informer: AddReferences: the Referenced is nil")
	case names == nil:
		return nil, errors.New("informer: AddReferences: the function is nil")
	}
	ix, err := AddIndex(from, func(o R, add func(Key)) {
		for _, key := range names(o) {
			add(key)
		}
	})
	if err != nil {
		return nil, err
	}
	to.NamedBy(func(key Key) bool { return ix.Has(key) })
	namedIn := func(o R) (keys []Key) {
		_ = lifecycle.Try(func() { keys = names(o) }) // the store holds nothing that the index could not take
		return keys
	}
	_, err = from.AddHandler(func(e Event[R]) {
		if e.Type != Added {
			to.Recheck(namedIn(e.Old)...)
		}
		if e.Type != Deleted {
			to.Recheck(namedIn(e.New)...)
		}
	}, HandlerOptions{Name: "references to " + to.name, Inline: true})
	return ix, err
}

// references says which objects are named.
type references struct {
	ready chan<- struct{} // of the informer; set before it is used
	made  time.Time

	mu sync.Mutex
	// Guarded by mu. changed are the keys that named is to be asked about again; guided says that a guide is in another
	// state.
	named   []func(Key) bool
	changed map[Key]struct{}
	guided  bool
}

func (r *references) recheck(keys []Key) {
	if len(keys) == 0 {
		return
	}
	r.mu.Lock()
	for _, key := range keys {
		r.changed[key] = struct{}{}
	}
	r.mu.Unlock()
	r.wake()
}

// look lets the informer look at the states of its guides.
func (r *references) look() {
	r.mu.Lock()
	r.guided = true
	r.mu.Unlock()
	r.wake()
}

func (r *references) wake() {
	select {
	case r.ready <- struct{}{}:
	default: // the informer is going to look anyway
	}
}

// take returns the keys that are to be asked about, and whether a guide is in another state, once. Nil references have
// none.
func (r *references) take() (changed map[Key]struct{}, guided bool) {
	if r == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	guided = r.guided
	r.guided = false
	if len(r.changed) > 0 {
		changed = r.changed
		r.changed = make(map[Key]struct{})
	}
	return changed, guided
}

// name reports whether an object is named. It calls the functions without the lock.
func (r *references) name(key Key) bool {
	r.mu.Lock()
	named := r.named // which only grows
	r.mu.Unlock()
	return key.Name != "" && slices.ContainsFunc(named, func(named func(Key) bool) bool { return named(key) })
}

// refollow begins to follow those of the keys that are named, and gives up those that are not. There may be thousands
// of names, of which one changes: so it copies what stays, and compares only what changes.
func (w *writer[T]) refollow(changed map[Key]struct{}) {
	inf := w.inf
	from := inf.followed.Load()
	var joining, leaving []*listWatch[T]
	for key := range changed {
		followed := from.listWatch(key)
		switch named := inf.origin.references.name(key); {
		case named && followed == nil:
			src, err := inf.origin.of(key.Namespace)
			if err != nil {
				src = noSource{err}
			}
			joining = append(joining, newListWatch(inf, part{key.Namespace, key.Name}, src, from.selector))
		case !named && followed != nil:
			leaving = append(leaving, followed)
		}
	}
	if len(joining)+len(leaving) == 0 {
		return
	}
	next := *from
	next.listWatches = without(from.listWatches, leaving)
	next.listWatches = with(next.listWatches, joining)
	w.guides.prepare(w, joining, &next)
	_ = w.follow(&next, joining, leaving) // it fails only when Run has ended
}

// without returns a copy of ordered list-watches without some of them.
func without[T any](all, leaving []*listWatch[T]) []*listWatch[T] {
	order(leaving)
	rest := make([]*listWatch[T], 0, len(all))
	for _, l := range all {
		if len(leaving) > 0 && leaving[0] == l {
			leaving = leaving[1:]
			continue
		}
		rest = append(rest, l)
	}
	return rest
}

// with returns ordered list-watches with some that join them.
func with[T any](all, joining []*listWatch[T]) []*listWatch[T] {
	order(joining)
	merged := make([]*listWatch[T], 0, len(all)+len(joining))
	for _, l := range joining {
		i, _ := slices.BinarySearchFunc(all, l.part, compareParts[T])
		merged = append(append(merged, all[:i]...), l)
		all = all[i:]
	}
	return append(merged, all...)
}

func order[T any](listWatches []*listWatch[T]) {
	slices.SortFunc(listWatches, func(a, b *listWatch[T]) int { return a.part.compare(b.part) })
}

// freshByName is Fresh of one object of an informer that follows single objects.
func freshByName[T any](inf *SharedIndexInformer[T], followed *followed[T], id string) error {
	p := partOf(id)
	var err error
	switch l := followed.of(p); {
	case closed(inf.stopped):
		err = ErrStopped
	case l == nil && !inf.origin.references.name(Key{Namespace: p.namespace, Name: p.name}):
		err = fmt.Errorf("%s is %w", p, ErrNotNamed)
	case l == nil:
		err = fmt.Errorf("%s is %w", p, ErrNotKnown)
	default:
		complete := l.health.complete()
		if err = l.health.fresh(); err != nil && !complete {
			err = fmt.Errorf("%s is %w: %w", p, ErrNotKnown, err)
		}
	}
	if err != nil {
		err = fmt.Errorf("informer %s: %w", inf.name, err)
	}
	return err
}

// together is the health of an informer that follows single objects: see [Health].
func together[T any](inf *SharedIndexInformer[T], listWatches []*listWatch[T]) Health {
	var known, failing []*listWatch[T]
	for _, l := range listWatches {
		switch {
		case l.health.complete():
			known = append(known, l)
		case l.health.get().State != Listing:
			failing = append(failing, l)
		}
	}
	telling := known
	if len(failing) == len(listWatches) {
		telling = failing
	}
	all := worst(telling)
	for _, l := range telling {
		if h := l.health.get(); slices.Index(severity, h.State) < slices.Index(severity, all.State) {
			all.State, all.Since, all.LastError = h.State, h.Since, h.LastError
		}
	}
	all.Unknown = len(listWatches) - len(known)
	if len(telling) > 0 {
		return all
	}
	switch all.State, all.Since = Live, inf.origin.references.made; {
	case closed(inf.stopped):
		all.State = Stopped
	case !inf.HasSynced():
		all.State = Listing
	}
	return all
}

// noSource is the source of a namespace that no client can be made for: its requests fail.
type noSource struct{ err error }

func (s noSource) list(context.Context, metav1.ListOptions) (response, error) {
	return response{}, s.err
}

func (s noSource) watch(context.Context, metav1.ListOptions) (stream, error) { return stream{}, s.err }

func (s noSource) streams() bool { return false }
