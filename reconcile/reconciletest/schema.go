package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// structure is the schema of a custom resource: "structural", as Kubernetes calls it, so that each node has a type, and
// what happens to an object can be told from the nodes alone. (Kubernetes, "Extend the Kubernetes API with
// CustomResourceDefinitions", structural schemas.)
//
// An object that is written passes through it in this order: nulls that are not allowed are dropped, defaults filled
// in, unknown fields pruned, and then the object is validated.
type structure struct {
	root *spec.Schema
	// openAPI is what was read, ruled whether there are rules in CEL in it, which check judges, and embeds whether
	// there are embedded objects.
	openAPI []byte
	ruled   bool
	embeds  bool
	check   RuleCheck
	merging func() typed.ParseableType // as server-side apply needs it, which all servers share
}

// document returns the schema as a tree of JSON.
func (s *structure) document() map[string]any {
	data, err := json.Marshal(s.root)
	if err != nil {
		panic(err) // it was read from JSON
	}
	var tree map[string]any
	if err := utiljson.Unmarshal(data, &tree); err != nil {
		panic(err)
	}
	return tree
}

// The extensions of OpenAPI that are read.
const (
	preserveUnknown  = "x-kubernetes-preserve-unknown-fields"
	intOrString      = "x-kubernetes-int-or-string"
	embeddedResource = "x-kubernetes-embedded-resource"
	validations      = "x-kubernetes-validations"
	listType         = "x-kubernetes-list-type"
	listMapKeys      = "x-kubernetes-list-map-keys"
	mapType          = "x-kubernetes-map-type"
)

func readSchema(data []byte) (*structure, error) {
	root := &spec.Schema{}
	if err := json.Unmarshal(data, root); err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := utiljson.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	if err := prepare(root, tree, ""); err != nil {
		return nil, err
	}
	merging := sync.OnceValue(func() typed.ParseableType { return mergingOf(root) })
	return &structure{root: root, openAPI: data, ruled: hasExtension(root, validations),
		embeds: hasExtension(root, embeddedResource), merging: merging}, nil
}

// prepare checks a node and all below it, and turns what Kubernetes says by extensions into what the validator
// understands. tree is the node as JSON, with its integers, of which the type of the node makes floating point numbers.
func prepare(s *spec.Schema, tree map[string]any, path string) error {
	at := path
	if at == "" {
		at = "the root"
	}
	isIntOrString, _ := s.Extensions.GetBool(intOrString)
	preserves, _ := s.Extensions.GetBool(preserveUnknown)
	switch {
	case s.Ref.String() != "" || len(s.PatternProperties) > 0 || len(s.Definitions) > 0 || len(s.Dependencies) > 0:
		return fmt.Errorf("$ref, patternProperties, definitions and dependencies are forbidden in structural "+
			"schemas (%s)", at)
	case len(s.Properties) > 0 && s.AdditionalProperties != nil:
		return fmt.Errorf("properties and additionalProperties exclude each other (%s)", at)
	case len(s.Type) == 0 && !isIntOrString && !preserves:
		return fmt.Errorf("%s has no type", at)
	case path == "" && !s.Type.Contains("object"):
		return errors.New("the root is to be of type object")
	}
	if err := checkEmbedded(s, at); err != nil {
		return err
	}
	s.Default = tree["default"]
	if isIntOrString {
		s.Type = spec.StringOrArray{"integer", "string"}
	}
	for name, property := range s.Properties {
		if err := prepare(&property, nodeOf(tree, "properties", name), path+"."+name); err != nil {
			return err
		}
		s.Properties[name] = property
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		if err := prepare(s.AdditionalProperties.Schema, nodeOf(tree, "additionalProperties"), path+"[*]"); err != nil {
			return err
		}
	}
	if s.Items != nil {
		if s.Items.Schema == nil {
			return fmt.Errorf("items of %s is to be one schema", at)
		}
		return prepare(s.Items.Schema, nodeOf(tree, "items"), path+"[]")
	}
	return nil
}

// nodeOf returns the node at a path below another one, nil if there is none.
func nodeOf(tree map[string]any, path ...string) map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(tree, path...)
	found, _ := v.(map[string]any)
	return found
}

// child returns the schema of a field; nil: nothing is said of it.
func child(s *spec.Schema, name string) *spec.Schema {
	if property, ok := s.Properties[name]; ok {
		return &property
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Schema
	}
	return nil
}

// applyDefaults drops nulls that are not allowed, and fills in defaults.
func (s *structure) applyDefaults(content map[string]any) {
	dropNulls(content, s.root)
	setDefaults(content, s.root)
}

