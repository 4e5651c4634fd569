package reconcile

import (
	"net/http"
	"regexp"
	"strings"
)

// target is what a request to a Kubernetes API is about.
type target struct {
	host, group, resource string
	namespace, name       string // name is empty for a whole collection and for a create
	subresource           string
}

// version is the form of an API version (Kubernetes API Concepts, "API versioning").
var version = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// targetOf reads a request's path, whose shapes are
//
//	/api/v1/...                              the core group, ""
//	/apis/GROUP/VERSION/...                  any other
//
// followed by RESOURCE, RESOURCE/NAME or RESOURCE/NAME/SUBRESOURCE, with namespaces/NAMESPACE/ in front for what lives in a namespace. A server
// that stands behind a proxy has a prefix in front of it all, which tells it from the other servers there and so is kept with the host.
// (Kubernetes API Concepts, "Resource URIs".)
func targetOf(r *http.Request) (target, bool) {
	t := target{host: r.URL.Host}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	root, skip := 0, 0
	for ; skip == 0; root++ {
		switch {
		case len(parts) < root+3:
			return t, false
		case parts[root] == "api" && version.MatchString(parts[root+1]):
			skip = 2
		case parts[root] == "apis" && len(parts) > root+3 && version.MatchString(parts[root+2]):
			skip, t.group = 3, parts[root+1]
		default:
			t.host += "/" + parts[root]
		}
	}
	parts = parts[root-1+skip:]

	// namespaces/x is the namespace x itself, and namespaces/x/status its subresource; namespaces/x/pods are pods.
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = strings.Join(parts[2:], "/")
	}
	return t, true
}
