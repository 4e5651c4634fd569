package reconciletest

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// openAPI answers the requests of OpenAPI v3 with as much as kubectl needs of it: which kinds there are, and that
// writes take the parameters dryRun and fieldValidation, so that kubectl leaves the validation to the server. There are
// the schemas of custom resources, and none of built-in kinds.
//
//	/openapi/v3                      the documents
//	/openapi/v3/api/v1               the core group's
//	/openapi/v3/apis/GROUP/VERSION   those of the others
func (s *Server) openAPI(path []string) (*http.Response, bool) {
	if len(path) == 0 {
		documents := map[string]any{}
		for gvr := range s.resources.all() {
			at := rootOf(gvr.GroupVersion())
			documents[strings.TrimPrefix(at, "/")] = map[string]any{"serverRelativeURL": "/openapi/v3" + at}
		}
		return answerJSON(map[string]any{"paths": documents}), true
	}
	root := "/" + strings.Join(path, "/")
	paths := map[string]any{}
	schemas := map[string]any{}
	for _, r := range s.resources.all() {
		if rootOf(r.GroupVersion()) != root {
			continue
		}
		kind := []any{map[string]any{"group": r.Group, "version": r.Version, "kind": r.Kind}}
		at := root + "/"
		if !r.ClusterScoped {
			at += "namespaces/{namespace}/"
		}
		at += r.GroupVersionResource.Resource
		paths[at] = map[string]any{"post": operation("post", kind)}
		paths[at+"/{name}"] = map[string]any{"get": operation("get", kind), "put": operation("put", kind),
			"patch": operation("patch", kind), "delete": operation("delete", kind)}
		described := map[string]any{}
		if r.schema != nil {
			described = r.schema.document()
		}
		described["type"], described["x-kubernetes-group-version-kind"] = "object", kind
		schemas[strings.Join(append(reversed(r.Group), r.Version, r.Kind), ".")] = described
	}
	if len(paths) == 0 {
		return nil, false
	}
	return answerJSON(map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes", "version": serverVersion.GitVersion},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	}), true
}

func rootOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// reversed returns the labels of a group's name in the order in which schemas are named: com, example, backups.
func reversed(group string) []string {
	labels := strings.Split(group, ".")
	slices.Reverse(labels)
	return labels
}

func operation(verb string, kind []any) map[string]any {
	o := map[string]any{"x-kubernetes-group-version-kind": kind[0], "x-kubernetes-action": verb}
	if verb == "post" || verb == "put" || verb == "patch" {
		var parameters []any
		for _, name := range slices.Sorted(
			maps.Keys(map[string]bool{"dryRun": true, "fieldManager": true, "fieldValidation": true})) {
			parameters = append(parameters, map[string]any{"name": name, "in": "query",
				"schema": map[string]any{"type": "string", "uniqueItems": true}})
		}
		o["parameters"] = parameters
	}
	return o
}
