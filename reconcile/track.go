package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TrackWrites makes controllers consistent with their own writes. What [ClientConfig] returns has it. By itself it
// takes one line, on the rest.Config that all clients are made from:
//
//	config.Wrap(reconcile.TrackWrites)
//
// From then on every create, update, patch, apply and delete that a Reconcile makes with its ctx, through any kind of
// client, is recorded for the key, and the key is not reconciled again before the informers of its controller have
// seen the write. Without it, a controller creates a pod, is called again a millisecond later because of an unrelated
// change, finds no pod in the cache and creates a second one. The file internals.md has a picture of all of this.
//
// A write is waited for in each informer of the controller that may see it. The answer to the write tells the object's
// namespace, labels and UID; the informer's own requests tell what it selects. That is why the informers' clients need
// the same configuration: Run fails if some of them have it and some have not. Where the answer does not tell whether
// the informer selects the object, as with a field selector on anything but name and namespace, or where it does not
// but may have before, the key waits all the same: until the informer has reached the version of the write, or, after a
// second, has listed anew. Dry runs are not waited for, and neither are subresources that answer with something else
// than the object: binding, eviction and token. For clients that have no transport to wrap there are [Wrote] and
// [Deleted].
//
// A write that is under way when its call of Reconcile returns, on a goroutine of its own, holds the key back until it
// is answered. That ends with the answer: nothing is under way while client-go waits to repeat a refused request, so a
// goroutine that outlives its call may write during the next one. What the functions of ManagerOptions.WhileLeading
// write with their ctx no key waits for, but the next leader does: see [Elector].
//
// A lost answer (a timeout, a broken connection, a 5xx) leaves open whether the write has happened. TrackWrites
// assumes neither: the informers of that resource list anew, once, and then the key runs. A write that the server
// carries out even later than that cannot be detected, so an object that must not exist twice needs a name that is
// not generated: see [github.com/thermostat-go/thermostat/reconcile/objects.CreateOwned]. These outcomes prove that
// nothing was written, and leave nothing open: a 4xx, unless it ends the deletion of a whole collection; an answer
// that says that an admission webhook has failed or denied the request, unless the request is a deletion; an error
// from before there was a connection; and an error of a transport below that has not sent the request and says so
// with a method NotSent() bool, as the error of leaderelection's Fence does. TrackWrites and Fence may wrap a
// transport in either order.
func TrackWrites(next http.RoundTripper) http.RoundTripper { return &tracker{next} }

// tracker sends a request, and tells the [writer] whose ctx the request carries what the answer says.
type tracker struct{ next http.RoundTripper }

// writer is who makes requests with a ctx: a call of Reconcile, or a function of ManagerOptions.WhileLeading.
type writer interface {
	RequestBegins(*http.Request)
	RequestEnds(*http.Response)
	// debtor waits for the writes, and Wrote keeps each of them.
	debtor() debtor
	Wrote(uid types.UID, resourceVersion string, deleted bool)
	// recordWrite begins the record of a write, and addRequest keeps it.
	recordWrite(*http.Request, target) (status.Write, *http.Request)
	addRequest(status.Write, *http.Response, error)
}

type writerKey struct{}

// WrappedRoundTripper lets client-go find the transport below.
func (t *tracker) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *tracker) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	ctx := req.Context()
	if l, ok := ctx.Value(learnerKey{}).(*learner); ok {
		l.learn(req)
	}
	from, ok := ctx.Value(writerKey{}).(writer)
	if !ok {
		return t.next.RoundTrip(req)
	}
	from.RequestBegins(req)
	defer func() { from.RequestEnds(resp) }()
	if !isWrite(req.Method) {
		return t.next.RoundTrip(req)
	}
	who := from.debtor()
	to, followed := who.targetOf(klog.FromContext(ctx), addressOf(req.URL))
	if to.resource == "" {
		return t.next.RoundTrip(req)
	}
	w, req := from.recordWrite(req, to)
	changes, other := ownAnswer[to.subresource]
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
			who.sends(to)
			defer who.answered(to)
		}
	}
	known := !tracked // what has become of the write; it is not if a transport below panics
	defer func() {
		if !known {
			who.lostAnswer(klog.FromContext(ctx), to)
		}
	}()
	resp, err = t.next.RoundTrip(req)
	switch {
	case known:
	case err != nil && unsent(err),
		err == nil && resp.StatusCode/100 != 2 && (!followed || refused(req.Method, to, resp)):
		known = true // nothing was written
	case other:
		who.wroteUnversioned(to)
		known = true
	case err == nil && resp.StatusCode/100 == 2:
		known = record(ctx, from, &w, to, followed, req.Method, resp)
	}
	w.Lost = !known
	from.addRequest(w, resp, err)
	return resp, err
}

// record tells the writer what a successful answer says has been written. A cache shows the resource if followed is
// true; otherwise the write is only kept for the run's history. It completes w with the name and version of the object,
// if there is one object, and reports whether it could read the answer.
func record(ctx context.Context, from writer, w *status.Write, to target, followed bool, method string,
	resp *http.Response) bool {
	contentType := resp.Header.Get("Content-Type")
	var objects []metadata
	media, err := mediaOf(contentType)
	if err == nil {
		var body []byte
		if body, err = readAnswer(resp); err != nil {
			return false
		}
		objects, err = decodeMetadata(media, body)
	}
	if err != nil {
		if followed {
			klog.FromContext(ctx).Error(err, "The answer to a write cannot be read", "verb", w.Verb,
				"resource", to.resource, "object", Key{Namespace: to.namespace, Name: to.name})
		}
		return false
	}
	for _, o := range objects {
		written := newWrite(to, method, resp.StatusCode, o)
		from.Wrote(written.uid, written.resourceVersion, written.deleted)
		from.debtor().wrote(klog.FromContext(ctx), written)
	}
	if len(objects) == 1 {
		w.Name, w.ResourceVersion = cmp.Or(to.name, objects[0].Name), objects[0].ResourceVersion
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
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var notSent interface{ NotSent() bool }
	return errors.As(err, &notSent) && notSent.NotSent()
}

func isWrite(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// ownAnswer has the subresources whose answer is not the object that an informer sees. The value is true if a write to
// the subresource changes that object.
var ownAnswer = map[string]bool{
	"binding": true, "eviction": true,
	"token": false, "exec": false, "attach": false, "portforward": false, "proxy": false,
}
