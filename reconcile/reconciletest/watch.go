package reconciletest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// bookmarkEvery is how often a watch is told where it stands, and bookmarkBefore how long before its end it is told
	// once more.
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	// watchTime is how long a watch lasts that does not say. The real server takes anything from this to twice as long.
	watchTime = 30 * time.Minute
	// tearDown is how long watches go on when the definition of their resource has changed.
	tearDown = time.Second
)

// stream is the body of the answer to a watch. It has no goroutine and no buffer: each Read looks for what comes next
// in the history of the store.
type stream struct {
	server *Server
	link   *Link
	ctx    context.Context
	filter filter
	format format

	// Of the reader, of whom there is one.
	next       int64 // the version of the last event that was looked at
	initial    []watch.Event
	frame      []byte
	deadline   time.Time
	bookmarks  bool
	bookmarkAt time.Time
	epoch      int   // of the store, and
	cuts       int   // of the link: as they were when the watch began
	failed     bool  // nothing follows, but the stream stays open
	defined    int64 // up to this version the definition of the resource was looked at

	once   sync.Once
	closed chan struct{}
}

// watchObjects begins a watch. What is wrong with the version is said in the stream, as the real server does.
//
//	resourceVersion        unset, 0                             N > 0
//	sendInitialEvents      all objects, a bookmark, events      the same, not older than N
//	otherwise              all objects, events                  events after N
func (s *Server) watchObjects(c *call) (*http.Response, error) {
	opts, f, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	asked, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	streamed := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	lasts := watchTime
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		lasts = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	now := time.Now()
	w := &stream{
		server: s, link: c.link, ctx: c.ctx, filter: f, format: c.format, bookmarks: opts.AllowWatchBookmarks,
		deadline: now.Add(lasts), bookmarkAt: now.Add(bookmarkEvery), closed: make(chan struct{}),
	}
	if streamed && c.link.old() {
		return nil, noStreaming()
	}
	if streamed {
		if opts.ResourceVersion == "" {
			asked = s.Version()
		}
		if err := c.waitFor(asked); err != nil {
			return nil, err
		}
	}
	withObjects := streamed || asked == 0 && opts.SendInitialEvents == nil
	held, cached, compacted, err := w.join(c, withObjects)
	if err != nil {
		return nil, err
	}
	switch {
	case withObjects:
		w.next = cached
		for _, o := range held {
			if f.matches(o) {
				w.initial = append(w.initial, watch.Event{Type: watch.Added, Object: o})
			}
		}
		if streamed && opts.AllowWatchBookmarks {
			w.initial = append(w.initial, w.bookmark(cached, true))
		}
	case asked == 0:
		w.next = cached
	case asked < compacted:
		err := apierrors.NewResourceExpired("too old resource version: " + opts.ResourceVersion + " (" +
			strconv.FormatInt(compacted, 10) + ")")
		w.initial = append(w.initial, watch.Event{Type: watch.Error, Object: statusOf(err)})
		w.failed = true
	default:
		if w.next, err = w.sinceBase(c, asked); err != nil {
			return nil, err
		}
	}
	return answer(http.StatusOK, w.contentType(), w), nil
}

// join lets the watch begin at the version that the cache has reached, and returns the objects of that version, if they
// are wanted, and the version before which everything is compacted.
func (w *stream) join(c *call, withObjects bool) (held []object, cached, compacted int64, err error) {
	st := w.server.store
	st.mu.Lock()
	w.epoch, w.cuts, w.defined = st.epoch, c.link.cuts, st.version
	cached, compacted = c.link.cachedLocked(), st.compacted
	if withObjects {
		held = st.listLocked(c.resource.GroupResource(), cached)
	}
	st.mu.Unlock()
	held, err = c.showCached(c.resource, held) // which may take time, so it is done without the lock
	if err != nil && !isNotModelled(err) {
		err = tooLarge(cached, cached-1) // the cache of the version does not come so far
	}
	return held, cached, compacted, err
}

