package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	xpv1 "github.com/crossplane/crossplane-runtime/v2/apis/common/v1"

	apiextensionsv1 "github.com/crossplane/crossplane/v2/apis/apiextensions/v1"
	"github.com/crossplane/crossplane/v2/apis/apiextensions/v1alpha1"
	pkgv1 "github.com/crossplane/crossplane/v2/apis/pkg/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// numbered removes from revisions their number, which counts all that there have been.
func numbered(o *unstructured.Unstructured) {
	if o.GetKind() == "CompositionRevision" {
		unstructured.RemoveNestedField(o.Object, "spec", "revision")
	}
}

// TestManagedResourceDefinition: a provider brings definitions of resources, of which some are active from the
// beginning, and others when a user needs them. One goes again.
func TestManagedResourceDefinition(t *testing.T) {
	const resource = "managedresourcedefinitions.apiextensions.crossplane.io"
	of := func(kind, plural, state string) string {
		return fmt.Sprintf(`
apiVersion: apiextensions.crossplane.io/v1alpha1
kind: ManagedResourceDefinition
metadata: {name: %[2]s.example.com}
spec:
  group: example.com
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[4]s}
  scope: Namespaced
  conversion: {strategy: None}
  state: %[3]s
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
`, kind, plural, state, plural[:len(plural)-1])
	}
	check(t, definitions, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(
			of("Bucket", "buckets", "Active")+of("Queue", "queues", "Inactive")+of("Topic", "topics", "Active"),
			of("Queue", "queues", "Active")+of("Table", "tables", "Inactive")),
			reconciletest.Delete(resource, "", "topics.example.com")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for name, reason := range map[string]xpv1.ConditionReason{
				"buckets.example.com": v1alpha1.EstablishedManaged().Reason,
				"queues.example.com":  v1alpha1.EstablishedManaged().Reason,
				"tables.example.com":  v1alpha1.InactiveManaged().Reason} {
				d, err := there[*v1alpha1.ManagedResourceDefinition](s, resource, "", name)
				if err != nil {
					return err
				}
				_, defined := reconciletest.Get[*extv1.CustomResourceDefinition](s, "customresourcedefinitions", "",
					name)
				errs = append(errs, want("what is said of "+name,
					d.Status.GetCondition(v1alpha1.EstablishedManaged().Type).Reason, reason),
					want("there are "+name, defined, d.Spec.State.IsActive()))
			}
			return errors.Join(append(errs,
				gone[*v1alpha1.ManagedResourceDefinition](s, resource, "", "topics.example.com"))...)
		},
	})
}

// TestComposition: each version of a composition has a revision. One composition changes, and changes back; another one
// goes.
func TestComposition(t *testing.T) {
	const resource, made = "compositions.apiextensions.crossplane.io", "compositionrevisions"
	of := func(name, function string) string {
		return fmt.Sprintf(`
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {name: %s, labels: {channel: stable}}
spec:
  compositeTypeRef: {apiVersion: example.com/v1, kind: Database}
  mode: Pipeline
  pipeline:
  - step: make
    functionRef: {name: %s}
---
`, name, function)
	}
	check(t, compositions, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", "patch")+of("old", "patch"), of("web", "template"),
			of("db", "patch")), reconciletest.Delete(resource, "", "old"),
			reconciletest.ApplyYAML(of("web", "patch"))[0]),
		Mask: numbered,
		Settled: func(s *reconciletest.Server) error {
			latest := map[string]*apiextensionsv1.CompositionRevision{}
			for _, r := range reconciletest.List[*apiextensionsv1.CompositionRevision](s, made, "") {
				of := r.Labels[apiextensionsv1.LabelCompositionName]
				if is := latest[of]; is == nil || is.Spec.Revision < r.Spec.Revision {
					latest[of] = r
				}
			}
			errs := []error{gone[*apiextensionsv1.Composition](s, resource, "", "old")}
			for _, name := range []string{"web", "db"} {
				if latest[name] == nil {
					return fmt.Errorf("%s has no revision", name)
				}
				errs = append(errs, want("the function of "+name,
					latest[name].Spec.Pipeline[0].FunctionRef.Name, "patch"))
			}
			return errors.Join(errs...)
		},
	})
}

// TestCompositionRevision: a revision says whether its functions can compose. A function gets a version that can, which
// replaces the first one, and one revision goes.
func TestCompositionRevision(t *testing.T) {
	const resource, functions = "compositionrevisions.apiextensions.crossplane.io", "functionrevisions"
	of := func(name, function string) string {
		return fmt.Sprintf(`
apiVersion: apiextensions.crossplane.io/v1
kind: CompositionRevision
metadata: {name: %s}
spec:
  compositeTypeRef: {apiVersion: example.com/v1, kind: Database}
  mode: Pipeline
  revision: 1
  pipeline:
  - step: make
    functionRef: {name: %s}
---
`, name, function)
	}
	function := func(name string, version int, state pkgv1.PackageRevisionDesiredState) string {
		return fmt.Sprintf(`
apiVersion: pkg.crossplane.io/v1
kind: FunctionRevision
metadata: {name: %[1]s-v%[2]d, labels: {pkg.crossplane.io/package: %[1]s}}
spec: {desiredState: %[3]s, image: "xpkg.example.com/functions/%[1]s:v%[2]d", revision: %[2]d}
---
`, name, version, state)
	}
	const active, inactive = pkgv1.PackageRevisionActive, pkgv1.PackageRevisionInactive
	check(t, revisions, reconciletest.Scenario{
		Beside: capable(functions),
		Steps: append(reconciletest.ApplyYAML(
			function("patch", 1, active)+function("template", 2, active)+of("web", "patch")+of("old", "patch"),
			function("patch", 1, inactive)+function("patch", 2, active)+of("db", "template")),
			reconciletest.Delete(functions, "", "patch-v1"), reconciletest.Delete(resource, "", "old"),
			reconciletest.ApplyYAML(function("legacy", 1, active) + of("cache", "legacy"))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*apiextensionsv1.CompositionRevision](s, resource, "", "old")}
			for name, valid := range map[string]string{"web": "True", "db": "True", "cache": "False"} {
				r, err := there[*apiextensionsv1.CompositionRevision](s, resource, "", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("pipeline of "+name,
					r.Status.GetCondition(apiextensionsv1.ValidPipeline().Type).Status, valid))
			}
			return errors.Join(errs...)
		},
	})
}

// check runs a scenario. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, setup setup, scenario reconciletest.Scenario) {
	scenario.Run = run(setup)
	scenario.Server = server
	scenario.Limit = time.Minute
	reconciletest.Check(t, scenario)
}
