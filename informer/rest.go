package informer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// List is a list of objects, as [Resource.List] returns it.
type List[T Object] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// DeepCopyObject returns a copy that shares nothing with l.
func (l *List[T]) DeepCopyObject() runtime.Object {
	c := &List[T]{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for _, o := range l.Items {
		c.Items = append(c.Items, o.DeepCopyObject().(T))
	}
	return c
}

// List requests one list, or the page of one that opts ask for, and holds it as a whole. It fails if one of the objects
// cannot be decoded. An informer does not use it.
func (r *Resource[T]) List(ctx context.Context, opts metav1.ListOptions) (*List[T], error) {
	s, err := r.alone()
	if err != nil {
		return nil, err
	}
	response, err := s.list(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer response.stop()
	list := &List[T]{Items: []T{}}
	list.ListMeta, err = response.each(func(_ *metav1.ListMeta, events []wire.Event) error {
		for _, e := range events {
			if e.Err != nil {
				return e.Err
			}
			list.Items = append(list.Items, e.Object.(T))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r, err)
	}
	return list, nil
}

// Watch requests one watch. The watch ends when ctx does, when Stop is called, when the server ends it, or with an
// event of type Error, after an object that cannot be decoded. An informer does not use it.
func (r *Resource[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s, err := r.alone()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.watch(ctx, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &resourceWatch{stream: stream, events: make(chan watch.Event), ctx: ctx, cancel: cancel}
	w.ended.Go("watch of "+r.String(), w.run)
	return w, nil
}

// resourceWatch makes the batches of a stream a watch of client-go. Its goroutine ends with ctx, which Stop ends, and
// Stop waits for it.
type resourceWatch struct {
	stream stream
	events chan watch.Event
	ctx    context.Context
	cancel context.CancelFunc
	ended  lifecycle.Group
}

func (w *resourceWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *resourceWatch) Stop() {
	w.cancel()
	<-w.ended.Done()
}

func (w *resourceWatch) run() {
	defer close(w.events)
	defer w.stream.stop()
	defer w.cancel()
	if err := w.pass(); err != nil && w.ctx.Err() == nil {
		w.send(watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure,
			Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: decoding, Message: err.Error()}}}}})
	}
}

// pass passes the events on. It returns nil when the server ends the watch between two of them.
func (w *resourceWatch) pass() error {
	for b := range w.stream.batches {
		for _, e := range b.Events() {
			if e.Err != nil {
				return e.Err
			}
			if !w.send(watch.Event{Type: e.Type, Object: e.Object}) {
				return nil
			}
		}
	}
	if _, err := w.stream.reader.End(); err != io.EOF {
		return err
	}
	return nil
}

func (w *resourceWatch) send(e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// change says when objects that have been decoded may be changed, or need not share since they are not kept.
func (o Options[T]) change(kept bool) intern.Change {
	switch {
	case o.Transform == nil:
		return intern.Never
	case kept:
		return intern.AtFirst
	}
	return intern.Always
}

// decoders returns a function that returns the decoder of an informer for objects of a type, one for all namespaces. Of
// quiet see [wire.Decoder].
func decoders(change intern.Change, quiet bool, share *share) func(wire.Type) *wire.Decoder {
	var mu sync.Mutex
	made := make(map[wire.Type]*wire.Decoder)
	return func(t wire.Type) *wire.Decoder {
		mu.Lock()
		defer mu.Unlock()
		if made[t] == nil {
			made[t] = wire.NewDecoder(t, change)
			made[t].Quiet = quiet
			if share != nil {
				made[t].Keep, made[t].KeyOnly = share.keepsObject, share.KeyOnly()
			}
		}
		return made[t]
	}
}

// alone is the source of one List or Watch, whose objects belong to the caller: each has its own.
func (r *Resource[T]) alone() (*rawSource, error) {
	return r.source(func(t wire.Type) *wire.Decoder { return wire.NewDecoder(t, intern.Always) })
}

// source returns the source of an informer.
func (r *Resource[T]) source(decoder func(wire.Type) *wire.Decoder) (*rawSource, error) {
	if err := r.at().check(); err != nil {
		return nil, r.failure("list", "", err)
	}
	return &rawSource{endpoint: r.endpoint, decoder: decoder(r.format.objects)}, nil
}

// rawSource is the source of an informer whose client is a [Resource].
type rawSource struct {
	endpoint
	decoder *wire.Decoder
}

func (s *rawSource) streams() bool { return true }

func (s *rawSource) request(opts metav1.ListOptions) *rest.Request {
	r := s.endpoint.request(http.MethodGet).SpecificallyVersionedParams(&opts, metav1.ParameterCodec,
		versionOfParams)
	if opts.Watch {
		if s.decoder.Quiet {
			r.SetHeader("Accept-Encoding", "identity") // to unzip takes 44 kB for each watch
		}
		return r.Throttle(nil) // one request in minutes is no load
	}
	return s.accepts(r, "PartialObjectMetadataList")
}

func (s *rawSource) list(ctx context.Context, opts metav1.ListOptions) (response, error) {
	body, err := s.request(opts).Stream(ctx)
	if err != nil {
		return response{}, discreet(s.explained(err, false))
	}
	reader := s.decoder.Read(ctx, body, true)
	each := func(visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error) {
		for b := range reader.Batches {
			if err := visit(b.List, b.Events()); err != nil {
				return metav1.ListMeta{}, err
			}
			reader.Recycle(b)
		}
		return reader.End()
	}
	return response{each: each, stop: reader.Close}, nil
}

func (s *rawSource) watch(ctx context.Context, opts metav1.ListOptions) (stream, error) {
	opts.Watch = true
	body, err := s.request(opts).Stream(ctx)
	if err != nil {
		return stream{}, discreet(s.explained(err, false))
	}
	reader := s.decoder.Read(ctx, body, false)
	return stream{reader: reader, batches: reader.Batches, stop: reader.Close}, nil
}
