package reconcile

import (
	"mime"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// recordWrite begins the record of a request to write. The caller must send the request that it returns, since the body
// of the given one may have been read.
func (r *run) recordWrite(req *http.Request, to target) (status.Write, *http.Request) {
	w := status.Write{At: time.Now(), Verb: verbOfWrite(req, to), Group: to.group, Resource: to.resource,
		Subresource: to.subresource, Namespace: to.namespace, Name: to.name}
	update := req.Method == http.MethodPut && !ownAnswer[to.subresource] && to.subresource != "scale"
	if req.Method != http.MethodPatch && !update || req.Body == nil || !r.worker.keys.Remembers() {
		return w, req
	}
	length := req.ContentLength
	if length <= 0 { // not known
		length = maxOptions
	}
	if length > maxOptions {
		w.PathsUnknown = bodyTooLong
		return w, req
	}
	if !r.worker.ledger.bodies.AllowN(w.At, int(length)+bodyCost) {
		w.PathsUnknown = bodiesTooMany
		return w, req
	}
	req, body, whole := peekBody(req)
	contentType := req.Header.Get("Content-Type")
	switch {
	case !whole:
		w.PathsUnknown = bodyTooLong
	case update:
		var known bool
		l := r.worker.ledger
		if w.Paths, w.MorePaths, known = updatedPaths(everyCache(l), l.seed, contentType, to, body); !known {
			w.PathsUnknown = notCached
		}
	default:
		w.Paths, w.MorePaths = changedPaths(contentType, to, body)
	}
	return w, req
}

// Why the changed paths of a write are unknown.
const (
	bodyTooLong   = "the body is longer than 64 KiB"
	bodiesTooMany = "the controller wrote more than 512 KiB a second"
	notCached     = "no cache had the version that was updated, or the body is in CBOR"
)

// Reading the body of a write costs about 10 ns per byte. A controller reads at most bodyRate bytes a second, and
// bodyBurst at once, so a controller that writes a lot spends less than 1 % of a core on it. Each body counts as
// bodyCost bytes more than it has.
const bodyRate, bodyBurst, bodyCost = 512 << 10, 2 << 20, 512

// verbOfWrite returns the verb of a request, as RBAC names it; an apply is a patch there.
func verbOfWrite(req *http.Request, to target) string {
	switch media, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); {
	case req.Method == http.MethodPost:
		return "create"
	case req.Method == http.MethodPut:
		return "update"
	case req.Method == http.MethodDelete && to.name == "":
		return "deletecollection"
	case req.Method == http.MethodDelete:
		return "delete"
	case types.PatchType(media) == types.ApplyYAMLPatchType, types.PatchType(media) == types.ApplyCBORPatchType:
		return "apply"
	default:
		return "patch"
	}
}

// addRequest completes a record with the answer, and adds it to the run.
func (r *run) addRequest(w status.Write, resp *http.Response, err error) {
	w.Took = time.Since(w.At)
	withText := r.worker.errorTexts
	switch {
	case err != nil:
		w.Error = status.ErrorOf(err, withText)
	case resp.StatusCode >= 400:
		w.Code = resp.StatusCode
		body, err := readAnswer(resp)
		if answer, ok := statusOf(resp.Header.Get("Content-Type"), body); ok && err == nil {
			w.Error = status.ErrorOf(&apierrors.StatusError{ErrStatus: answer}, withText)
			if w.Name == "" && answer.Details != nil {
				w.Name = answer.Details.Name
			}
		}
	default:
		w.Code = resp.StatusCode
	}
	r.Record(w)
}
