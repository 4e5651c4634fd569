package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// Resource describes one version of a kind of custom resource, as a CustomResourceDefinition does. [ReadCRDs] makes it
// from a manifest. One that is made by hand has a schema that says no more than
// x-kubernetes-preserve-unknown-fields: nothing is pruned, and server-side apply takes every list for one value.
type Resource struct {
	schema.GroupVersionResource
	Kind string
	// ListKind is the kind of lists. Empty: the kind and "List".
	ListKind string
	// Singular is the name of one such resource, for people. Empty: the kind in lower case.
	Singular string
	// ShortNames are shorter names of the resource, and Categories the groups of resources that it belongs to, both for
	// kubectl.
	ShortNames, Categories []string
	// ClusterScoped: the objects live in no namespace.
	ClusterScoped bool
	// Status: there is a status subresource. Writes to the object leave the status alone then, and writes to the status
	// the rest.
	Status bool
	// Scale, if set, is the scale subresource.
	Scale *ScalePaths
	// Default, if set, fills in what an object that was written leaves open, as defaults in the schema and mutating
	// webhooks do.
	Default func(o *unstructured.Unstructured)
	// Validate, if set, says what is wrong with an object that is to be written, as the schema and validating webhooks
	// do; old is nil for a creation. The answer is 422, Invalid.
	Validate func(o, old *unstructured.Unstructured) field.ErrorList

	builtin *rules // nil: a custom resource
	// schema is nil if nothing is known of the fields, and selectableFields are those that field selectors may name,
	// both of custom resources.
	schema           *structure
	selectableFields []string
	// of is the definition; nil: it was made by hand. deprecated is the warning that comes with each answer.
	of         *definition
	deprecated string
	// family is what all versions of the kind share; nil: there is one version.
	family *family
	// inexact says what the server does not do of what the base of a fork does with the resource; empty: nothing is
	// known of such.
	inexact string
	// guard refuses a write that is not modelled, and puts right what clients may not set; o is nil for a deletion, old
	// for a creation. Nil: it has nothing to say.
	guard func(o, old *unstructured.Unstructured) error
	// terminate marks an object that somebody has to do something for before it can go, and reports whether that is so.
	// Nil: there is no such thing, or the rules of a built-in kind have it.
	terminate func(o object) bool
	// fieldManagers by subresource.
	fieldManagers map[string]*managedfields.FieldManager
}

// rules are what is special about a built-in kind.
type rules struct {
	new func() object
	// kind, if set, has the registry that judges writes; of what is below, only what [Kind.resource] sets applies then.
	kind *Kind
	// codecs are those of the scheme of kind, if it has one.
	codecs serializer.CodecFactory
	// conditionalUpdate: an update has to give the resourceVersion that it is based on.
	conditionalUpdate bool
	// createOnUpdate: an update creates the object if there is none.
	createOnUpdate bool
	// returnDeleted: a deletion that is complete answers with the object, and not with a Status.
	returnDeleted bool
	// generation: the objects have one, which changed says when to move; nil: when the spec has changed.
	generation bool
	changed    func(o, old object) bool
	// statusAtCreation: a new object keeps the status that it comes with.
	statusAtCreation bool
	// defaults fill in what was left open, as decoding does on the real server.
	defaults func(o object)
	// keeps fills in what a new object or an update of a whole one leaves out and nobody but the server changes, before
	// it is seen who manages which field. live is nil for a new one.
	keeps func(o, live object)
	// draw gives a new object, or one that is updated, what all objects of the kind share, such as addresses, before
	// the rest is put right and checked. live is nil for a new one. The caller calls release once it has written, or
	// does not.
	draw func(s *Server, c *call, o, live object) (release func(), err error)
	// onCreate, onUpdate and onStatus put right what clients may not set, after the rules that all kinds share.
	onCreate           func(o object)
	onUpdate, onStatus func(o, old object)
	// validate says what is wrong with an object; old is nil for a creation.
	validate func(o, old object) field.ErrorList
	// warn says what to tell who writes a valid object, or a subresource of it.
	warn func(o object, subresource string) []string
	// admit refuses an update that is valid but not allowed.
	admit func(o, old object) error
	// beyond names what is not modelled of an object, if modelled.go cannot say so; empty: there is nothing. It is
	// asked about objects of a registry, too.
	beyond func(o object) string
	// orphans: a deletion that names no policy leaves the dependents alone. ownsNothing: policies mean nothing.
	orphans, ownsNothing bool
	// lend fills in what everybody sees of an object that is stored without it, since a real server defaults it
	// whenever it reads, and reports whether it has.
	lend func(o object) bool
	// metadataLast: what is wrong with the metadata of a new object is not said before the rest is right.
	metadataLast bool
	// fields are those that field selectors may name, beside the object's name and namespace.
	fields func(o object) fields.Set
	// grace decides how long a deletion takes, and puts it into the options; nil: no time.
	grace func(o object, opts *metav1.DeleteOptions)
	// terminate, if set, marks an object that somebody has to do something for before it can go, and reports whether
	// that is so.
	terminate func(o object) bool
	// statusReset are the fields, beside the spec, that belong to nobody who applies them to the status.
	statusReset [][]any
}

