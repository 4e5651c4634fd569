package writes

import (
	"mime"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// recordOf begins the record of a request to write. The caller must send the request that it returns, since the body of
// the given one may have been read. Without p the record has no paths.
func recordOf(req *http.Request, to Target, p *Paths) (status.Write, *http.Request) {
	w := status.Write{At: time.Now(), Verb: verbOfWrite(req, to), Group: to.Group, Resource: to.Resource,
		Subresource: to.Subresource, Namespace: to.Namespace, Name: to.Name}
	update := req.Method == http.MethodPut && !ownAnswer[to.Subresource] && to.Subresource != "scale"
	if req.Method != http.MethodPatch && !update || req.Body == nil || p == nil {
		return w, req
	}
	req = p.read(&w, req, to, update)
	return w, req
}

// verbOfWrite returns the verb of a request, as RBAC names it; an apply is a patch there.
func verbOfWrite(req *http.Request, to Target) string {
	switch media, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); {
	case req.Method == http.MethodPost:
		return "create"
	case req.Method == http.MethodPut:
		return "update"
	case req.Method == http.MethodDelete && to.Name == "":
		return "deletecollection"
	case req.Method == http.MethodDelete:
		return "delete"
	case types.PatchType(media) == types.ApplyYAMLPatchType, types.PatchType(media) == types.ApplyCBORPatchType:
		return "apply"
	default:
		return "patch"
	}
}

// addAnswer completes a record with the answer. That of somebody behind the server, such as a proxy's, is left to the
// caller: it may be a stream.
func addAnswer(w *status.Write, resp *http.Response, err error, withText, foreign bool) {
	w.Took = time.Since(w.At)
	if err != nil {
		w.Error = status.ErrorOf(err, withText)
		return
	}
	w.Code = resp.StatusCode
	if w.Code < 400 || foreign {
		return
	}
	body, err := readAnswer(resp)
	answer, ok := statusOf(resp.Header.Get("Content-Type"), body)
	if !ok || err != nil {
		return
	}
	w.Error = status.ErrorOf(&apierrors.StatusError{ErrStatus: answer}, withText)
	if w.Name == "" && answer.Details != nil {
		w.Name = answer.Details.Name
	}
}
