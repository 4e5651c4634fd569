package reconcile

import (
	"net/http"
	"slices"
	"strings"
)

// target is what a request to a Kubernetes API is about.
type target struct {
	host, group, resource string
	namespace, name       string // name is empty for a whole collection and for a create
	subresource           string
}

// targetOf reads a request's path, whose shapes are
//
//	/api/v1/...                              the core group, ""
//	/apis/GROUP/VERSION/...                  any other
//
// followed by RESOURCE, RESOURCE/NAME or RESOURCE/NAME/SUBRESOURCE, with namespaces/NAMESPACE/ in front for what lives in a namespace. A server
// that stands behind a proxy has a prefix in front of it all. (Kubernetes API Concepts, "Resource URIs".)
func targetOf(r *http.Request) (target, bool) {
	t := target{host: r.URL.Host}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	root := slices.IndexFunc(parts, func(p string) bool { return p == "api" || p == "apis" })
	if root < 0 {
		return t, false
	}
	skip := 2 // api, version
	if parts[root] == "apis" {
		skip = 3 // apis, group, version
	}
	if len(parts) <= root+skip {
		return t, false
	}
	if skip == 3 {
		t.group = parts[root+1]
	}
	parts = parts[root+skip:]

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