func (r *Resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// custom reports whether the objects are those of a CustomResourceDefinition, which are handled as trees of JSON.
func (r *Resource) custom() bool { return r.builtin == nil }

// make returns an empty object.
func (r *Resource) make() object {
	if r.custom() {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(r.gvk())
		return u
	}
	o := r.builtin.new()
	o.GetObjectKind().SetGroupVersionKind(r.gvk())
	return o
}

// schemeOf has the types of the objects of a resource, unless they are custom resources.
func schemeOf(r *Resource) *runtime.Scheme {
	if k := registered(r); k != nil {
		return k.scheme()
	}
	return scheme.Scheme
}

// makeList returns an empty list.
func (r *Resource) makeList() (runtime.Object, error) {
	gvk := r.GroupVersion().WithKind(cmp.Or(r.ListKind, r.Kind+"List"))
	if r.custom() {
		u := &unstructured.UnstructuredList{Object: map[string]any{}}
		u.SetGroupVersionKind(gvk)
		return u, nil
	}
	list, err := schemeOf(r).New(gvk)
	if err == nil {
		list.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return list, err
}

func (r *Resource) applyDefaults(o object) {
	if r.schema != nil {
		r.schema.applyDefaults(o.(*unstructured.Unstructured).Object)
	}
	switch {
	case r.custom() && r.Default != nil:
		r.Default(o.(*unstructured.Unstructured))
	case !r.custom() && r.builtin.defaults != nil:
		r.builtin.defaults(o)
	}
}

// keep does what the kind keeps: see rules.
func keep(r *Resource, o, live object) {
	if r.builtin != nil && r.builtin.keeps != nil {
		r.builtin.keeps(o, live)
	}
}

func (r *Resource) validate(o, old object) field.ErrorList {
	switch {
	case r.custom():
		is := o.(*unstructured.Unstructured)
		was, _ := old.(*unstructured.Unstructured)
		var errs field.ErrorList
		if r.schema != nil {
			var before map[string]any
			if was != nil {
				before = was.Object
			}
			errs = r.schema.validate(is.Object, before)
		}
		errs = append(errs, r.validateScale(is)...)
		if r.Validate != nil {
			errs = append(errs, r.Validate(is, was)...)
		}
		return errs
	case !r.custom() && r.builtin.validate != nil:
		return r.builtin.validate(o, old)
	}
	return nil
}

// selectable returns the fields of an object that a selector can ask for.
func (r *Resource) selectable(o object) fields.Set {
	set := fields.Set{}
	if !r.custom() && r.builtin.fields != nil {
		maps.Copy(set, r.builtin.fields(o)) // which may be nil
	}
	for _, path := range r.selectableFields {
		set[path] = ""
		if v, found, err := unstructured.NestedFieldNoCopy(o.(*unstructured.Unstructured).Object,
			strings.Split(path, ".")...); found && err == nil && v != nil {
			set[path] = fmt.Sprint(v)
		}
	}
	set["metadata.name"] = o.GetName()
	if !r.ClusterScoped {
		set["metadata.namespace"] = o.GetNamespace()
	}
	return set
}

// specChanged reports whether a write asks for something else, which is what generations count.
func (r *Resource) specChanged(o, old object) bool {
	switch {
	case r.custom():
		strip := func(o object) map[string]any {
			rest := make(map[string]any)
			for k, v := range o.(*unstructured.Unstructured).Object {
				if k != "metadata" && !(k == "status" && r.Status) {
					rest[k] = v
				}
			}
			return rest
		}
		return !apiequality.Semantic.DeepEqual(strip(o), strip(old))
	case r.builtin.changed != nil:
		return r.builtin.changed(o, old)
	default:
		return !apiequality.Semantic.DeepEqual(part(o, "Spec").Interface(), part(old, "Spec").Interface())
	}
}

// hasGeneration reports whether the objects count their changes.
func (r *Resource) hasGeneration() bool { return r.custom() || r.builtin.generation }

// keepStatus puts the status of old, or none, in place of that of o.
func (r *Resource) keepStatus(o, old object) {
	if !r.custom() {
		status := part(o, "Status")
		if old == nil {
			status.SetZero()
		} else {
			status.Set(part(copyOf(old), "Status"))
		}
		return
	}
	content := o.(*unstructured.Unstructured).Object
	delete(content, "status")
	if old != nil {
		if status, ok := old.(*unstructured.Unstructured).Object["status"]; ok {
			content["status"] = runtime.DeepCopyJSONValue(status)
		}
	}
}

// keepAllButStatus puts everything of old but its status in place of that of o.
func (r *Resource) keepAllButStatus(o, old object) {
	if !r.custom() {
		part(o, "Spec").Set(part(copyOf(old), "Spec"))
		return
	}
	u := o.(*unstructured.Unstructured)
	status, ok := u.Object["status"]
	managed := u.GetManagedFields()
	u.Object = copyOf(old).(*unstructured.Unstructured).Object
	u.SetManagedFields(managed)
	delete(u.Object, "status")
	if ok {
		u.Object["status"] = status
	}
}

// part returns a field of a built-in object, to be read and set.
func part(o object, name string) reflect.Value {
	v := reflect.ValueOf(o).Elem().FieldByName(name)
	if !v.IsValid() {
		panic(fmt.Sprintf("%T has no field %s", o, name))
	}
	return v
}
