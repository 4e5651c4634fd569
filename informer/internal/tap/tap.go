package tap

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// Tap reads what the client of one informer lists and watches. Make one with [New].
type Tap struct {
	item    reflect.Type
	decoder func() *wire.Decoder
	log     sync.Once

	mu sync.Mutex
	// Guarded by mu. unfit is true once the client is known to do something with its objects; doubt is true if wire
	// could not read the latest answer.
	unfit, doubt bool
	lists        shape
	watches      shape
}

// The client decodes this many objects of lists, and of watches, before wire is trusted to do it alone.
const samples = 100

// shape is what is known of the objects of lists, or of watches.
type shape struct {
	compared int              // how many objects the client has returned as wire has decoded them
	kind     *metav1.TypeMeta // that the client gives them; nil: that of wire
}

func (s shape) proven() bool { return s.compared >= samples }

type object interface {
	metav1.Object
	runtime.Object
}

// New returns the Tap of an informer whose objects are of the type of example, or nil if wire has no such objects.
// change is called with the first request.
func New(example runtime.Object, change func() intern.Change) *Tap {
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct ||
		!t.Implements(reflect.TypeFor[object]()) {
		return nil
	}
	return &Tap{item: t.Elem(), decoder: sync.OnceValue(func() *wire.Decoder {
		return wire.NewDecoder(wire.Type{Item: t.Elem()}, change())
	})}
}

// mark marks a context, unless the client has to read the answer itself.
func (t *Tap) mark(ctx context.Context, watch bool) (context.Context, *mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unfit || t.doubt {
		t.doubt = false
		return ctx, nil
	}
	return marked(ctx, watch)
}

// passed records that an answer was not taken.
func (t *Tap) passed(ctx context.Context) {
	if wrapped.Load() {
		t.explain(ctx, "they do not pass through a transport of a configuration of Wire, or their ListerWatcher drops "+
			"the context, or the answer is neither JSON nor protobuf")
	}
}

// explain says, once, why the client decodes the objects itself.
func (t *Tap) explain(ctx context.Context, why string) {
	t.log.Do(func() {
		klog.FromContext(ctx).Info("The objects of an informer are decoded by its client as a whole", "type", t.item,
			"why", why)
	})
}

// errUnfit is the error of an answer that the client has to read itself.
var errUnfit = errors.New("the client does not return its objects as the server sent them, so it decodes them itself " +
	"from now on")

// refuse leaves all requests to the client from now on.
func (t *Tap) refuse(ctx context.Context, why string) error {
	t.mu.Lock()
	t.unfit = true
	t.mu.Unlock()
	t.explain(ctx, why)
	return fmt.Errorf("%w: %s", errUnfit, why)
}

// doubts leaves the next request to the client if wire could not read an answer.
func (t *Tap) doubts(err error) {
	if errors.Is(err, wire.ErrUndecodable) || errors.Is(err, wire.ErrViolation) || errors.Is(err, wire.ErrTooLarge) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.doubt = true
	}
}

func (t *Tap) shapeOf(s *shape) shape {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *s
}

// compare compares what the client has made of the bytes of some objects with what wire has, and records in s what
// follows. It returns an error if they differ.
func (t *Tap) compare(ctx context.Context, s *shape, ours []wire.Event, theirs []runtime.Object) error {
	now := t.shapeOf(s)
	for i, e := range ours {
		if reflect.TypeOf(e.Object) != reflect.TypeOf(theirs[i]) {
			return t.refuse(ctx, fmt.Sprintf("the client returns a %T, not a %T", theirs[i], e.Object))
		}
		sent, returned := e.Object.GetObjectKind().GroupVersionKind(), theirs[i].GetObjectKind().GroupVersionKind()
		if !reflect.DeepEqual(withoutKind(e.Object), withoutKind(theirs[i])) {
			return t.refuse(ctx, "the client, or what is behind it, changes the objects")
		}
		if sent != returned {
			apiVersion, kind := returned.ToAPIVersionAndKind()
			now.kind = &metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
		}
		if e.Type != watch.Bookmark { // which has next to nothing that could be changed
			now.compared++
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*s = now
	return nil
}

func withoutKind(o runtime.Object) runtime.Object {
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o
}

// shaped gives objects the kind that the client would.
func (s shape) shaped(events []wire.Event) {
	if s.kind == nil {
		return
	}
	for _, e := range events {
		if e.Object != nil && e.Type != watch.Error {
			wire.SetKind(e.Object, s.kind.APIVersion, s.kind.Kind)
		}
	}
}

// unread returns the error of the first object that wire could not decode. A client of somebody else has no place for
// such an object, so its answer fails as a whole.
func unread(events []wire.Event) error {
	for _, e := range events {
		if e.Err != nil {
			return e.Err
		}
	}
	return nil
}
