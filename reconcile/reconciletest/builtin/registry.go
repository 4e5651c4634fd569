package builtin

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// registry is a version of a kind as reconciletest asks for it: it converts an object to the internal version, has the
// storage of the subresource write it in a transaction, and converts what the transaction would have stored.
type registry struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	scheme   *runtime.Scheme
	storages map[string]rest.Storage // by subresource; "" is the object itself
	store    *genericregistry.Store  // of storages[""]
}

var _ reconciletest.Registry = &registry{}

// Default makes an object what it is once it has been decoded: with defaults, and what a conversion to the internal
// version and back adds, such as an annotation of DaemonSets.
func (r *registry) Default(o runtime.Object) {
	r.scheme.Default(o)
	is, err := r.internal(o)
	if err != nil {
		return
	}
	if back, err := r.external(is); err == nil {
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(back).Elem())
	}
}

// Fields are those that field selectors may name.
func (r *registry) Fields(o runtime.Object) fields.Set {
	is, err := r.internal(o)
	if err != nil {
		return nil
	}
	_, set, err := r.store.Storage.Storage.(*transactions).attributes(is)
	if err != nil {
		return nil
	}
	return set
}

// Create returns a new object as it is to be stored.
func (r *registry) Create(w reconciletest.Attempt, o runtime.Object) (runtime.Object, error) {
	is, err := r.internal(o)
	if err != nil {
		return nil, err
	}
	uid := o.(metav1.Object).GetUID() // the server's own, which is the same in each run
	admit := func(_ context.Context, is runtime.Object) error {
		is.(metav1.Object).SetUID(uid)
		return r.admit(w, is, nil)
	}
	t := &transaction{}
	_, err = r.storages[""].(rest.Creater).Create(t.begin(r.context(w)), is, admit, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	t.is.(metav1.Object).SetUID(uid)
	return r.external(t.is)
}

// Update returns what o makes of the object live, and whether that is gone.
func (r *registry) Update(w reconciletest.Attempt, o, live runtime.Object) (made runtime.Object, gone bool, err error) {
	is, err := r.internal(o)
	if err != nil {
		return nil, false, err
	}
	t := &transaction{}
	if t.live, err = r.internal(live); err != nil {
		return nil, false, err
	}
	storage, ok := r.storages[w.Subresource].(rest.Updater)
	if k, err := r.kindOf(r.storages[w.Subresource]); !ok || err != nil || k != r.kind {
		storage = r.storages[""].(rest.Updater) // such as of a Scale, which the server has turned into its object
	}
	info := rest.DefaultUpdatedObjectInfo(nil, func(context.Context, runtime.Object, runtime.Object) (runtime.Object,
		error) {
		return is, nil
	})
	admit := func(_ context.Context, is, was runtime.Object) error { return r.admit(w, is, was) }
	last, _, err := storage.Update(t.begin(r.context(w)), w.Name, info, nil, admit, false, &metav1.UpdateOptions{})
	if err != nil {
		return nil, false, err
	}
	if t.deleted { // what is answered was never stored
		made, err = r.external(last)
		return made, true, err
	}
	made, err = r.external(t.is)
	return made, false, err
}

// admit asks the webhooks about objects in the version of the kind.
func (r *registry) admit(w reconciletest.Attempt, is, was runtime.Object) error {
	if w.Admit == nil {
		return nil
	}
	shown, err := r.external(is)
	if err != nil {
		return err
	}
	if was == nil {
		return w.Admit(shown, nil)
	}
	before, err := r.external(was)
	if err != nil {
		return err
	}
	return w.Admit(shown, before)
}

// internal returns a copy of an object in the internal version.
func (r *registry) internal(o runtime.Object) (runtime.Object, error) {
	is, err := r.scheme.New(r.kind.GroupKind().WithVersion(runtime.APIVersionInternal))
	if err != nil {
		return nil, err
	}
	return is, r.scheme.Convert(o.DeepCopyObject(), is, nil) // a conversion shares memory
}

// external returns an object in the version of the kind.
func (r *registry) external(o runtime.Object) (runtime.Object, error) {
	is, err := r.scheme.New(r.kind)
	if err != nil {
		return nil, err
	}
	if err := r.scheme.Convert(o, is, nil); err != nil {
		return nil, err
	}
	is.GetObjectKind().SetGroupVersionKind(r.kind)
	return is, nil
}

// context says of a write what the real server's handlers say: strategies ask for the version and the user.
func (r *registry) context(w reconciletest.Attempt) context.Context {
	ctx := w.Context
	if ctx == nil {
		ctx = context.Background()
	}
	ctx = request.WithNamespace(ctx, w.Namespace)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: w.Verb,
		APIGroup: r.resource.Group, APIVersion: r.resource.Version, Resource: r.resource.Resource,
		Subresource: w.Subresource, Namespace: w.Namespace, Name: w.Name})
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: w.User, Groups: w.Groups})
	if w.Warn == nil {
		return ctx
	}
	return warning.WithWarningRecorder(ctx, recorder(w.Warn))
}

type recorder func(text string)

func (r recorder) AddWarning(_, text string) { r(text) }

// storeOf returns the store that a storage of the registries is made of.
func storeOf(s any) (*genericregistry.Store, error) {
	for {
		if store, ok := s.(*genericregistry.Store); ok {
			return store, nil
		}
		v := reflect.Indirect(reflect.ValueOf(s))
		var next reflect.Value
		for _, name := range []string{"Store", "StandardStorage", "REST"} {
			if f := v.FieldByName(name); f.IsValid() {
				next = f
				break
			}
		}
		if !next.IsValid() {
			return nil, fmt.Errorf("a %T is made of no store", s)
		}
		s = next.Interface()
	}
}
