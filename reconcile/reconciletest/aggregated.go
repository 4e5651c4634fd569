package reconciletest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aggregated are the versions of API groups that handlers serve: see [Options.Aggregated].
type aggregated map[schema.GroupVersion]http.Handler

// validate returns an error for a version that no handler can serve.
func (a aggregated) validate(resources map[schema.GroupVersionResource]*Resource) error {
	for gv, handler := range a {
		switch {
		case gv.Group == "" || gv.Version == "":
			return fmt.Errorf("Options.Aggregated: %q needs a group and a version", gv)
		case handler == nil:
			return fmt.Errorf("Options.Aggregated: %s needs a handler", gv)
		case len(versionsOf(resources)[gv.Group]) > 0:
			return fmt.Errorf("Options.Aggregated: the server has the group %s itself", gv.Group)
		}
	}
	return nil
}

// of returns the handler of a request, or nil.
func (a aggregated) of(r Request) http.Handler {
	gv := r.Resource.GroupVersion()
	if r.Path != "" {
		parts := strings.Split(strings.Trim(r.Path, "/"), "/")
		if len(parts) != 3 || parts[0] != "apis" {
			return nil
		}
		gv = schema.GroupVersion{Group: parts[1], Version: parts[2]}
	}
	return a[gv]
}

// proxy lets a handler answer, if the user of the link may ask.
func (l *Link) proxy(handler http.Handler, r Request, req *http.Request) (*http.Response, error) {
	if err := l.authorize(r, ""); err != nil {
		return nil, err
	}
	forwarded := req.Clone(req.Context())
	forwarded.RequestURI = req.URL.RequestURI()
	if forwarded.Body == nil {
		forwarded.Body = http.NoBody
	}
	if l.user != "" {
		forwarded.Header.Set("X-Remote-User", l.user)
	}
	recorded := httptest.NewRecorder()
	handler.ServeHTTP(recorded, forwarded)
	return recorded.Result(), nil
}

// versions returns the versions of all groups, those of handlers and of questions about rights included.
func (s *Server) versions() map[string][]string {
	all := make(map[schema.GroupVersionResource]*Resource, len(s.resources.all())+len(s.aggregated))
	for gvr, r := range s.resources.all() {
		all[gvr] = r
	}
	for gv := range s.aggregated {
		all[gv.WithResource("")] = nil
	}
	all[accessReviews] = nil
	return versionsOf(all)
}
