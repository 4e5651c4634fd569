package informer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/tap"
	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Client is where an informer gets its objects from. A [Resource] is one, and the one to take unless the program has
// another client already: an informer with it decodes lists and watches object by object while they arrive, on several
// cores if there is much to decode, so a list is never in memory as a whole. An object that cannot be decoded, or is
// larger than 16 MB, is invalid alone (see [SharedIndexInformer.Invalid]); with any other Client the whole page fails,
// or the watch ends. Objects share in memory what they have in common: strings, labels, managed fields and, from
// protobuf, slices and what pointers point to. With Options.Transform, which may change the objects, they share what it
// has left as it was; unstructured objects share strings only.
//
// The typed, the dynamic and the metadata client of client-go have these two methods for each resource, so each is a
// Client as it stands:
//
//	clientset.CoreV1().Pods(metav1.NamespaceAll)      // Client[*corev1.PodList]
//	dynamicClient.Resource(gvr).Namespace("default")  // Client[*unstructured.UnstructuredList]
//	metadataClient.Resource(gvr)                      // Client[*metav1.PartialObjectMetadataList]
//
// The client decides which namespace the informer sees; selectors belong to [Options]. Both methods must return when
// ctx ends. Logs and Health show the text of an error of List only if it comes from the server or the connection. Of
// any other error they show the type, since decoders quote objects.
type Client[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// cannotStream reports whether a client cannot stream lists. A client says so with the method that client-go looks for.
// The fake clientset of client-go has it, but its clients of one resource do not: these are recognized by the name of
// their package, fake, which generated fakes of other types have as well.
func cannotStream(client any) bool {
	if c, says := client.(interface{ IsWatchListSemanticsUnSupported() bool }); says {
		return c.IsWatchListSemanticsUnSupported()
	}
	t := reflect.TypeOf(client)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return path.Base(t.PkgPath()) == "fake"
}

// source is a Client without its list type, which nothing but the source needs.
type source interface {
	// list requests a list, or a page of one, and returns once the response has begun.
	list(context.Context, metav1.ListOptions) (response, error)
	watch(context.Context, metav1.ListOptions) (stream, error)
	streams() bool // false if it is known that it cannot stream a list
}

// response is the response to a list request, which has begun.
type response struct {
	// each calls visit with some of the objects at a time, in order, until visit returns an error; each returns that
	// error. visit may keep the objects, but not the slice. The ListMeta is nil as long as it is not known. each is
	// called once.
	each func(visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error)
	stop func() // ends the response, and waits for its end
}

// stream is the response to a watch request, which has begun. One of the two channels delivers the events. The other is
// nil, or ends with the watch.
type stream struct {
	events  <-chan watch.Event
	batches <-chan *wire.Batch
	reader  *wire.Reader // of the batches
	stop    func()       // ends it, and waits for its end
}

// newSource makes the source of an informer that holds objects T, or what is made of them. Of decoder see [decoders].
func newSource[T Object, L runtime.Object](c Client[L], decoder func(wire.Type) *wire.Decoder) (source, error) {
	if c == nil || kube.IsNil(c) {
		return nil, errors.New("the client is nil")
	}
	if err := checkItemType[T, L](); err != nil {
		return nil, err
	}
	if r, ok := any(c).(*Resource[T]); ok {
		return r.source(decoder)
	}
	plain := plainSource[L]{client: c, unstreamed: cannotStream(c)}
	if t, ok := any(c).(interface{ Tap() *tap.Tap }); ok && t.Tap() != nil {
		return tappedSource[L]{plain, t.Tap()}, nil
	}
	return plain, nil
}

// plainSource is the source of any Client but a [Resource].
type plainSource[L runtime.Object] struct {
	client     Client[L]
	unstreamed bool // it has said that it cannot stream lists
}

func (s plainSource[L]) streams() bool { return !s.unstreamed }

func (s plainSource[L]) list(ctx context.Context, opts metav1.ListOptions) (response, error) {
	l, err := s.client.List(ctx, opts)
	if err != nil {
		return response{}, discreetList(err)
	}
	return listed(l)
}

// listed is the response whose list is in memory.
func listed(l runtime.Object) (response, error) {
	list, err := meta.ListAccessor(l)
	if err != nil || kube.IsNil(l) {
		return response{}, fmt.Errorf("%w: a %T is no list", wire.ErrViolation, l)
	}
	head := metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue()}
	each := func(visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error) {
		one := make([]wire.Event, 1)
		return head, eachItem(l, func(o runtime.Object) error {
			one[0] = wire.Event{Type: watch.Added, Object: o}
			return visit(&head, one)
		})
	}
	return response{each: each, stop: func() {}}, nil
}

func (s plainSource[L]) watch(ctx context.Context, opts metav1.ListOptions) (stream, error) {
	w, err := s.client.Watch(ctx, opts)
	if err != nil {
		return stream{}, discreet(err)
	}
	return stream{events: w.ResultChan(), stop: w.Stop}, nil
}

// discreet replaces an error that quotes an object: errors are logged, and the object may be a Secret.
func discreet(err error) error {
	if runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) || apierrors.HasStatusCause(err, decoding) {
		return wire.ErrUndecodable
	}
	return err
}

// discreetList is discreet for an error of a Client's List, which decodes objects of any type, also by methods of their
// own. The error of such a method may quote a value or a whole line, and cannot be recognized. So the text is shown
// only of errors from the server or the connection.
func discreetList(err error) error {
	var refusal apierrors.APIStatus
	var request *url.Error
	var network net.Error
	if errors.As(err, &refusal) || errors.As(err, &request) || errors.As(err, &network) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return discreet(err)
	}
	return withheld{err}
}

// withheld is an error that may quote an object. Its text is not shown; errors.Is and errors.As find it.
type withheld struct{ cause error }

func (e withheld) Error() string   { return fmt.Sprintf("%v (%T)", wire.ErrUndecodable, e.cause) }
func (e withheld) Unwrap() []error { return []error{wire.ErrUndecodable, e.cause} }

// decoding is the cause of a Status that a watch of client-go delivers for an event that it cannot decode.
const decoding metav1.CauseType = "ClientWatchDecoding"

// checkItemType compares T with the element type of L's Items, so that a mismatch is an error of New. With a list type
// that has no field Items of structs or pointers, it shows in the first list.
func checkItemType[T Object, L runtime.Object]() error {
	list := reflect.TypeFor[L]()
	if list.Kind() != reflect.Pointer || list.Elem().Kind() != reflect.Struct {
		return nil
	}
	items, ok := list.Elem().FieldByName("Items")
	if !ok || items.Type.Kind() != reflect.Slice {
		return nil
	}
	item := items.Type.Elem()
	if item.Kind() == reflect.Struct {
		item = reflect.PointerTo(item)
	}
	if want := reflect.TypeFor[T](); item.Kind() == reflect.Pointer && item != want {
		return fmt.Errorf("the client lists %s, but the informer was asked to hold %s", item, want)
	}
	return nil
}

// eachItem calls fn for every object of a list until fn returns an error. It copies each object out of the list's
// array: otherwise one object in the cache would keep the memory of its whole page alive
// (kubernetes/kubernetes#111370).
func eachItem(list runtime.Object, fn func(runtime.Object) error) error {
	var failed error
	err := meta.EachListItemWithAlloc(list, func(o runtime.Object) error {
		failed = fn(o)
		return failed
	})
	if err != nil && failed == nil {
		// the error itself may show an item, which may be a Secret
		return fmt.Errorf("%w: a %T is no list of objects", wire.ErrViolation, list)
	}
	return failed
}
