package reconciletest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Object is what [Get] and [List] return: a pointer to a type of k8s.io/api, to a type of your own for a custom
// resource, or to an unstructured.Unstructured.
type Object interface {
	metav1.Object
	runtime.Object
}

// Get returns an object as the server holds it, and whether there is one: for assertions, past every link and its
// faults. The resource is named as in "pods", or with its group, as in "backups.example.com", or with a version, too,
// as in "backups.v1alpha1.example.com"; without, it is the version in which objects are stored. For what lives in no
// namespace, namespace is empty. The object is a copy.
//
// It fails the test if the server has no such resource, or if the object does not fit into a T.
func Get[T Object](s *Server, resource, namespace, name string) (T, bool) {
	s.t.Helper()
	r := s.named(resource)
	held := s.store.get(r.GroupResource(), types.NamespacedName{Namespace: namespace, Name: name})
	if held == nil {
		var none T
		return none, false
	}
	return export[T](s, r, inVersion(s, r, held)), true
}

// List returns the objects of a resource in a namespace, or in all of them if that is empty, ordered by namespace and
// name. Otherwise it is as [Get].
func List[T Object](s *Server, resource, namespace string) []T {
	s.t.Helper()
	r := s.named(resource)
	s.store.mu.Lock()
	held := s.store.listLocked(r.GroupResource(), s.store.version)
	s.store.mu.Unlock()
	var all []T
	for _, o := range held {
		if namespace == "" || o.GetNamespace() == namespace {
			all = append(all, export[T](s, r, inVersion(s, r, o)))
		}
	}
	return all
}

// inVersion converts an object that is stored.
func inVersion(s *Server, r *Resource, held object) object {
	s.t.Helper()
	o, err := (&call{ctx: context.Background(), link: s.direct}).show(r, held)
	if err != nil {
		s.t.Fatalf("reconciletest: %s %s: %v", r.GroupResource(), keyOf(held), err)
	}
	return o
}

// named returns the resource of a name, with or without its group, and fails the test if there is none.
func (s *Server) named(name string) *Resource {
	s.t.Helper()
	r, err := findResource(s, name)
	if err != nil {
		s.t.Fatalf("reconciletest: %v", err)
	}
	return r
}

// findResource returns the resource of a name, with or without its group and version.
func findResource(s *Server, name string) (*Resource, error) {
	var found []*Resource
	var known []string
	for _, r := range kindsOf(s) {
		known = append(known, r.GroupResource().String())
		if name == r.GroupResource().String() {
			return r, nil
		}
		if name == r.GroupVersionResource.Resource {
			found = append(found, r)
		}
	}
	if len(found) == 0 { // a kind that is not there now has no objects
		for _, r := range s.resources.noted() {
			if name == r.GroupVersionResource.Resource || name == r.GroupResource().String() {
				return r, nil
			}
		}
	}
	for gvr, r := range s.resources.all() {
		if name == gvr.Resource+"."+gvr.Version+"."+gvr.Group {
			return r, nil
		}
	}
	slices.Sort(known)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("the server has no resource %q; it has %s", name, strings.Join(known, ", "))
	case 1:
		return found[0], nil
	default:
		return nil, fmt.Errorf("the server has more than one resource %q; name its group, as in %q", name,
			found[0].GroupResource())
	}
}

// export copies an object that is stored into a T.
func export[T Object](s *Server, r *Resource, held object) T {
	s.t.Helper()
	if same, ok := held.DeepCopyObject().(T); ok {
		same.GetObjectKind().SetGroupVersionKind(r.gvk())
		return same
	}
	var t T
	kind := reflect.TypeOf(t)
	if kind == nil || kind.Kind() != reflect.Pointer {
		s.t.Fatalf("reconciletest: %v is no pointer to a type of objects", reflect.TypeFor[T]())
	}
	t = reflect.New(kind.Elem()).Interface().(T)
	if known, _, err := schemeOf(r).ObjectKinds(t); err == nil && known[0].Kind != r.Kind {
		s.t.Fatalf("reconciletest: %s is of kind %s, and a %T is not", r.GroupResource(), r.Kind, t)
	}
	named := copyOf(held)
	named.GetObjectKind().SetGroupVersionKind(r.gvk())
	data, err := json.Marshal(named)
	if err == nil {
		err = json.Unmarshal(data, t)
	}
	if err != nil {
		s.t.Fatalf("reconciletest: %s %s as a %T: %v", r.GroupResource(), keyOf(held), t, err)
	}
	return t
}
