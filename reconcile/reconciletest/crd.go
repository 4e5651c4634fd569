package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"
)

// ReadCRDs reads CustomResourceDefinitions of apiextensions.k8s.io/v1 from YAML or JSON documents, such as embedded
// ones, for [Options.Resources]. The server does with their schemas what a real one does: it fills in defaults, prunes
// unknown fields, validates, with ratcheting on updates, and merges lists and maps in server-side apply as they say.
// Documents of other kinds are passed over.
//
// It returns an error for what is not modelled: more than one served version, conversion webhooks and embedded
// resources. For rules in CEL see [Options.Rules].
func ReadCRDs(documents []byte) ([]Resource, error) {
	var all []Resource
	if err := eachDocument(documents, definitions(&all)); err != nil {
		return nil, fmt.Errorf("reconciletest: custom resources: %w", err)
	}
	return all, nil
}

// readDefinitions is ReadCRDs for files and directories. There it is an error if there is no definition at all.
func readDefinitions(paths []string) ([]Resource, error) {
	var all []Resource
	if err := eachManifest(paths, definitions(&all)); err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	if len(paths) > 0 && len(all) == 0 {
		return nil, fmt.Errorf("custom resources: there are no CustomResourceDefinitions in %s",
			strings.Join(paths, ", "))
	}
	return all, nil
}

// definitions returns a function that adds the resource that a document defines.
func definitions(all *[]Resource) func(document []byte) error {
	return func(document []byte) error {
		var d definition
		if err := sigsyaml.Unmarshal(document, &d); err != nil {
			return err
		}
		if d.APIVersion != "apiextensions.k8s.io/v1" || d.Kind != "CustomResourceDefinition" {
			return nil
		}
		r, err := d.resource()
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", d.Metadata.Name, err)
		}
		*all = append(*all, r)
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
		Conversion *struct {
			Strategy string `json:"strategy"`
		} `json:"conversion"`
	} `json:"spec"`
}

type definedVersion struct {
	Name         string `json:"name"`
	Served       bool   `json:"served"`
	Subresources struct {
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

func (d *definition) resource() (Resource, error) {
	names := d.Spec.Names
	r := Resource{
		Kind: names.Kind, ListKind: names.ListKind, Singular: names.Singular, ShortNames: names.ShortNames,
		Categories:    names.Categories,
		ClusterScoped: d.Spec.Scope == "Cluster",
	}
	if d.Spec.Scope != "Cluster" && d.Spec.Scope != "Namespaced" {
		return r, fmt.Errorf("spec.scope is %q, and not Cluster or Namespaced", d.Spec.Scope)
	}
	if want := names.Plural + "." + d.Spec.Group; d.Metadata.Name != want {
		return r, fmt.Errorf("metadata.name is to be %q", want)
	}
	var served []definedVersion
	for _, v := range d.Spec.Versions {
		if v.Served {
			served = append(served, v)
		}
	}
	switch {
	case len(served) != 1:
		return r, fmt.Errorf("not modelled: %d versions are served; it is to be one", len(served))
	case d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == "Webhook":
		return r, errors.New("not modelled: conversion webhooks")
	case len(served[0].Schema.OpenAPIV3Schema) == 0:
		return r, fmt.Errorf("version %s has no schema", served[0].Name)
	}
	v := served[0]
	r.GroupVersionResource = schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: names.Plural}
	r.Status = v.Subresources.Status != nil
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
