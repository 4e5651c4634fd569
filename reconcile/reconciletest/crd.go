package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	apiversion "k8s.io/apimachinery/pkg/version"
	sigsyaml "sigs.k8s.io/yaml"
)

// ReadCRDs reads CustomResourceDefinitions of apiextensions.k8s.io/v1 from YAML or JSON documents, such as embedded
// ones, for [Options.Resources]. The server does with their schemas what a real one does: it fills in defaults, prunes
// unknown fields, validates, with ratcheting on updates, and merges lists and maps in server-side apply as they say.
// Documents of other kinds are passed over.
//
// There is one Resource for each version that is served, in the order of the definition. All of a definition belong to
// one server: objects are stored in the version that the definition says, and converted as it says.
//
// For rules in CEL see [Options.Rules], and for conversion webhooks [Options.Webhooks].
func ReadCRDs(documents []byte) ([]Resource, error) {
	var all []Resource
	if err := eachDocument(documents, definitionsOf(&all)); err != nil {
		return nil, fmt.Errorf("reconciletest: custom resources: %w", err)
	}
	return all, nil
}

// readDefinitions is ReadCRDs for files and directories. There it is an error if there is no definition at all.
func readDefinitions(paths []string) ([]Resource, error) {
	var all []Resource
	if err := eachManifest(paths, definitionsOf(&all)); err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	if len(paths) > 0 && len(all) == 0 {
		return nil, fmt.Errorf("custom resources: there are no CustomResourceDefinitions in %s",
			strings.Join(paths, ", "))
	}
	return all, nil
}

// definitionsOf returns a function that adds the resource that a document defines.
func definitionsOf(all *[]Resource) func(document []byte) error {
	return func(document []byte) error {
		var d definition
		if err := sigsyaml.Unmarshal(document, &d); err != nil {
			return err
		}
		if d.APIVersion != "apiextensions.k8s.io/v1" || d.Kind != "CustomResourceDefinition" {
			return nil
		}
		versions, err := d.resources(document)
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", d.Metadata.Name, err)
		}
		for _, r := range versions {
			if r.of.version(r.Version).Served {
				*all = append(*all, r)
			}
		}
		return nil
	}
}

// definition is as much of a CustomResourceDefinition as is read. Its types are in k8s.io/apiextensions-apiserver,
// which is far more than its types.
type definition struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural     string   `json:"plural"`
			Singular   string   `json:"singular"`
			Kind       string   `json:"kind"`
			ListKind   string   `json:"listKind"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions   []definedVersion `json:"versions"`
		Conversion conversion       `json:"conversion"`
	} `json:"spec"`

	document map[string]any // all of it
	unserved []Resource     // the versions that are not served: objects may be stored in one
}

// version returns what is said of a version; nil: nothing.
func (d *definition) version(name string) *definedVersion {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Name == name {
			return &d.Spec.Versions[i]
		}
	}
	return nil
}

// storage returns the version in which objects are stored.
func (d *definition) storage() string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

type definedVersion struct {
	Name               string  `json:"name"`
	Served             bool    `json:"served"`
	Storage            bool    `json:"storage"`
	Deprecated         bool    `json:"deprecated"`
	DeprecationWarning *string `json:"deprecationWarning"`
	Subresources       struct {
		Status *struct{} `json:"status"`
		Scale  *struct {
			SpecReplicasPath   string `json:"specReplicasPath"`
			StatusReplicasPath string `json:"statusReplicasPath"`
			LabelSelectorPath  string `json:"labelSelectorPath"`
		} `json:"scale"`
	} `json:"subresources"`
	Schema struct {
		OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
	} `json:"schema"`
	SelectableFields []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields"`
}

// resources returns a Resource for each version.
func (d *definition) resources(document []byte) (all []Resource, err error) {
	if d.Spec.Scope != "Cluster" && d.Spec.Scope != "Namespaced" {
		return nil, fmt.Errorf("spec.scope is %q, and not Cluster or Namespaced", d.Spec.Scope)
	}
	if want := d.Spec.Names.Plural + "." + d.Spec.Group; d.Metadata.Name != want {
		return nil, fmt.Errorf("metadata.name is to be %q", want)
	}
	data, err := sigsyaml.YAMLToJSON(document)
	if err == nil {
		err = utiljson.Unmarshal(data, &d.document)
	}
	if err != nil {
		return nil, err
	}
	if len(d.Spec.Versions) == 1 {
		d.Spec.Versions[0].Storage = true // there is no other
	}
	stored, served := 0, 0
	for _, v := range d.Spec.Versions {
		r, err := d.resource(v)
		if err != nil {
			return nil, err
		}
		if v.Storage {
			stored++
		}
		if v.Served {
			served++
		} else {
			d.unserved = append(d.unserved, r)
		}
		all = append(all, r)
	}
	switch {
	case served == 0:
		return nil, errors.New("no version is served")
	case stored != 1:
		return nil, fmt.Errorf("%d versions have storage: true; it is to be one", stored)
	}
	return all, d.Spec.Conversion.validate()
}

func (d *definition) resource(v definedVersion) (Resource, error) {
	names := d.Spec.Names
	r := Resource{
		Kind: names.Kind, ListKind: names.ListKind, Singular: names.Singular, ShortNames: names.ShortNames,
		Categories: names.Categories, ClusterScoped: d.Spec.Scope == "Cluster",
		GroupVersionResource: schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: names.Plural},
		Status:               v.Subresources.Status != nil,
		of:                   d, deprecated: d.deprecation(v),
	}
	if len(v.Schema.OpenAPIV3Schema) == 0 {
		return r, fmt.Errorf("version %s has no schema", v.Name)
	}
	if scale := v.Subresources.Scale; scale != nil {
		r.Scale = &ScalePaths{scale.SpecReplicasPath, scale.StatusReplicasPath, scale.LabelSelectorPath}
	}
	for _, f := range v.SelectableFields {
		r.selectableFields = append(r.selectableFields, strings.TrimPrefix(f.JSONPath, "."))
	}
	var err error
	r.schema, err = readSchema(v.Schema.OpenAPIV3Schema)
	return r, err
}

// deprecation returns the warning that comes with each answer in a version; empty: there is none.
func (d *definition) deprecation(v definedVersion) string {
	if !v.Deprecated {
		return ""
	}
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, v.Name, d.Spec.Names.Kind)
	best := v.Name
	for _, other := range d.Spec.Versions {
		if other.Served && !other.Deprecated && apiversion.CompareKubeAwareVersionStrings(best, other.Name) < 0 {
			best = other.Name
		}
	}
	if best != v.Name {
		text += fmt.Sprintf("; use %s/%s %s", d.Spec.Group, best, d.Spec.Names.Kind)
	}
	return text
}
