package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// family is the versions of a kind of custom resources. An object is stored in the version in which the definition said
// it is stored when it was written last, and each request sees it in its own version.
//
// As on a real server, a GET and a write convert what is stored, each time. Lists and watches are answered from a cache
// for each version, into which an object is converted once.
type family struct {
	server     *Server
	definition types.NamespacedName
	versions   map[string]*Resource // those that are not served, too

	mu    sync.Mutex
	read  object          // guarded by mu: the definition that of was read from
	of    *definition     // guarded by mu
	cache map[view]object // guarded by mu; emptied when of says something else
}

// view is an object that is stored, in a version.
type view struct {
	stored  object
	version string
}

// now returns the definition as it is.
func (f *family) now() (*definition, error) {
	live := f.server.store.get(definitions.GroupResource(), f.definition)
	f.mu.Lock()
	defer f.mu.Unlock()
	if live == f.read && f.of != nil {
		return f.of, nil
	}
	u, ok := live.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("the CustomResourceDefinition %s is gone", f.definition.Name)
	}
	of, err := parseDefinition(u)
	if err != nil {
		return nil, err
	}
	if f.of != nil && !reflect.DeepEqual(f.of.Spec, of.Spec) {
		clear(f.cache)
	}
	f.read, f.of = live, of
	return of, nil
}

// convert returns an object in another version, as the definition says. A call says who waits for it.
func (f *family) convert(c *call, o object, version string) (object, error) {
	u := o.(*unstructured.Unstructured)
	from, to := u.GroupVersionKind(), f.versions[version]
	if from.Version == version {
		return o, nil
	}
	if f.versions[from.Version] == nil {
		return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", from.GroupVersion())
	}
	of, err := f.now()
	if err != nil {
		return nil, err
	}
	converted := u
	switch of.Spec.Conversion.Strategy {
	case "Webhook":
		converted, err = f.ask(c, of, u, to.gvk())
	default:
		converted = u.DeepCopy()
		converted.SetGroupVersionKind(to.gvk())
	}
	if err != nil {
		return nil, err
	}
	return converted, nil
}

// show returns what is stored in another version.
func (f *family) show(c *call, stored object, version string) (object, error) {
	o, err := f.convert(c, stored, version)
	if to := f.versions[version]; err == nil && o != stored && to.schema != nil {
		to.schema.prune(o.(*unstructured.Unstructured).Object)
	}
	return o, err
}

// store returns an object as it is to be stored.
func (f *family) store(c *call, o object) (object, error) {
	of, err := f.now()
	if err != nil {
		return nil, err
	}
	stored, err := f.convert(c, o, of.storage())
	if hub := f.versions[of.storage()]; err == nil && stored != o && hub.schema != nil {
		content := stored.(*unstructured.Unstructured).Object
		hub.schema.prune(content)
		hub.schema.applyDefaults(content) // a real server fills in what is missing whenever it reads
	}
	return stored, err
}

// outdated reports whether an object is stored in a version that is no longer the one for that.
func (f *family) outdated(key types.NamespacedName) bool {
	of, err := f.now()
	for _, r := range f.versions {
		o := f.server.store.get(r.GroupResource(), key)
		return err == nil && o != nil && o.GetObjectKind().GroupVersionKind().Version != of.storage()
	}
	return false
}

// cached returns an object as lists and watches show it.
func (f *family) cached(c *call, stored object, version string) (object, error) {
	of, err := f.now() // which empties the cache if it has changed
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	known := f.cache[view{stored, version}]
	f.mu.Unlock()
	if known != nil {
		return known, nil
	}
	o, err := f.show(c, stored, version)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == of { // else the definition has changed while a webhook was asked
		f.cache[view{stored, version}] = o
	}
	return o, nil
}

// live returns what is stored of the object that a call is about, in a version of its kind, or nil.
func (c *call) live(s *Server, r *Resource) (object, error) { return c.show(r, s.lookup(r, c.key())) }

// show returns what is stored in the version of a resource; nil for nil.
func (c *call) show(r *Resource, stored object) (object, error) {
	if stored == nil || r.family == nil {
		return stored, nil
	}
	o, err := r.family.show(c, stored, r.Version)
	if err != nil && !isNotModelled(err) {
		err = fmt.Errorf("object not decodable revision=%s: %w", stored.GetResourceVersion(), err)
	}
	return o, err
}

