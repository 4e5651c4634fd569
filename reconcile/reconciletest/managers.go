package reconciletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// manageFields makes the field managers of a resource and its status: who has set which field, and how a server-side
// apply is merged. That is the code of the real server, which apimachinery has for everybody.
func (r *Resource) manageFields(types managedfields.TypeConverter) error {
	r.fieldManagers = make(map[string]*managedfields.FieldManager)
	if k := registered(r); k != nil {
		return manageKind(r, types, k)
	}
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
	if r.GroupVersionResource == namespaces {
		resets[finalize] = resets[""]
	}
	for subresource, reset := range resets {
		var err error
		filtered := map[fieldpath.APIVersion]*fieldpath.Set{version: reset}
		if subresource == "status" && r.family != nil {
			for _, other := range r.family.versions {
				if other.Status {
					filtered[fieldpath.APIVersion(other.GroupVersion().String())] = reset
				}
			}
		}
		filter := fieldpath.NewExcludeFilterSetMap(filtered)
		switch {
		case r.family != nil:
			all := familyTypes{}
			for _, other := range r.family.versions {
				all[other.GroupVersion().String()] = customTypes{other.schema.typed()}
			}
			converts := familyTree{family: r.family}
			r.fieldManagers[subresource], err = managedfields.NewDefaultCRDFieldManager(all, converts, tree{}, tree{},
				r.gvk(), r.GroupVersion(), subresource, filter)
		case r.custom():
			r.fieldManagers[subresource], err = managedfields.NewDefaultCRDFieldManager(customTypes{r.schema.typed()},
				tree{}, tree{}, tree{},
				r.gvk(), r.GroupVersion(), subresource, filter)
		default:
			r.fieldManagers[subresource], err = managedfields.NewDefaultFieldManager(types, scheme.Scheme, defaulter{r},
				scheme.Scheme,
				r.gvk(), r.GroupVersion(), subresource, filter)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// manageKind makes the field managers of a kind that Kubernetes' own code serves.
func manageKind(r *Resource, types managedfields.TypeConverter, k *Kind) (err error) {
	if k.Types != nil {
		types = k.Types
	}
	for subresource, filter := range k.ResetFields {
		r.fieldManagers[subresource], err = managedfields.NewDefaultFieldManager(types, k.scheme(), defaulter{r},
			k.scheme(), r.gvk(), r.GroupVersion(), subresource, filter)
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

// customTypes tells a field manager how custom resources are put together: their metadata as everywhere, and of all
// else only what can be seen.
type customTypes struct{ typed.ParseableType }

func (c customTypes) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom resource", o)
	}
	return c.FromUnstructured(u.UnstructuredContent(), opts...)
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
    - name: ownerReferences
      type: {list: {elementType: {namedType: owner}, elementRelationship: associative, keys: [uid]}}
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

// typed is the type of custom resources with this schema.
func (s *structure) typed() typed.ParseableType {
	if s == nil {
		return customType()
	}
	return s.merging()
}

// mergingOf makes the type of custom resources with a schema.
func mergingOf(of *spec.Schema) typed.ParseableType {
	plain, root, any := customType(), typeOf(of, false), "any"
	root.Map.Fields = identified(root.Map.Fields)
	if keepsUnknown(of) {
		root.Map.ElementType = schema.TypeRef{NamedType: &any}
	}
	parser := &typed.Parser{}
	for _, t := range plain.Schema.Types {
		if t.Name != "object" {
			parser.Schema.Types = append(parser.Schema.Types, t)
		}
	}
	parser.Schema.Types = append(parser.Schema.Types, schema.TypeDef{Name: "object", Atom: root})
	return parser.Type("object")
}

// identified returns the fields of a whole object: its apiVersion, its kind and its metadata as in all kinds.
func identified(fields []schema.StructField) []schema.StructField {
	metadata := "metadata"
	fields = slices.DeleteFunc(fields, func(f schema.StructField) bool {
		return f.Name == "apiVersion" || f.Name == "kind" || f.Name == "metadata"
	})
	return append(fields,
		schema.StructField{Name: "apiVersion", Type: schema.TypeRef{Inlined: schema.Atom{Scalar: new(schema.String)}}},
		schema.StructField{Name: "kind", Type: schema.TypeRef{Inlined: schema.Atom{Scalar: new(schema.String)}}},
		schema.StructField{Name: "metadata", Type: schema.TypeRef{NamedType: &metadata},
			Default: map[string]interface{}{}})
}

// typeOf says how values of a schema are merged: maps field by field and lists as a whole, unless the schema says
// something else. preserves: they are below one that keeps unknown fields; a merge takes all then, and what is not
// to be kept is pruned after it.
func typeOf(s *spec.Schema, preserves bool) schema.Atom {
	preserves = preserves || keepsUnknown(s)
	refer := func(s *spec.Schema) schema.TypeRef {
		if isIntOrString, _ := s.Extensions.GetBool(intOrString); isIntOrString {
			return schema.TypeRef{Inlined: schema.Atom{Scalar: new(schema.Scalar("untyped"))}}
		}
		bare := len(s.Properties) == 0 && s.AdditionalProperties == nil && s.Items == nil &&
			!isEmbedded(s)
		if bare && (keepsUnknown(s) || s.Type.Contains("object")) {
			name := "any"
			return schema.TypeRef{NamedType: &name}
		}
		return schema.TypeRef{Inlined: typeOf(s, preserves)}
	}
	switch {
	case s.Type.Contains("object"):
		m := &schema.Map{ElementRelationship: schema.Separable}
		if kind, _ := s.Extensions.GetString(mapType); kind == "atomic" {
			m.ElementRelationship = schema.Atomic
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			property := s.Properties[name]
			m.Fields = append(m.Fields, schema.StructField{Name: name, Type: refer(&property),
				Default: property.Default})
		}
		if isEmbedded(s) {
			m.Fields = identified(m.Fields)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			m.ElementType = refer(s.AdditionalProperties.Schema)
		} else if preserves {
			name := "any"
			m.ElementType = schema.TypeRef{NamedType: &name}
		}
		return schema.Atom{Map: m}
	case s.Type.Contains("array") && s.Items != nil:
		l := &schema.List{ElementType: refer(s.Items.Schema), ElementRelationship: schema.Atomic}
		switch kind, _ := s.Extensions.GetString(listType); kind {
		case "set":
			l.ElementRelationship = schema.Associative
		case "map":
			l.ElementRelationship = schema.Associative
			l.Keys, _ = s.Extensions.GetStringSlice(listMapKeys)
		}
		return schema.Atom{List: l}
	}
	kind := schema.Scalar("untyped")
	switch {
	case s.Type.Contains("string"):
		kind = schema.String
	case s.Type.Contains("boolean"):
		kind = schema.Boolean
	case s.Type.Contains("integer"), s.Type.Contains("number"):
		kind = schema.Numeric
	}
	return schema.Atom{Scalar: &kind}
}

// tree is what a field manager has to know of custom resources: they have one version and no defaults that it would
// have to know of.
type tree struct{}

func (tree) New(kind runtimeschema.GroupVersionKind) (runtime.Object, error) {
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

func (tree) ConvertFieldLabel(_ runtimeschema.GroupVersionKind, label, value string) (string, string, error) {
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
