package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	kjson "sigs.k8s.io/json"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Handler answers the calls of an API server to one path. [Default], [Validate] and [Conversions] make one. It is an
// http.Handler, and safe for concurrent use.
//
// A call that it cannot judge is answered with an HTTP error, so that the failurePolicy of the webhook decides: 400 for
// what is no review of the kind that the Handler is for, 413 for a body above [MaxBody], 503 if the bodies of all calls
// that a Server is answering have more than 64 MiB, and 500 if a function of yours returns an error or panics. The ctx
// of a function ends at the deadline of the call, which the API server states in the parameter timeout, after 30 s at
// the latest, and when the API server no longer waits.
type Handler struct {
	// answer returns what is to be sent as JSON, and the outcome for metrics.
	answer   func(ctx context.Context, body []byte) (review any, outcome string, err error)
	mistakes error // of the calls that made it; New reports them
	// oldMustFit: what is stored has to fit the Go type, else the write is refused. Not changed once it is served.
	oldMustFit bool

	log lifecycle.LogLimit
}

// MaxBody is how large the body of a call may be. An admission review has up to two objects of 3 MiB each, the limit of
// a request to an API server. It is longer than they are if it writes many of their characters as six.
const MaxBody = 8 << 20

// longest is how long an API server waits for an answer at most.
const longest = 30 * time.Second

// The outcomes of calls, as a Recorder gets them.
const (
	outcomeAllowed   = "allowed"
	outcomeDenied    = "denied"
	outcomeConverted = "converted"
	outcomeFailed    = "failed"
)

// callError is the answer to a call that is no review: an HTTP status other than 500.
type callError struct {
	code int
	text string
}

func (e *callError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &callError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

const (
	// maxBodies is how many bytes of bodies a Server takes at once: anybody who can connect can send some.
	maxBodies = 8 * MaxBody
	// smallBody is how many bytes of a body are read all the same, so that large ones do not keep usual calls away.
	smallBody = 64 << 10
)

// counted is a body whose bytes are counted while its call is answered.
type counted struct {
	io.ReadCloser
	all  *atomic.Int64 // of all calls
	mine int64
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	c.mine += int64(n)
	if c.all.Add(int64(n)) > maxBodies && n > 0 && c.mine > smallBody {
		return n, errTooMuch
	}
	return n, err
}

var errTooMuch = &callError{http.StatusServiceUnavailable, "too much is sent at once"}

// forget takes the bytes out of the count.
func (c *counted) forget() { c.all.Add(-c.mine) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) { h.serve(w, req) }

// serve answers a call and returns its outcome.
func (h *Handler) serve(w http.ResponseWriter, req *http.Request) string {
	review, outcome, err := h.call(w, req)
	if err == nil {
		var data []byte
		if data, err = json.Marshal(review); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(data) // a client that is gone needs no answer
			return outcome
		}
	}
	code, refused := http.StatusInternalServerError, (*callError)(nil)
	if errors.As(err, &refused) {
		code = refused.code
	}
	if refused == nil || refused == errTooMuch {
		h.failed(klog.NewContext(req.Context(), klog.FromContext(req.Context()).WithValues("path",
			kube.Brief(req.URL.Path))), err)
	}
	http.Error(w, err.Error(), code)
	return outcomeFailed
}

// failed writes an error of a function of the user to the log, a few times a minute.
func (h *Handler) failed(ctx context.Context, err error) {
	if dropped, ok := h.log.Allow(5); ok {
		klog.FromContext(ctx).Error(err, "A webhook failed", "stack", lifecycle.StackOf(err), "notLogged", dropped)
	}
}

// call reads the body and calls the functions of the user.
func (h *Handler) call(w http.ResponseWriter, req *http.Request) (review any, outcome string, err error) {
	if req.Method != http.MethodPost {
		return nil, "", &callError{http.StatusMethodNotAllowed, "a review is sent by POST"}
	}
	if media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, "", &callError{http.StatusUnsupportedMediaType, "a review is application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	var large *http.MaxBytesError
	var refused *callError
	switch {
	case errors.As(err, &refused):
		return nil, "", err
	case errors.As(err, &large):
		return nil, "", &callError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes",
			large.Limit)}
	case err != nil:
		return nil, "", badRequest("the body cannot be read: %v", err)
	}
	patience := longest
	if timeout, err := time.ParseDuration(req.URL.Query().Get("timeout")); err == nil && timeout > 0 {
		patience = min(patience, timeout)
	}
	ctx, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	lifecycle.Guard(func() { review, outcome, err = h.answer(ctx, body) }, func(p *lifecycle.PanicError) { err = p })
	return review, outcome, err
}

// decode reads JSON as API machinery does: field names are case-sensitive.
func decode(data []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// kindOf is the kind of the objects of a Go type: its name, with a capital first letter. The error says that T is no
// pointer to a struct.
func kindOf[T informer.Object](gv schema.GroupVersion) (schema.GroupVersionKind, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || t.Elem().Name() == "" {
		return schema.GroupVersionKind{}, fmt.Errorf("%s is no pointer to a struct with a name", t)
	}
	name := t.Elem().Name()
	return gv.WithKind(string(name[0]&^0x20) + name[1:]), nil
}

// newObject returns a pointer to a new struct.
func newObject[T informer.Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}
