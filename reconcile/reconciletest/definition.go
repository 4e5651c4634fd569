package reconciletest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// newDefinitionResource makes the resource of CustomResourceDefinitions. Those of [Options.CRDs] are there from the
// beginning, and others can come and go. Of what they say, the conversion and the storage version can be changed;
// another change is refused.
func newDefinitionResource(s *Server) *Resource {
	return &Resource{
		GroupVersionResource: definitions, Kind: "CustomResourceDefinition", ClusterScoped: true, Status: true,
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
		Default: completeDefinition, Validate: validateDefinition, terminate: terminateDefinition,
		guard: func(o, old *unstructured.Unstructured) error {
			switch {
			case o == nil:
				return nil
			case old == nil:
				return admitDefinition(s, o)
			}
			return guardDefinition(o, old)
		},
	}
}

// conversion is how objects get from one version to another.
type conversion struct {
	Strategy string `json:"strategy"`
	Webhook  *struct {
		ClientConfig             admissionregistrationv1.WebhookClientConfig `json:"clientConfig"`
		ConversionReviewVersions []string                                    `json:"conversionReviewVersions"`
	} `json:"webhook,omitempty"`
}

// validate returns an error for what a real server refuses, and for what is not modelled.
func (c conversion) validate() error {
	if errs := c.problems(field.NewPath("spec", "conversion")); len(errs) > 0 {
		return errs.ToAggregate()
	}
	return c.beyond()
}

// beyond returns an error for what is not modelled.
func (c conversion) beyond() error {
	if c.Webhook != nil && firstReviewVersion(c.Webhook.ConversionReviewVersions) != "v1" {
		return notModelled("a ConversionReview of another version than v1")
	}
	return nil
}

func (c conversion) problems(at *field.Path) (errs field.ErrorList) {
	switch {
	case c.Strategy != "Webhook" && c.Strategy != "" && c.Strategy != "None":
		return field.ErrorList{field.NotSupported(at.Child("strategy"), c.Strategy, []string{"None", "Webhook"})}
	case c.Strategy != "Webhook" && c.Webhook != nil:
		return field.ErrorList{field.Forbidden(at.Child("webhook"),
			"should not be set when strategy is not set to Webhook")}
	case c.Strategy == "Webhook" && c.Webhook == nil:
		return field.ErrorList{field.Required(at.Child("webhook", "clientConfig"),
			"required when strategy is set to Webhook")}
	case c.Webhook == nil:
		return nil
	}
	errs = validateClientConfig(c.Webhook.ClientConfig, at.Child("webhook", "clientConfig"), true)
	return append(errs, validateReviewVersions(c.Webhook.ConversionReviewVersions,
		at.Child("webhook", "conversionReviewVersions"))...)
}

// parseDefinition reads an object that is a definition.
func parseDefinition(u *unstructured.Unstructured) (*definition, error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d := &definition{}
	return d, json.Unmarshal(data, d)
}

// completeDefinition fills in what a definition leaves open.
func completeDefinition(u *unstructured.Unstructured) {
	if strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy"); strategy == "" {
		_ = unstructured.SetNestedField(u.Object, "None", "spec", "conversion", "strategy") // or it is no object
	}
	at := []string{"spec", "conversion", "webhook", "clientConfig", "service"}
	if service, ok, _ := unstructured.NestedMap(u.Object, at...); ok && service["port"] == nil {
		service["port"] = int64(443)
		_ = unstructured.SetNestedMap(u.Object, service, at...)
	}
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
	for name, value := range map[string]string{"singular": strings.ToLower(kind), "listKind": kind + "List"} {
		if is, _, _ := unstructured.NestedString(u.Object, "spec", "names", name); is == "" && kind != "" {
			_ = unstructured.SetNestedField(u.Object, value, "spec", "names", name)
		}
	}
}

func validateDefinition(o, old *unstructured.Unstructured) field.ErrorList {
	d, err := parseDefinition(o)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	errs := d.Spec.Conversion.problems(field.NewPath("spec", "conversion"))
	stored := 0
	for _, v := range d.Spec.Versions {
		if v.Storage {
			stored++
		}
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "versions"), stored,
			"must have exactly one version marked as storage version"))
	}
	if old != nil && !writesStatus(o, old) { // a real server takes any list that is written to the status
		versions, _, _ := unstructured.NestedStringSlice(o.Object, "status", "storedVersions")
		for i, v := range versions {
			if d.version(v) == nil {
				errs = append(errs, field.Invalid(field.NewPath("status", "storedVersions").Index(i), v, fmt.Sprintf(
					"missing from spec.versions; %[1]s was previously a storage version, and must remain in "+
						"spec.versions until a storage migration ensures no data remains persisted in %[1]s and "+
						"removes %[1]s from status.storedVersions", v)))
			}
		}
	}
	return errs
}

