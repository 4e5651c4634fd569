// Package fakeapi is one resource of an API server in memory, for unit tests in virtual time: it has the List and Watch
// of a typed client, with resourceVersions, paging, streamed lists, bookmarks and a history that can be compacted, and
// hooks to make each of them go wrong.
//
// It stands at the level of the client's methods, below which there is no HTTP. It is for the tests of the cache and of
// the loop themselves, which need what no real server does, and so package reconciletest does not either: events out of
// order, repeated, or without a version ([Resource.Inject]), bookmarks at a chosen moment, answers of List and Watch
// that a test makes up; and for benchmarks of the cache, in which a server would take most of the time. Every other
// test uses package reconcile/reconciletest.
package fakeapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is what a Resource holds.
type Object interface {
	metav1.Object
	runtime.Object
}

// Resource holds objects of type T, listed as L. Make one with New. Safe for concurrent use.
type Resource[T Object, L runtime.Object] struct {
	newList func() L

	mu sync.Mutex
	// Guarded by mu. version is the last resourceVersion given out; history holds the events after compacted, in order.
	version   int64
	compacted int64
	uids      int
	objects   map[types.NamespacedName]T
	history   []record
	watchers  map[*watcher]struct{}
	pages     map[string]page
	held      bool // Hold was called

	// BeforeList and BeforeWatch, if set, are called without a lock before a request is served; an error is its answer.
	// Set them before use.
	BeforeList  func(metav1.ListOptions) error
	BeforeWatch func(metav1.ListOptions) error
	// NoStreaming refuses streamed lists as a server does that does not know them.
	NoStreaming bool
	// NoTimeout lets watches live for longer than they were asked to.
	NoTimeout bool
}

type record struct {
	version int64
	event   watch.Event
}

// page is what a continue token stands for: the rest of a list, at the version of its first page.
type page struct {
	version int64
	rest    []runtime.Object
}

// New makes an empty resource; newList makes an empty list, such as func() *corev1.PodList { return &corev1.PodList{}
// }.
func New[T Object, L runtime.Object](newList func() L) *Resource[T, L] {
	return &Resource[T, L]{
		newList: newList, version: 1, compacted: 1,
		objects:  map[types.NamespacedName]T{},
		watchers: map[*watcher]struct{}{}, pages: map[string]page{},
	}
}

// Create stores a copy of o with a new UID, unless it has one, and a new resourceVersion, and returns what it stored.
func (r *Resource[T, L]) Create(o T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	o = o.DeepCopyObject().(T)
	if o.GetUID() == "" {
		r.uids++
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", r.uids)))
	}
	key := keyOf(o)
	if _, exists := r.objects[key]; exists {
		panic(fmt.Sprintf("fakeapi: %s exists", key))
	}
	return r.put(watch.Added, o)
}

// Update changes the object of that key with fn and returns what is stored then.
func (r *Resource[T, L]) Update(namespace, name string, fn func(T)) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.must(namespace, name).DeepCopyObject().(T)
	fn(o)
	return r.put(watch.Modified, o)
}

// Delete removes the object of that key and returns its last state, which has a new resourceVersion.
func (r *Resource[T, L]) Delete(namespace, name string) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.must(namespace, name).DeepCopyObject().(T)
	delete(r.objects, keyOf(o))
	r.record(watch.Deleted, o)
	return o
}

// Objects returns all objects, ordered by key. They are the resource's own.
func (r *Resource[T, L]) Objects() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sorted()
}

func (r *Resource[T, L]) sorted() []T {
	all := slices.Collect(maps.Values(r.objects))
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(keyOf(a).String(), keyOf(b).String()) })
	return all
}

func (r *Resource[T, L]) must(namespace, name string) T {
	o, ok := r.objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if !ok {
		panic(fmt.Sprintf("fakeapi: no %s/%s", namespace, name))
	}
	return o
}

func (r *Resource[T, L]) put(t watch.EventType, o T) T {
	r.record(t, o)
	r.objects[keyOf(o)] = o
	return o
}

func (r *Resource[T, L]) record(t watch.EventType, o T) {
	r.version++
	o.SetResourceVersion(strconv.FormatInt(r.version, 10))
	rec := record{r.version, watch.Event{Type: t, Object: o}}
	r.history = append(r.history, rec)
	r.tell(rec)
}

// tell lets every watcher have what is new to it. As on a real server, that is nothing for one that was asked for at a
// version which lies in the future.
func (r *Resource[T, L]) tell(rec record) {
	for w := range r.watchers {
		if rec.version > w.from {
			w.send(rec.event)
		}
	}
}

// Bookmark tells every watcher the current version.
func (r *Resource[T, L]) Bookmark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.tell(record{r.version, r.bookmark(r.version, false)})
}

// Hold keeps what happens from now on from every watcher, as a slow network does, until Release.
func (r *Resource[T, L]) Hold() { r.hold(true) }

