package reconciletest

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// RuleCompiler compiles the rules in CEL (x-kubernetes-validations) of custom resources. It is a hook, and not a part
// of the server, since CEL is larger than the server and most tests do without it. Package
// github.com/thermostat-go/thermostat/reconcile/reconciletest/cel, a module of its own, has the one of the real server.
type RuleCompiler interface {
	// CompileRules takes the schema of a custom resource as JSON: the openAPIV3Schema of its definition. It returns an
	// error if a real server would not accept the rules.
	CompileRules(schema []byte) (RuleCheck, error)
}

// RuleCheck returns the rules that an object breaks, or an error for each. The server calls it for an object that its
// schema allows; old is nil for a creation. It must not change them. Safe for concurrent use.
type RuleCheck func(object, old map[string]any) field.ErrorList

// compileRules compiles the rules of the resource, if it has some that are not compiled yet.
func (r *Resource) compileRules(compiler RuleCompiler) error {
	switch {
	case r.schema == nil || !r.schema.ruled || r.schema.check != nil:
		return nil
	case compiler == nil:
		return fmt.Errorf("its schema has rules in CEL (%s), which need a compiler: "+
			"go get github.com/thermostat-go/thermostat/reconcile/reconciletest/cel, import that package, and set "+
			"Options.Rules to cel.Rules{}", validations)
	}
	check, err := compiler.CompileRules(r.schema.openAPI)
	if err != nil {
		return fmt.Errorf("rules in CEL: %w", err)
	}
	compiled := *r.schema // the caller's Resource may be used for other servers, too
	compiled.check = check
	r.schema = &compiled
	return nil
}

// hasExtension reports whether a schema, or one below it, has an extension.
func hasExtension(s *spec.Schema, extension string) bool {
	if s == nil {
		return false
	}
	if s.Extensions[extension] != nil {
		return true
	}
	for _, property := range s.Properties {
		if hasExtension(&property, extension) {
			return true
		}
	}
	for _, alternatives := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		if slices.ContainsFunc(alternatives, func(a spec.Schema) bool { return hasExtension(&a, extension) }) {
			return true
		}
	}
	return s.AdditionalProperties != nil && hasExtension(s.AdditionalProperties.Schema, extension) ||
		s.Items != nil && hasExtension(s.Items.Schema, extension) || hasExtension(s.Not, extension)
}

// judge adds the rules that an object breaks to what else is wrong with it. As on a real server, the rules are not
// asked if the object is so wrong that they could fail.
func (s *structure) judge(errs field.ErrorList, object, old map[string]any) field.ErrorList {
	if s.check == nil {
		return errs
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return append(errs, field.Invalid(nil, nil, unchecked))
		}
	}
	return append(errs, s.check(object, old)...)
}

// unchecked is the real server's text.
const unchecked = "some validation rules were not checked because the object was invalid; " +
	"correct the existing errors to complete validation"