// writesStatus reports whether a definition is written by its subresource status: another write leaves the status.
func writesStatus(o, old *unstructured.Unstructured) bool {
	return !reflect.DeepEqual(o.Object["status"], old.Object["status"])
}

// guardDefinition refuses what cannot be changed of a definition, and keeps the list of the versions that were stored.
func guardDefinition(o, old *unstructured.Unstructured) error {
	fixed := func(u *unstructured.Unstructured) any {
		spec, _ := runtime.DeepCopyJSONValue(u.Object["spec"]).(map[string]any)
		delete(spec, "conversion")
		versions, _ := spec["versions"].([]any)
		for _, v := range versions {
			if v, ok := v.(map[string]any); ok {
				delete(v, "storage")
			}
		}
		return spec
	}
	if !reflect.DeepEqual(fixed(o), fixed(old)) {
		return notModelled("a change of a CustomResourceDefinition beyond its conversion and its storage version")
	}
	var is conversion
	said, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "conversion")
	data, err := json.Marshal(said)
	if err == nil {
		var unknown []error
		if unknown, err = kjson.UnmarshalStrict(data, &is, kjson.DisallowUnknownFields); len(unknown) > 0 {
			return notModelled("spec.conversion of a CustomResourceDefinition: %v", unknown[0])
		}
	}
	if err != nil {
		return notModelled("spec.conversion of a CustomResourceDefinition: %v", err)
	}
	if err := is.beyond(); err != nil {
		return err
	}
	if writesStatus(o, old) {
		return nil
	}
	d, err := parseDefinition(o)
	if err != nil {
		return err
	}
	stored, _, _ := unstructured.NestedStringSlice(o.Object, "status", "storedVersions")
	if now := d.storage(); now != "" && !slices.Contains(stored, now) {
		return unstructured.SetNestedStringSlice(o.Object, append(stored, now), "status", "storedVersions")
	}
	return nil
}

// define makes the objects of the definitions of resources, and joins the versions of each.
func define(s *Server) error {
	done := map[*definition]bool{}
	for _, r := range orderedResources(s) {
		d := r.of
		if d == nil || done[d] {
			continue
		}
		done[d] = true
		if err := createDefinition(s, d); err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", d.Metadata.Name, err)
		}
		var served []*Resource
		for _, other := range s.resources.all() {
			if other.of == d {
				served = append(served, other)
			}
		}
		if err := join(s, d, served); err != nil {
			return err
		}
	}
	return nil
}

// join makes the versions of a definition one family, if there are several.
func join(s *Server, d *definition, served []*Resource) error {
	if len(d.Spec.Versions) == 1 {
		return nil
	}
	f := &family{server: s, definition: keyOfDefinition(d), versions: map[string]*Resource{}, cache: map[view]object{}}
	for _, version := range served {
		f.versions[version.Version] = version
	}
	for _, version := range d.unserved {
		if err := version.compileRules(s.rules); err != nil {
			return err
		}
		f.versions[version.Version] = &version
	}
	if len(f.versions) != len(d.Spec.Versions) {
		return fmt.Errorf("CustomResourceDefinition %s: the server needs all of its versions", d.Metadata.Name)
	}
	for _, version := range f.versions {
		version.family = f
	}
	for _, version := range f.versions { // once more, with the others
		if err := version.manageFields(s.types); err != nil {
			return err
		}
	}
	return nil
}

func keyOfDefinition(d *definition) types.NamespacedName {
	return keyOfName(d.Metadata.Name)
}

func keyOfName(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// createDefinition stores a definition as a real server has it once its names are accepted.
func createDefinition(s *Server, d *definition) error {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(d.document)}
	completeDefinition(u)
	u.SetUID(s.newUID())
	s.resources.define(d.Metadata.Name, u.GetUID())
	s.first[u.GetUID()] = true
	u.SetCreationTimestamp(metav1.NewTime(now()))
	u.SetGeneration(1)
	establish(u, d.storage())
	if _, err := pruneMetadata(u); err != nil {
		return err
	}
	_, err := s.store.write(definitions.GroupResource(), keyOf(u), nil, u)
	return err
}

// withoutSchemas returns a definition without its schemas, which cannot be changed. What is left is shared.
func withoutSchemas(u *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _ := u.Object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	var less []any
	for _, v := range versions {
		version, _ := v.(map[string]any)
		version = maps.Clone(version)
		delete(version, "schema")
		less = append(less, version)
	}
	spec = maps.Clone(spec)
	spec["versions"] = less
	o := maps.Clone(u.Object)
	o["spec"] = spec
	return &unstructured.Unstructured{Object: o}
}

// establish gives a new definition the status that it has once its names are accepted.
func establish(u *unstructured.Unstructured, storage string) {
	names, _, _ := unstructured.NestedMap(u.Object, "spec", "names")
	u.Object["status"] = map[string]any{"acceptedNames": names, "storedVersions": []any{storage}}
	setCondition(u, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
	setCondition(u, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
}