// Release lets the watchers have what was held back, in order.
func (r *Resource[T, L]) Release() { r.hold(false) }

func (r *Resource[T, L]) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	for w := range r.watchers {
		w.hold(held)
	}
}

// Inject sends an event to every watcher as it stands, without a place in the history.
func (r *Resource[T, L]) Inject(e watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watchers {
		w.send(e)
	}
}

// Cut ends every watch, as a server does at the end of its time.
func (r *Resource[T, L]) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut()
}

func (r *Resource[T, L]) cut() {
	for w := range r.watchers {
		w.end()
		delete(r.watchers, w)
	}
}

// Compact forgets the history: a watch cannot be resumed at an older version, and no list be continued.
func (r *Resource[T, L]) Compact() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.compacted, r.history = r.version, nil
	clear(r.pages)
}

// Snapshot remembers the present state; the function that it returns goes back to it, as a restore of the server's
// storage does: objects, version and all, and every watch ends.
func (r *Resource[T, L]) Snapshot() (restore func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	version, objects := r.version, maps.Clone(r.objects)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cut() // under the same lock: nobody finds the server up and not restored
		r.version, r.compacted, r.history = version, version, nil
		r.objects = maps.Clone(objects)
		clear(r.pages)
	}
}

// Watchers returns how many watches are open.
func (r *Resource[T, L]) Watchers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.watchers)
}

// List is that of a typed client.
func (r *Resource[T, L]) List(ctx context.Context, opts metav1.ListOptions) (L, error) {
	var none L
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if r.BeforeList != nil {
		if err := r.BeforeList(opts); err != nil {
			return none, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := page{version: r.version}
	if opts.Continue != "" {
		var ok bool
		if p, ok = r.pages[opts.Continue]; !ok {
			return none, status(http.StatusGone, metav1.StatusReasonExpired)
		}
	} else {
		selector, err := labels.Parse(opts.LabelSelector)
		if err != nil {
			return none, err
		}
		for _, o := range r.sorted() {
			if selector.Matches(labels.Set(o.GetLabels())) {
				p.rest = append(p.rest, o)
			}
		}
	}
	token := ""
	items := p.rest
	if opts.Limit > 0 && int64(len(items)) > opts.Limit {
		items = items[:opts.Limit]
		token = fmt.Sprintf("page-%d-%d", p.version, len(p.rest))
		r.pages[token] = page{p.version, p.rest[opts.Limit:]}
	}
	// Each answer is a copy, as if it had come over a wire: what a client does to an object is nobody else's business.
	copies := make([]runtime.Object, len(items))
	for i, o := range items {
		copies[i] = o.DeepCopyObject()
	}
	list := r.newList()
	if err := meta.SetList(list, copies); err != nil {
		return none, err
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return none, err
	}
	l.SetResourceVersion(strconv.FormatInt(p.version, 10))
	l.SetContinue(token)
	return list, nil
}

// Watch is that of a typed client. Selectors are not modelled, and refused.
func (r *Resource[T, L]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.BeforeWatch != nil {
		if err := r.BeforeWatch(opts); err != nil {
			return nil, err
		}
	}
	if opts.LabelSelector != "" || opts.FieldSelector != "" {
		return nil, fmt.Errorf("fakeapi: not modelled: a watch with a selector")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var (
		first []watch.Event
		from  int64
	)
	streamed := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	switch {
	case streamed && r.NoStreaming:
		return nil, status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case streamed:
		for _, o := range r.sorted() {
			first = append(first, watch.Event{Type: watch.Added, Object: o})
		}
		first = append(first, r.bookmark(r.version, true))
	default:
		var err error
		if from, err = strconv.ParseInt(opts.ResourceVersion, 10, 64); err != nil {
			return nil, fmt.Errorf("fakeapi: not modelled: a watch at version %q", opts.ResourceVersion)
		}
		if from < r.compacted {
			return nil, status(http.StatusGone, metav1.StatusReasonExpired)
		}
		for _, rec := range r.history {
			if rec.version > from {
				first = append(first, rec.event)
			}
		}
	}
	w := newWatcher(from, r.forget)
	w.hold(r.held)
	for _, e := range first {
		w.send(e)
	}
	r.watchers[w] = struct{}{}
	if opts.TimeoutSeconds != nil && !r.NoTimeout {
		w.timeout = time.AfterFunc(time.Duration(*opts.TimeoutSeconds)*time.Second, func() {
			r.forget(w)
			w.end()
		})
	}
	return w, nil
}

func (r *Resource[T, L]) forget(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, w)
}

func (r *Resource[T, L]) bookmark(version int64, initialEnd bool) watch.Event {
	b := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(version, 10)}}
	if initialEnd {
		b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: watch.Bookmark, Object: b}
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