// dropNulls removes fields that are null although their schema does not allow that and has no default to put in their
// place.
func dropNulls(x any, s *spec.Schema) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, v := range x {
			of := child(s, name)
			if v == nil && of != nil && !of.Nullable && of.Default == nil {
				delete(x, name)
				continue
			}
			dropNulls(v, of)
		}
	case []any:
		for _, v := range x {
			if s.Items != nil {
				dropNulls(v, s.Items.Schema)
			}
		}
	}
}

func setDefaults(x any, s *spec.Schema) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, property := range s.Properties {
			if v, there := x[name]; property.Default != nil && (!there || v == nil && !property.Nullable) {
				x[name] = runtime.DeepCopyJSONValue(property.Default)
			}
		}
		for name, v := range x {
			of := child(s, name)
			if _, declared := s.Properties[name]; !declared && of != nil && v == nil && !of.Nullable &&
				of.Default != nil {
				x[name] = runtime.DeepCopyJSONValue(of.Default)
			}
			setDefaults(x[name], of)
		}
	case []any:
		if s.Items == nil {
			return
		}
		for i, v := range x {
			if item := s.Items.Schema; v == nil && !item.Nullable && item.Default != nil {
				x[i] = runtime.DeepCopyJSONValue(item.Default)
			}
			setDefaults(x[i], s.Items.Schema)
		}
	}
}

// prune removes the fields of which the schema does not know, and returns their paths: those that are unknown, and
// those in the metadata of embedded objects.
func (s *structure) prune(content map[string]any) (unknown, inEmbedded []string) {
	for name, v := range content {
		if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		pruneField(content, name, v, s.root, "", &unknown)
	}
	sort.Strings(unknown)
	return unknown, s.pruneEmbedded(content)
}

func pruneField(m map[string]any, name string, v any, s *spec.Schema, path string, unknown *[]string) {
	at := strings.TrimPrefix(path+"."+name, ".")
	_, declared := s.Properties[name]
	switch {
	case isEmbedded(s) && (name == "apiVersion" || name == "kind" || name == "metadata"):
	case declared || s.AdditionalProperties != nil:
		pruneValue(v, child(s, name), at, unknown)
	case !keepsUnknown(s):
		*unknown = append(*unknown, at)
		delete(m, name)
	}
}

// pruneValue prunes what is below a value. Of a value without a schema everything goes.
func pruneValue(x any, s *spec.Schema, path string, unknown *[]string) {
	if s == nil {
		s = &spec.Schema{}
	}
	switch x := x.(type) {
	case map[string]any:
		for name, v := range x {
			pruneField(x, name, v, s, path, unknown)
		}
	case []any:
		var item *spec.Schema
		if s.Items != nil {
			item = s.Items.Schema
		}
		if keepsUnknown(s) {
			item = preserving(item)
		}
		for i, v := range x {
			pruneValue(v, item, fmt.Sprintf("%s[%d]", path, i), unknown)
		}
	}
}

// keepsUnknown reports whether a schema says that unknown fields are kept.
func keepsUnknown(s *spec.Schema) bool {
	preserves, _ := s.Extensions.GetBool(preserveUnknown)
	return preserves
}

// preserving returns the schema of the elements of a list that keeps what it does not know: they do so, too. nil: they
// have none.
func preserving(item *spec.Schema) *spec.Schema {
	p := spec.Schema{}
	if item != nil {
		p = *item
	}
	p.Extensions = maps.Clone(p.Extensions)
	p.AddExtension(preserveUnknown, true)
	return &p
}

// validate says what is wrong with an object. On an update what is wrong with a part that has not changed is let pass:
// ratcheting. old is nil for a creation.
func (s *structure) validate(content, old map[string]any) field.ErrorList {
	var result *validate.Result
	if old == nil {
		result = validate.NewSchemaValidator(s.root, nil, "", strfmt.Default).Validate(content)
	} else {
		result = (&ratchet{schema: s.root, path: "", is: content, was: old}).Validate(content)
	}
	errs := append(fieldErrors(result), s.embeddedErrors(content)...)
	if old == nil || len(duplicates(nil, s.root, old)) == 0 {
		errs = append(errs, duplicates(nil, s.root, content)...)
	}
	return s.judge(errs, content, old)
}

// ratchet validates a value of which an earlier one is known.
type ratchet struct {
	schema  *spec.Schema
	path    string
	is, was any
	options []validate.Option
}

func (r *ratchet) SetPath(string)                 {}
func (r *ratchet) Applies(any, reflect.Kind) bool { return true }

