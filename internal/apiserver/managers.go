package apiserver

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// manageFields makes the field managers of a resource and its status: who has set which field, and how a server-side apply is merged. That is the code
// of the real server, which apimachinery has for everybody.
func (r *Resource) manageFields(types managedfields.TypeConverter) error {
	r.fieldManagers = make(map[string]*managedfields.FieldManager)
	version := fieldpath.APIVersion(r.GroupVersion().String())
	path := func(parts ...any) fieldpath.Path { return fieldpath.MakePathOrDie(parts...) }
	// What a write cannot change is not owned by the writer.
	resets := map[string]*fieldpath.Set{"": fieldpath.NewSet()}
	if r.Status {
		resets[""].Insert(path("status"))
		if r.custom() {
			resets["status"] = fieldpath.NewSet(path("apiVersion"), path("kind"), path("metadata"), path("spec"))
		} else {
			resets["status"] = fieldpath.NewSet(path("spec"))
			for _, p := range r.builtin.statusReset {
				resets["status"].Insert(path(p...))
			}
		}
	}
	for subresource, reset := range resets {
		var err error
		filter := fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{version: reset})
		if r.custom() {
			r.fieldManagers[subresource], err = managedfields.NewDefaultCRDFieldManager(customTypes{}, tree{}, tree{}, tree{},
				r.gvk(), r.GroupVersion(), subresource, filter)
		} else {
			r.fieldManagers[subresource], err = managedfields.NewDefaultFieldManager(types, scheme.Scheme, defaulter{r}, scheme.Scheme,
				r.gvk(), r.GroupVersion(), subresource, filter)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// defaulter lets the field manager fill in the defaults of a built-in kind.
type defaulter struct{ resource *Resource }

func (d defaulter) Default(o runtime.Object) {
	if o, ok := o.(object); ok {
		d.resource.applyDefaults(o)
	}
}

// customTypes tells a field manager how custom resources are put together: their metadata as everywhere, and of all else only what can be seen.
type customTypes struct{}

func (customTypes) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom resource", o)
	}
	return customType().FromUnstructured(u.UnstructuredContent(), opts...)
}

func (customTypes) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	content, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom resource", v.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// customType is the type of every custom resource. Lists in the metadata are merged by key, all others are one value.
var customType = sync.OnceValue(func() typed.ParseableType {
	parser, err := typed.NewParser(`types:
- name: object
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: metadata}, default: {}}
    elementType: {namedType: any}
- name: metadata
  map:
    fields:
    - {name: annotations, type: {map: {elementType: {scalar: string}}}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: finalizers, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: ownerReferences, type: {list: {elementType: {namedType: owner}, elementRelationship: associative, keys: [uid]}}}
    - {name: managedFields, type: {namedType: any}}
    elementType: {namedType: any}
- name: owner
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: name, type: {scalar: string}}
    - {name: uid, type: {scalar: string}}
    - {name: controller, type: {scalar: boolean}}
    - {name: blockOwnerDeletion, type: {scalar: boolean}}
    elementRelationship: atomic
- name: any
  scalar: untyped
  list: {elementType: {namedType: atomic}, elementRelationship: atomic}
  map: {elementType: {namedType: any}, elementRelationship: separable}
- name: atomic
  scalar: untyped
  list: {elementType: {namedType: atomic}, elementRelationship: atomic}
  map: {elementType: {namedType: atomic}, elementRelationship: atomic}
`)
	if err != nil {
		panic(err)
	}
	return parser.Type("object")
})

// tree is what a field manager has to know of custom resources: they have one version and no defaults that it would have to know of.
type tree struct{}

func (tree) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (tree) Default(runtime.Object) {}

func (tree) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return fmt.Errorf("a %T cannot be made a %T", in, out)
	}
	to.Object = from.Object
	return nil
}

func (tree) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (tree) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// managerName is who makes a request: who it says it is, or the first word of its user agent.
func managerName(given, userAgent string) string {
	if given != "" {
		return given
	}
	name, _, _ := strings.Cut(userAgent, "/")
	return name[:min(len(name), 128)]
}