// sinceBase lets a watch begin with what had changed since the version that it asks for when the resource came from the
// base of a fork, and returns that version. A client has it from an object of the fork, so it has not seen what was
// deleted before the fork.
func (w *stream) sinceBase(c *call, asked int64) (next int64, err error) {
	changed, floor := w.server.store.seededAfter(c.resource.GroupResource(), asked)
	if asked >= floor {
		return asked, nil
	}
	shown, err := c.showCached(c.resource, changed)
	for _, o := range shown {
		if w.filter.matches(o) {
			w.initial = append(w.initial, watch.Event{Type: watch.Modified, Object: o})
		}
	}
	return asked, err
}

// noStreaming is how a server without the feature WatchList answers a streamed list.
func noStreaming() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"),
			"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")})
}

func (w *stream) contentType() string {
	if w.format.MediaType == runtime.ContentTypeProtobuf {
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return w.format.MediaType
}

// Read returns the next events, and waits for one if there is none. It returns io.EOF at the end of the watch.
func (w *stream) Read(p []byte) (int, error) {
	for len(w.frame) == 0 {
		e, err := w.event()
		if err != nil {
			return 0, err
		}
		if w.frame, err = w.encode(e); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.frame)
	w.frame = w.frame[n:]
	return n, nil
}

// Close ends the watch, for its reader.
func (w *stream) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// event waits for the next event.
func (w *stream) event() (watch.Event, error) {
	if len(w.initial) > 0 {
		e := w.initial[0]
		w.initial = w.initial[1:]
		return e, nil
	}
	for {
		select {
		case <-w.closed:
			return watch.Event{}, io.EOF
		case <-w.ctx.Done():
			return watch.Event{}, w.ctx.Err()
		default:
		}
		e, ev, at, changed, err := w.look()
		switch {
		case err != nil:
			return watch.Event{}, err
		case e != nil:
			return *e, nil
		case ev != nil:
			if e, err = w.convert(*ev); err != nil {
				return watch.Event{}, err
			}
			if e != nil {
				return *e, nil
			}
			continue
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-changed:
		case <-timer.C:
		case <-w.closed:
		case <-w.ctx.Done():
		}
		timer.Stop()
	}
}

// look returns the event that is due, or the write that it is to be made of, or the end, or when to look again: at a
// time, or after a change.
func (w *stream) look() (*watch.Event, *event, time.Time, <-chan struct{}, error) {
	st := w.server.store
	st.mu.Lock()
	defer st.mu.Unlock()
	now := time.Now()
	w.endWithDefinitionLocked()
	switch {
	case w.link.closedLocked():
		return nil, nil, now, nil, errReset
	case w.epoch != st.epoch || w.cuts != w.link.cuts || !now.Before(w.deadline):
		return nil, nil, now, nil, io.EOF
	}
	wake := w.deadline
	if w.failed {
		return nil, nil, wake, st.changed, nil
	}
	delay, reached := w.link.delays[w.filter.resource.GroupResource()], w.link.cachedLocked()
	for _, ev := range st.eventsAfterLocked(w.next) {
		if delay < 0 || ev.version > reached {
			return nil, nil, wake, st.changed, nil
		}
		if due := ev.at.Add(delay); now.Before(due) {
			return nil, nil, earlier(wake, due), st.changed, nil
		}
		w.next = ev.version
		switch {
		case ev.resource != w.filter.resource.GroupResource():
		case w.filter.resource.family != nil:
			return nil, &ev, now, nil, nil
		default:
			if e := w.translate(ev); e != nil {
				return e, nil, now, nil, nil
			}
		}
	}
	if w.bookmarks {
		if before := w.deadline.Add(-bookmarkBefore); before.After(now) && before.Before(w.bookmarkAt) {
			w.bookmarkAt = before
		}
		if !now.Before(w.bookmarkAt) {
			w.bookmarkAt = now.Add(bookmarkEvery)
			// A watch that is ahead of the server, since that was restored, is told nothing until the server has caught
			// up.
			if delay >= 0 && reached >= w.next {
				w.next = reached
				e := w.bookmark(w.next, false)
				return &e, nil, now, nil, nil
			}
		}
		wake = earlier(wake, w.bookmarkAt)
	}
	return nil, nil, wake, st.changed, nil
}

// endWithDefinitionLocked lets the watch end soon when the spec of the definition of its resource has changed, or the
// definition is gone: a real server makes the storage of all its versions anew, and the watches of the old one end with
// that. The caller holds
// server.store.mu.
func (w *stream) endWithDefinitionLocked() {
	of, st := w.filter.resource.of, w.server.store
	if of == nil {
		return
	}
	var before object
	for _, r := range st.objects[definitions.GroupResource()][keyOfDefinition(of)] {
		if r.version > w.defined && before != nil {
			w.defined = r.version
			was := before.(*unstructured.Unstructured)
			is, goesOn := r.object.(*unstructured.Unstructured)
			if !goesOn || !reflect.DeepEqual(was.Object["spec"], is.Object["spec"]) {
				changed := st.eventsAfterLocked(r.version - 1)[0].at
				w.deadline = earlier(w.deadline, changed.Add(tearDown))
			}
		}
		before = r.object
	}
}

// convert translates a write to an object of several versions. A watch that cannot be told of a write ends.
func (w *stream) convert(ev event) (*watch.Event, error) {
	c := &call{ctx: w.ctx, link: w.link}
	both, err := c.showCached(w.filter.resource, []object{ev.old, ev.object})
	if err != nil {
		return nil, io.EOF
	}
	ev.old, ev.object = both[0], both[1]
	return w.translate(ev), nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// translate returns what a write is to somebody who sees only what matches the filter, or nil: an object that does not
// match any more is deleted. It is then shown as it last matched, at the version of the write.
func (w *stream) translate(ev event) *watch.Event {
	was, is := w.filter.matches(ev.old), w.filter.matches(ev.object)
	switch {
	case was && is:
		return &watch.Event{Type: watch.Modified, Object: ev.object}
	case is:
		return &watch.Event{Type: watch.Added, Object: ev.object}
	case was && ev.object == nil:
		return &watch.Event{Type: watch.Deleted, Object: ev.old}
	case was:
		last := copyOf(ev.old)
		last.SetResourceVersion(strconv.FormatInt(ev.version, 10))
		return &watch.Event{Type: watch.Deleted, Object: last}
	}
	return nil
}

// bookmark says which version the watch has reached; initialEnd: and that these were the objects that there are.
func (w *stream) bookmark(version int64, initialEnd bool) watch.Event {
	o := w.filter.resource.make()
	o.SetResourceVersion(strconv.FormatInt(version, 10))
	if initialEnd {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return watch.Event{Type: watch.Bookmark, Object: o}
}

// encode writes an event as a frame.
func (w *stream) encode(e watch.Event) ([]byte, error) {
	o, err := w.format.project(e.Object)
	if err != nil {
		return nil, err
	}
	var inner, frame bytes.Buffer
	if u, ok := o.(runtime.Unstructured); ok {
		err = unstructured.UnstructuredJSONScheme.Encode(u, &inner)
	} else {
		err = w.format.Serializer.Encode(o, &inner)
	}
	if err != nil {
		return nil, err
	}
	outer := &metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: bytes.TrimSpace(inner.Bytes())}}
	if w.format.MediaType == runtime.ContentTypeProtobuf {
		outer.Object.Raw = inner.Bytes()
	}
	err = w.format.StreamSerializer.Encode(outer, w.format.StreamSerializer.NewFrameWriter(&frame))
	return frame.Bytes(), err
}
