package reconciletest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"
)

// isEmbedded reports whether what a schema describes is a whole object of Kubernetes: it has an apiVersion, a kind and
// metadata, whether the schema names them or not.
func isEmbedded(s *spec.Schema) bool {
	is, _ := s.Extensions.GetBool(embeddedResource)
	return is
}

// checkEmbedded says what is wrong with a schema of an embedded object.
func checkEmbedded(s *spec.Schema, at string) error {
	switch {
	case !isEmbedded(s):
		return nil
	case !s.Type.Contains("object"):
		return fmt.Errorf("%s has %s, so that its type is to be object", at, embeddedResource)
	case len(s.Properties) == 0 && !keepsUnknown(s):
		return fmt.Errorf("%s has %s without %s, so that it is to have properties", at, embeddedResource,
			preserveUnknown)
	}
	return nil
}

// coerce says which of the embedded objects cannot be read; nil: all can.
func (s *structure) coerce(content map[string]any) (err error) {
	s.embedded(content, func(at *field.Path, x map[string]any) {
		for _, name := range []string{"apiVersion", "kind"} {
			if value, there := x[name]; there && err == nil {
				if _, isText := value.(string); !isText {
					err = field.Invalid(at.Child(name), value, "must be a string")
				}
			}
		}
		if metadata, there := x["metadata"]; there && err == nil {
			if _, _, wrong := readMetadata(metadata); wrong != nil {
				err = field.Invalid(at.Child("metadata"), metadata, wrong.Error())
			}
		}
	})
	return err
}

// merges says which field of the metadata of an embedded object a server-side apply cannot merge: it is not one of
// metadata. nil: all can be merged.
func (s *structure) merges(config map[string]any) (err error) {
	s.embedded(config, func(at *field.Path, x map[string]any) {
		if _, unknown, _ := readMetadata(x["metadata"]); len(unknown) > 0 && err == nil {
			err = fmt.Errorf(".%s: field not declared in schema", at.Child("metadata", unknown[0]))
		}
	})
	return err
}

// pruneEmbedded removes what is no field of metadata from that of embedded objects, and returns the paths. What cannot
// be read stays.
func (s *structure) pruneEmbedded(content map[string]any) (unknown []string) {
	s.embedded(content, func(at *field.Path, x map[string]any) {
		metadata, there := x["metadata"]
		if !there {
			return
		}
		names, pruned, err := prunedMetadata(metadata)
		if err != nil {
			return
		}
		x["metadata"] = pruned
		for _, name := range names {
			unknown = append(unknown, at.Child("metadata", name).String())
		}
	})
	return unknown
}

// prunedMetadata returns metadata without what is no field of it, and the names of such fields. Lists and maps that are
// empty are not there either.
func prunedMetadata(metadata any) (unknown []string, pruned map[string]any, err error) {
	known, unknown, err := readMetadata(metadata)
	if err != nil {
		return nil, nil, err
	}
	pruned, err = runtime.DefaultUnstructuredConverter.ToUnstructured(known)
	return unknown, pruned, err
}

func readMetadata(metadata any) (known *metav1.ObjectMeta, unknown []string, err error) {
	data, err := json.Marshal(metadata)
	if err != nil {
		return nil, nil, err
	}
	known = &metav1.ObjectMeta{}
	complaints, err := kjson.UnmarshalStrict(data, known, kjson.DisallowUnknownFields)
	for _, complaint := range complaints {
		if name, ok := strings.CutPrefix(complaint.Error(), "unknown field "); ok {
			unknown = append(unknown, strings.Trim(name, `"`))
		}
	}
	return known, unknown, err
}

// embedded calls do for each embedded object of an object, with its path.
func (s *structure) embedded(content map[string]any, do func(at *field.Path, x map[string]any)) {
	if s.embeds {
		embeddedBelow(nil, s.root, content, do)
	}
}

func embeddedBelow(at *field.Path, s *spec.Schema, x any, do func(at *field.Path, x map[string]any)) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		if isEmbedded(s) {
			do(at, x)
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			below := at.Key(name)
			if _, declared := s.Properties[name]; declared {
				below = at.Child(name)
			}
			embeddedBelow(below, child(s, name), x[name], do)
		}
	case []any:
		if s.Items != nil {
			for i, element := range x {
				embeddedBelow(at.Index(i), s.Items.Schema, element, do)
			}
		}
	}
}

// embeddedErrors says what is wrong with the apiVersion, the kind and the metadata of embedded objects. They may lack
// metadata, and a name.
func (s *structure) embeddedErrors(content map[string]any) (errs field.ErrorList) {
	s.embedded(content, func(at *field.Path, x map[string]any) {
		errs = append(errs, identityErrors(at, x)...)
	})
	return errs
}

func identityErrors(at *field.Path, x map[string]any) (errs field.ErrorList) {
	for _, name := range []string{"apiVersion", "kind"} {
		wrong := wrongVersion
		if name == "kind" {
			wrong = wrongKind
		}
		value, there := x[name]
		text, isText := value.(string)
		switch {
		case !there:
			errs = append(errs, field.Required(at.Child(name), ""))
		case !isText:
			errs = append(errs, field.Invalid(at.Child(name), value, "must be a string"))
		case text == "":
			errs = append(errs, field.Invalid(at.Child(name), value, "must not be empty"))
		case wrong(text) != "":
			errs = append(errs, field.Invalid(at.Child(name), value, wrong(text)))
		}
	}
	metadata, there := x["metadata"]
	if !there {
		return errs
	}
	known, _, err := readMetadata(metadata)
	if err != nil {
		return append(errs, field.Invalid(at.Child("metadata"), metadata, err.Error()))
	}
	if known.Name == "" {
		known.Name = "unnamed" // it need not have one
	}
	segment := func(name string, _ bool) []string { return content.IsPathSegmentName(name) }
	return append(errs, apivalidation.ValidateObjectMeta(known, known.Namespace != "", segment,
		at.Child("metadata"))...)
}

func wrongVersion(version string) string {
	if _, err := schema.ParseGroupVersion(version); err != nil {
		return err.Error()
	}
	return ""
}

func wrongKind(kind string) string {
	if wrong := validation.IsDNS1035Label(strings.ToLower(kind)); len(wrong) > 0 {
		return "may have mixed case, but should otherwise match: " + strings.Join(wrong, ",")
	}
	return ""
}