func (r *ratchet) Validate(value any) *validate.Result {
	below := func(o *validate.SchemaValidatorOptions) {
		o.NewValidatorForField = func(name string, schema *spec.Schema, root any, path string, formats strfmt.Registry,
			options ...validate.Option) validate.ValueValidator {
			is, ok := r.is.(map[string]any)
			was, ok2 := r.was.(map[string]any)
			v, there := is[name]
			before, there2 := was[name]
			identity := r.path == "" && (name == "apiVersion" || name == "kind")
			if !ok || !ok2 || !there || !there2 || identity || child(r.schema, name) == nil {
				return validate.NewSchemaValidator(schema, root, path, formats, options...)
			}
			return &ratchet{schema, path, v, before, options}
		}
		o.NewValidatorForIndex = func(i int, schema *spec.Schema, root any, path string, formats strfmt.Registry,
			options ...validate.Option) validate.ValueValidator {
			is, _ := r.is.([]any)
			if i < len(is) {
				if before := r.counterpart(is[i]); before != nil {
					return &ratchet{schema, path, is[i], before, options}
				}
			}
			return validate.NewSchemaValidator(schema, root, path, formats, options...)
		}
	}
	result := validate.NewSchemaValidator(r.schema, nil, r.path, strfmt.Default,
		append([]validate.Option{below}, r.options...)...).Validate(value)
	if !result.IsValid() && reflect.DeepEqual(r.is, r.was) {
		tolerated := &validate.Result{}
		tolerated.MergeAsWarnings(result)
		return tolerated
	}
	return result
}

// counterpart returns what an element of a list was before, or nil: only the elements of lists that are maps can be
// told apart, by their keys.
func (r *ratchet) counterpart(element any) any {
	was, _ := r.was.([]any)
	if kind, _ := r.schema.Extensions.GetString(listType); kind != "map" {
		return nil
	}
	for _, candidate := range was {
		if keysOf(r.schema, candidate) == keysOf(r.schema, element) {
			return candidate
		}
	}
	return nil
}

// keysOf returns what tells an element of a list from the others: the fields that the schema names as its keys, or all
// of it.
func keysOf(s *spec.Schema, element any) string {
	identity := element
	if kind, _ := s.Extensions.GetString(listType); kind == "map" {
		m, _ := element.(map[string]any)
		names, _ := s.Extensions.GetStringSlice(listMapKeys)
		keys := make([]any, len(names))
		for i, name := range names {
			keys[i] = m[name]
		}
		identity = keys
	}
	data, err := json.Marshal(identity)
	if err != nil {
		return fmt.Sprint(identity)
	}
	return string(data)
}

// duplicates returns the elements of sets and of lists that are maps that are there twice.
func duplicates(path *field.Path, s *spec.Schema, x any) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	switch x := x.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			_, declared := s.Properties[name]
			at := path.Key(name)
			if declared {
				at = path.Child(name)
			}
			errs = append(errs, duplicates(at, child(s, name), x[name])...)
		}
	case []any:
		if s.Items == nil {
			return nil
		}
		kind, _ := s.Extensions.GetString(listType)
		seen := make(map[string]bool)
		for i, element := range x {
			errs = append(errs, duplicates(path.Index(i), s.Items.Schema, element)...)
			if kind != "set" && kind != "map" {
				continue
			}
			key := keysOf(s, element)
			if seen[key] {
				errs = append(errs, field.Duplicate(path.Index(i), element))
			}
			seen[key] = true
		}
	}
	return errs
}

// fieldErrors puts the validator's errors into the words of the API.
func fieldErrors(result *validate.Result) (errs field.ErrorList) {
	for _, err := range result.Errors {
		v, ok := err.(*openapierrors.Validation)
		if !ok {
			errs = append(errs, field.Invalid(nil, "", err.Error()))
			continue
		}
		var path *field.Path
		if name := strings.TrimPrefix(v.Name, "."); name != "" {
			path = path.Child(name)
		}
		number := func(n any) int {
			if n, ok := n.(int64); ok {
				return int(n)
			}
			return -1
		}
		value := v.Value
		if value == nil {
			value = ""
		}
		switch v.Code() {
		case openapierrors.RequiredFailCode:
			errs = append(errs, field.Required(path, ""))
		case openapierrors.EnumFailCode:
			var allowed []string
			for _, one := range v.Values {
				if s, ok := one.(string); ok {
					allowed = append(allowed, s)
				} else {
					data, _ := json.Marshal(one)
					allowed = append(allowed, string(data))
				}
			}
			errs = append(errs, field.NotSupported(path, v.Value, allowed))
		case openapierrors.TooLongFailCode:
			errs = append(errs, field.TooLong(path, "", number(v.Valid)))
		case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
			errs = append(errs, field.TooMany(path, number(v.Value), number(v.Valid)))
		case openapierrors.InvalidTypeCode:
			errs = append(errs, field.TypeInvalid(path, value, v.Error()))
		default:
			errs = append(errs, field.Invalid(path, value, v.Error()))
		}
	}
	return errs
}
