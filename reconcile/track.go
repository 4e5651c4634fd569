package reconcile

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"

	"k8s.io/klog/v2"
)

// TrackWrites makes controllers consistent with their own writes. One line on the configuration that all clients are
// made from is enough:
//
//	config.Wrap(reconcile.TrackWrites)
//
// From then on every create, update, patch, apply and delete that a Reconcile makes with its ctx, through any kind of
// client, is recorded for the key, and the key is not reconciled again before the informers of its controller have seen
// it. Without it, a controller that creates a pod and is called again a millisecond later, by a change that has nothing
// to do with it, finds no pod in the cache and creates a second one.
//
// A write is waited for if an informer of the controller may see it: its answer tells namespace, labels and UID, and
// what an informer asks for is learned from its own requests, which is why informers need the same configuration: Run
// fails if some of them have it and some have not. Where an answer does not tell, as of a field selector on anything
// but name and namespace, the write is waited for all the same: until the informer has come as far as its version, or,
// after 10 s, the server says that the object is none of the informer's. Dry runs are not waited for, and neither are
// subresources that answer with something else than the object (binding, eviction, scale, token). For clients that have
// no transport to be wrapped there are [Wrote] and [Deleted].
//
// An answer that was lost (a timeout, a broken connection, a 5xx) leaves open whether the write has happened. Nothing
// is assumed: the informers of that resource list anew, once, and then the key runs. A request that the server carries
// out later still than that is nobody's to see, so what must not exist twice needs a name that is not generated: see
// [CreateOwned]. Nothing is left open by a refusal: a 4xx, unless it ends the deletion of a whole collection; an answer
// which says that a webhook has failed or denied, unless the write is a deletion; an error from before there was a
// connection, or of a transport below that has not sent the request and says so by a method NotSent() bool, as the
// error of leaderelection's Fence does: so the two may be wrapped in either order.
func TrackWrites(next http.RoundTripper) http.RoundTripper { return &tracker{next} }

type tracker struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport below.
func (t *tracker) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *tracker) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if l, ok := ctx.Value(learnerKey{}).(*learner); ok {
		l.learn(req)
	}
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok || !isWrite(req.Method) {
		return t.next.RoundTrip(req)
	}
	tgt, followed := r.targetOf(ctx, addressOf(req.URL))
	if _, apart := ownAnswer[tgt.subresource]; apart || tgt.resource == "" {
		return t.next.RoundTrip(req)
	}
	req, dry := dryRun(req)
	if dry {
		return t.next.RoundTrip(req)
	}
	if err := ctx.Err(); err != nil { // now it is certain that it was not sent
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper has to
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		if !unsent(err) {
			r.lostAnswer(ctx, tgt)
		}
		return resp, err
	}
	if resp.StatusCode/100 != 2 {
		if followed && !refused(req.Method, tgt, resp) {
			r.lostAnswer(ctx, tgt)
		}
		return resp, nil
	}
	body, err := readAnswer(resp)
	if err != nil {
		r.lostAnswer(ctx, tgt)
		return resp, nil
	}
	objects, err := decodeMetadata(resp.Header.Get("Content-Type"), body)
	if err != nil {
		if followed {
			klog.FromContext(ctx).Error(err, "The answer to a write cannot be read", "method", req.Method,
				"resource", tgt.resource, "object", Key{Namespace: tgt.namespace, Name: tgt.name})
		}
		r.lostAnswer(ctx, tgt)
		return resp, nil
	}
	for _, o := range objects {
		r.wrote(ctx, req.Method, newWrite(tgt, req.Method == http.MethodDelete, o))
	}
	return resp, nil
}

// readAnswer reads the body of an answer to its end, and leaves it as it was.
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

// unsent reports whether a request has certainly not reached the server: there was no connection to send it on, or a
// transport that has kept it says so.
func unsent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var kept interface{ NotSent() bool }
	return errors.As(err, &kept) && kept.NotSent()
}

func isWrite(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// separate has the subresources whose answer is not the object that an informer sees, and whether a write to one
// changes that object.
var ownAnswer = map[string]bool{
	"binding": true, "eviction": true, "scale": true,
	"token": false, "exec": false, "attach": false, "portforward": false, "proxy": false,
}