// corrupt is what a GET, a deletion and a list say of an object that cannot be converted.
func corrupt(root string, r *Resource, stored object, err error) error {
	if stored == nil || isNotModelled(err) {
		return err
	}
	return fmt.Errorf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
		keyInStorage(root, r, stored), err)
}

// keyInStorage is where a real server stores an object.
func keyInStorage(root string, r *Resource, o object) string {
	return root + "/" + r.Group + "/" + r.GroupVersionResource.Resource + "/" + strings.TrimPrefix(keyString(o), "/")
}

// internal makes an internal error of one that is none of the API's.
func internal(err error) error {
	if err == nil || isNotModelled(err) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// showCached returns objects as lists and watches show them.
func (c *call) showCached(r *Resource, stored []object) ([]object, error) {
	if r.family == nil {
		return stored, nil
	}
	all := make([]object, len(stored))
	for i, o := range stored {
		if o == nil {
			continue
		}
		var err error
		if all[i], err = r.family.cached(c, o, r.Version); err != nil {
			return nil, unreadable(r, o, err)
		}
	}
	return all, nil
}

// unreadable is the answer to a list of objects of which one cannot be converted.
func unreadable(r *Resource, stored object, err error) error {
	if isNotModelled(err) {
		return err
	}
	err = fmt.Errorf("object not decodable revision=%s: %w", stored.GetResourceVersion(), err)
	err = corrupt("/registry", r, stored, err)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Message: fmt.Sprintf("failed to read one or more %s from the storage: %v", r.GroupResource(), err),
		Details: &metav1.StatusDetails{Name: "list", Group: r.Group, Kind: r.GroupVersionResource.Resource,
			Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: err.Error(),
				Field: keyInStorage("/registry", r, stored)}}},
	}}
}

func isNotModelled(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Reason == ReasonNotModelled
}

// write replaces what is stored, as [store.writeLent] does, by an object in any version, and returns that as it is now.
func (c *call) write(s *Server, key types.NamespacedName, was, is object, lent bool) (object, error) {
	r, stored := c.resource, is
	if r.family != nil && is != nil {
		var err error
		if stored, err = r.family.store(c, is); err != nil {
			return nil, err
		}
	}
	if c.deadline.over() {
		return nil, errLate
	}
	defer s.fork.begin()()
	written, err := s.store.writeLent(r.GroupResource(), key, was, stored, lent)
	if err != nil {
		return nil, err
	}
	if r.GroupVersionResource == definitions && s.fork == nil {
		switch {
		case is == nil:
			withdraw(s, key.Name, was.GetUID())
		case was == nil:
			announce(s, is)
		}
	}
	s.collector.wrote(written)
	s.fork.wrote(c, was, written, is == nil)
	return c.show(r, written)
}

// kindsOf returns a resource of each kind, in order: that of the version in which objects are stored.
func kindsOf(s *Server) []*Resource {
	all := map[schema.GroupResource]*Resource{}
	for _, r := range s.resources.all() {
		if r.family != nil {
			if of, err := r.family.now(); err == nil {
				r = r.family.versions[of.storage()]
			}
		}
		all[r.GroupResource()] = r
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *Resource) int {
		return strings.Compare(a.GroupVersionResource.String(), b.GroupVersionResource.String())
	})
}

// familyTypes tells field managers how custom resources of several versions are put together.
type familyTypes map[string]customTypes // by apiVersion

func (f familyTypes) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	t, ok := f[o.GetObjectKind().GroupVersionKind().GroupVersion().String()]
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("family", o.GetObjectKind().GroupVersionKind())
	}
	return t.ObjectToTyped(o, opts...)
}

func (f familyTypes) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	return customTypes{}.TypedToObject(v)
}

// familyTree converts for field managers. It does not change what it is given.
type familyTree struct {
	tree
	*family
}

func (f familyTree) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	to, ok2 := target.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	switch {
	case !ok || !ok2:
		return nil, fmt.Errorf("a %T cannot be made a %s", in, target)
	case u.GroupVersionKind() == to:
		return u, nil
	case f.versions[to.Version] == nil:
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to.GroupVersion())
	case len(u.Object) == 2: // nothing but the kind
		empty := &unstructured.Unstructured{Object: map[string]any{}}
		empty.SetGroupVersionKind(to)
		return empty, nil
	}
	return f.convert(&call{ctx: context.Background()}, u, to.Version)
}
