// Package cel checks the rules in CEL (x-kubernetes-validations) of custom resources for package reconciletest, with
// the code of the real server:
//
//	server := reconciletest.NewServer(t, reconciletest.Options{
//		CRDs:  []string{"config/crd"},
//		Rules: cel.Rules{},
//	})
//
// It is a module of its own, since CEL and k8s.io/apiextensions-apiserver are large, and only tests of custom resources
// with such rules need them. Transition rules (oldSelf), optionalOldSelf, messageExpression, reason, fieldPath,
// ratcheting and both limits of costs are as on a server of version 1.37: NewServer refuses rules that a real server
// refuses for their estimated cost, and a check that costs too much fails the write.
package cel

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuralcel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Rules is for reconciletest's Options.Rules.
type Rules struct{}

var _ reconciletest.RuleCompiler = Rules{}

// CompileRules compiles the rules of a schema. It returns an error for a schema that a real server does not accept in a
// CustomResourceDefinition: a rule that does not compile or may cost too much, among others.
func (Rules) CompileRules(schema []byte) (reconciletest.RuleCheck, error) {
	version, err := readSchema(schema)
	if err != nil {
		return nil, err
	}
	errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), definitionOf(version))
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	structural, err := structuralschema.NewStructural(version)
	if err != nil {
		return nil, err
	}
	validator := structuralcel.NewValidator(structural, true, celconfig.PerCallLimit)
	if validator == nil {
		return nil, errors.New("the schema has no rules")
	}
	return func(object, old map[string]any) field.ErrorList {
		var was any
		var options []structuralcel.Option
		if old != nil {
			was = old
			options = append(options, structuralcel.WithRatcheting(
				common.NewCorrelatedObject(object, old, &model.Structural{Structural: structural})))
		}
		errs, _ := validator.Validate(context.Background(), nil, structural, object, was,
			celconfig.RuntimeCELCostBudget, options...)
		return errs
	}, nil
}

func readSchema(schema []byte) (*apiextensions.JSONSchemaProps, error) {
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(schema, &external); err != nil {
		return nil, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, internal, nil)
	return internal, err
}

// definitionOf returns a definition in which only the schema matters.
func definitionOf(schema *apiextensions.JSONSchemaProps) *apiextensions.CustomResourceDefinition {
	preserve := false
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "rules.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "rules", Singular: "rule", Kind: "Rule",
				ListKind: "RuleList"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true}},
			Validation:            &apiextensions.CustomResourceValidation{OpenAPIV3Schema: schema},
			Conversion:            &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
			PreserveUnknownFields: &preserve,
		},
		Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
}
