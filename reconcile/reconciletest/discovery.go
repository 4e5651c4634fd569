package reconciletest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// serverVersion is what /version answers: the version whose behaviour is modelled.
var serverVersion = apiversion.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1", GitTreeState: "clean",
	GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64"}

// serveDocument answers a request for something that is no resource: the version, health, and the documents by which
// clients discover what the server has. It reports false for a path that it does not know.
//
//	/version  /healthz  /livez  /readyz
//	/api      /apis     /apis/GROUP        versions
//	/api/v1             /apis/GROUP/VERSION  resources
//	/openapi/v3  /openapi/v3/...            see openapi.go
func (s *Server) serveDocument(path string) (*http.Response, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/version":
		return answerJSON(serverVersion), true
	case path == "/healthz" || path == "/livez" || path == "/readyz":
		return answerText(http.StatusOK, "ok"), true
	case len(parts) == 1 && parts[0] == "api":
		return answerJSON(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}), true
	case len(parts) == 1 && parts[0] == "apis":
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{}}
		for _, name := range slices.Sorted(maps.Keys(s.versions())) {
			if name != "" {
				list.Groups = append(list.Groups, s.group(name))
			}
		}
		return answerJSON(list), true
	case len(parts) == 2 && parts[0] == "apis" && len(s.versions()[parts[1]]) > 0:
		group := s.group(parts[1])
		group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return answerJSON(&group), true
	case len(parts) == 2 && parts[0] == "api":
		return s.resourceList(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case len(parts) >= 2 && parts[0] == "openapi" && parts[1] == "v3":
		return s.openAPI(parts[2:])
	}
	return nil, false
}

// versionsOf returns the versions that are served of each group, the preferred one first.
func versionsOf(resources map[schema.GroupVersionResource]*Resource) map[string][]string {
	all := make(map[string][]string)
	for gvr := range resources {
		if !slices.Contains(all[gvr.Group], gvr.Version) {
			all[gvr.Group] = append(all[gvr.Group], gvr.Version)
		}
	}
	for _, versions := range all {
		slices.SortFunc(versions, func(a, b string) int { return apiversion.CompareKubeAwareVersionStrings(b, a) })
	}
	return all
}

func (s *Server) group(name string) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	for _, v := range s.versions()[name] {
		group.Versions = append(group.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

func (s *Server) resourceList(gv schema.GroupVersion) (*http.Response, bool) {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, r := range s.resources.all() {
		if r.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, r.discovered()...)
		}
	}
	if gv == accessReviews.GroupVersion() {
		list.APIResources = append(list.APIResources, discoveredReviews()...)
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return answerJSON(list), len(list.APIResources) > 0
}

// discovered returns what the discovery documents say of a resource and its subresources.
func (r *Resource) discovered() []metav1.APIResource {
	if k := registered(r); k != nil {
		return k.Discovery
	}
	one := metav1.APIResource{
		Name: r.GroupVersionResource.Resource, SingularName: r.singular(), Namespaced: !r.ClusterScoped, Kind: r.Kind,
		ShortNames: r.ShortNames, Categories: r.Categories,
		Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
	}
	if r.GroupResource() == namespaces.GroupResource() {
		one.Verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	all := []metav1.APIResource{one}
	if r.Status {
		all = append(all, metav1.APIResource{Name: one.Name + "/status", Namespaced: one.Namespaced, Kind: r.Kind,
			Verbs: metav1.Verbs{"get", "patch", "update"}})
	}
	if r.GroupVersionResource == pods {
		all = append(all, metav1.APIResource{Name: one.Name + "/binding", Namespaced: true, Kind: "Binding",
			Verbs: metav1.Verbs{"create"}})
	}
	if r.GroupVersionResource == namespaces {
		all = append(all, metav1.APIResource{Name: one.Name + "/" + finalize, Kind: r.Kind,
			Verbs: metav1.Verbs{"update"}})
	}
	if r.scalable() {
		all = append(all, metav1.APIResource{
			Name: one.Name + "/scale", Namespaced: one.Namespaced, Group: "autoscaling", Version: "v1", Kind: "Scale",
			Verbs: metav1.Verbs{"get", "patch", "update"},
		})
	}
	return all
}

func (r *Resource) singular() string {
	if r.Singular != "" {
		return r.Singular
	}
	return strings.ToLower(r.Kind)
}

func answerText(code int, text string) *http.Response {
	resp := answer(code, "text/plain; charset=utf-8", io.NopCloser(strings.NewReader(text)))
	resp.ContentLength = int64(len(text))
	return resp
}

func answerJSON(v any) *http.Response {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // these are documents that the server makes
	}
	resp := answer(http.StatusOK, runtime.ContentTypeJSON, io.NopCloser(bytes.NewReader(body)))
	resp.ContentLength = int64(len(body))
	return resp
}
