package writes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Track returns a transport that tells the [Writer] behind the ctx of a request what becomes of its writes, and the
// [Learner] behind the ctx of an informer's request what the informer asks for. It passes all other requests on.
func Track(next http.RoundTripper) http.RoundTripper { return &tracker{next} }

// tracker sends a request, and tells the [Writer] whose ctx the request carries what the answer says.
type tracker struct{ next http.RoundTripper }

// WriterKey is the key under which a ctx has the [*Writer] that makes requests with it.
type WriterKey struct{}

// Writer makes requests with a ctx: it is a call of Reconcile, or a function of ManagerOptions.WhileLeading.
type Writer struct {
	History    History
	Debtor     Debtor
	Paths      *Paths // nil: no record says what a write changes
	ErrorTexts bool   // whether records have the texts of errors
}

// History is what a writer has done.
type History interface {
	// RequestBegins and RequestEnds are told of each request. There is no response if the request has failed.
	RequestBegins(*http.Request)
	RequestEnds(*http.Response)
	// Wrote is told of each object that was written, and Record of each request to write.
	Wrote(uid types.UID, resourceVersion string, deleted bool)
	Record(status.Write)
}

// Debtor is told what becomes of a write. It decides which caches have to show it.
type Debtor interface {
	// TargetOf reads the address of a write. If an informer follows the resource, followed is true and the target
	// exact; otherwise the target is a guess that is good enough for logs.
	TargetOf(log klog.Logger, address string) (to Target, followed bool)
	// Sends says that a write to a resource that is followed is sent, and Answered that it no longer is under way.
	Sends(Target)
	Answered(Target)
	// Before Answered one of these tells the outcome, unless nothing was written: an object at a version, or gone; an
	// object at a version that the answer does not tell; and no answer.
	Wrote(klog.Logger, Write)
	WroteUnversioned(Target)
	LostAnswer(klog.Logger, Target)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *tracker) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *tracker) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	ctx := req.Context()
	if l, ok := ctx.Value(learnerKey{}).(*Learner); ok {
		l.Learn(req)
	}
	from, ok := ctx.Value(WriterKey{}).(*Writer)
	if !ok {
		return t.next.RoundTrip(req)
	}
	from.History.RequestBegins(req)
	defer func() { from.History.RequestEnds(resp) }()
	if !slices.Contains(writing, req.Method) {
		return t.next.RoundTrip(req)
	}
	who := from.Debtor
	to, followed := who.TargetOf(klog.FromContext(ctx), addressOf(req.URL))
	if to.Resource == "" {
		return t.next.RoundTrip(req)
	}
	w, req := recordOf(req, to, from.Paths)
	changes, other := ownAnswer[to.Subresource]
	req, w.DryRun = dryRun(req)
	tracked := !w.DryRun && (!other || changes)
	if tracked {
		if err := ctx.Err(); err != nil { // now it is certain that the request was not sent
			if req.Body != nil {
				_ = req.Body.Close() // as a RoundTripper has to
			}
			return nil, err
		}
		if followed {
			who.Sends(to)
			defer who.Answered(to)
		}
	}
	known := !tracked // what has become of the write; it is not if a transport below panics
	defer func() {
		if !known {
			who.LostAnswer(klog.FromContext(ctx), to)
		}
	}()
	resp, err = t.next.RoundTrip(req)
	switch {
	case known:
	case err != nil && unsent(err),
		err == nil && resp.StatusCode/100 != 2 && (!followed || refused(req.Method, to, resp)):
		known = true // nothing was written
	case other:
		who.WroteUnversioned(to)
		known = true
	case err == nil && resp.StatusCode/100 == 2:
		known = record(ctx, from, &w, to, followed, req.Method, resp)
	}
	w.Lost = !known
	addAnswer(&w, resp, err, from.ErrorTexts, other && !changes)
	from.History.Record(w)
	return resp, err
}

// record tells the writer what a successful answer says has been written. A cache shows the resource if followed is
// true; otherwise the write is only kept for the run's history. It completes w with the name and version of the object,
// if there is one object, and reports whether it could read the answer.
func record(ctx context.Context, from *Writer, w *status.Write, to Target, followed bool, method string,
	resp *http.Response) bool {
	contentType := resp.Header.Get("Content-Type")
	var objects []Metadata
	media, err := mediaOf(contentType)
	if err == nil {
		var body []byte
		if body, err = readAnswer(resp); err != nil {
			return false
		}
		objects, err = DecodeMetadata(media, body)
	}
	if err != nil {
		if followed {
			klog.FromContext(ctx).Error(err, "The answer to a write cannot be read", "verb", w.Verb,
				"resource", to.Resource, "object", Key{Namespace: to.Namespace, Name: to.Name})
		}
		return false
	}
	for _, o := range objects {
		written := NewWrite(to, method, resp.StatusCode, o)
		from.History.Wrote(written.UID, written.ResourceVersion, written.Deleted)
		from.Debtor.Wrote(klog.FromContext(ctx), written)
	}
	if len(objects) == 1 {
		w.Name, w.ResourceVersion = cmp.Or(to.Name, objects[0].Name), objects[0].ResourceVersion
	}
	return true
}

// readAnswer reads the body of an answer to its end. The caller of the client finds the same body, or the same error.
func readAnswer(resp *http.Response) (body []byte, err error) {
	body, err = io.ReadAll(resp.Body)
	resp.Body.Close()
	rest := io.Reader(bytes.NewReader(body))
	if err != nil {
		rest = io.MultiReader(rest, failingReader{err})
	}
	resp.Body = io.NopCloser(rest)
	return body, err
}

// unsent reports whether an error proves that the request has not reached the server: there was no connection, or a
// transport that has not sent it says so.
func unsent(err error) bool {
	var op *net.OpError
	var notSent interface{ NotSent() bool }
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &notSent) && notSent.NotSent()
}

// writing are the methods of requests that write.
var writing = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// ownAnswer has the subresources whose answer is not the object that an informer sees. The value is true if a write to
// the subresource changes that object.
var ownAnswer = map[string]bool{
	"binding": true, "eviction": true,
	"token": false, "exec": false, "attach": false, "portforward": false, "proxy": false,
}

// Untold reports whether the answer to a write does not tell what has become of the object that it has changed.
func (t Target) Untold() bool { return ownAnswer[t.Subresource] }
