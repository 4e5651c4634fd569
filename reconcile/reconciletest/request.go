package reconciletest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Request says what a request does, and to which object or collection.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb     string
	Resource schema.GroupVersionResource
	// Namespace is empty for what lives in none, and for all namespaces; Name for a whole collection, and for a
	// creation.
	Namespace, Name string
	Subresource     string
	DryRun          bool
	// Path is set, and the verb get, if the request is about no resource: /healthz, discovery. The other fields are
	// empty then.
	Path string
}

// Writes reports whether the request is one that may change something.
func (r Request) Writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !r.DryRun
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete: // to an API of Scenario.Outside
		return true
	}
	return false
}

func (r Request) String() string {
	if r.Path != "" {
		return r.Verb + " " + r.Path
	}
	s := fmt.Sprintf("%s %s", r.Verb, r.Resource.Resource)
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Namespace != "" || r.Name != "" {
		s += fmt.Sprintf(" %s/%s", r.Namespace, r.Name)
	}
	return s
}

func (r Request) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// parseRequest reads method, path and query of a request, whose path is one of
//
//	/api/VERSION/REST  /apis/GROUP/VERSION/REST
//	where REST is [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
//
// or that of a document: see [Server.serveDocument].
func parseRequest(method, path string, query url.Values) (Request, error) {
	var r Request
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.Resource.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.Resource.Group, r.Resource.Version, parts = parts[1], parts[2], parts[3:]
	case method == http.MethodGet:
		return Request{Verb: "get", Path: path}, nil
	default:
		return r, notModelled("%s of the path %s", method, path)
	}
	if parts[0] == "watch" {
		return r, notModelled("the path %s: ask for the collection, with watch=true", path)
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != finalize {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = strings.Join(parts[2:], "/")
	}
	r.DryRun = query.Has("dryRun")
	collection := r.Name == ""
	watch := query.Get("watch")
	switch {
	case method == http.MethodGet && collection && (watch == "true" || watch == "1"):
		r.Verb = "watch"
	case method == http.MethodGet && collection:
		r.Verb = "list"
	case method == http.MethodGet:
		r.Verb = "get"
	case method == http.MethodPost && (collection || r.Subresource != ""):
		r.Verb = "create"
	case method == http.MethodPut && !collection:
		r.Verb = "update"
	case method == http.MethodPatch && !collection:
		r.Verb = "patch"
	case method == http.MethodDelete && collection:
		r.Verb = "deletecollection"
	case method == http.MethodDelete:
		r.Verb = "delete"
	default:
		return r, apierrors.NewMethodNotSupported(r.Resource.GroupResource(), strings.ToLower(method))
	}
	return r, nil
}
