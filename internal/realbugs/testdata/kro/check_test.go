package check

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	krov1alpha1 "github.com/kubernetes-sigs/kro/api/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// definition makes a kind of a ConfigMap, and of those that more names.
func definition(name, kind, more string) string {
	return fmt.Sprintf(`
apiVersion: kro.run/v1alpha1
kind: ResourceGraphDefinition
metadata: {name: %s}
spec:
  schema: {group: kro.run, apiVersion: v1alpha1, kind: %s, spec: {text: string | default=hello}}
  resources:
  - id: main
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${schema.metadata.name}"}
      data: {text: "${schema.spec.text}"}
%s---
`, name, kind, more)
}

// copied is one more ConfigMap, with the text of the first.
const copied = `  - id: copied
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${schema.metadata.name}-copied"}
      data: {copy: "${main.data.text}"}
`

func instance(kind, name, text string) string {
	return fmt.Sprintf("apiVersion: kro.run/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: default}\n"+
		"spec: {text: %s}\n---\n", kind, name, text)
}

// active returns an error unless a definition is, with so many resources.
func active(s *reconciletest.Server, name string, resources int) error {
	d, err := there[*krov1alpha1.ResourceGraphDefinition](s, "resourcegraphdefinitions", "", name)
	if err != nil {
		return err
	}
	return errors.Join(want("state of "+name, d.Status.State, krov1alpha1.ResourceGraphDefinitionStateActive),
		want("resources of "+name, len(d.Status.TopologicalOrder), resources))
}

// TestResourceGraphDefinition: a definition gets one more resource, and loses it again. Its own kind does not change:
// the server lets nobody change the schema of a CustomResourceDefinition.
func TestResourceGraphDefinition(t *testing.T) {
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(definition("web", "Web", "")+definition("old", "Old", ""),
			definition("web", "Web", copied), definition("web", "Web", "")+definition("db", "Db", copied)),
			reconciletest.Delete("resourcegraphdefinitions", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(active(s, "web", 1), active(s, "db", 2),
				gone[*krov1alpha1.ResourceGraphDefinition](s, "resourcegraphdefinitions", "", "old"))
		},
	})
}

// TestInstance: an instance gets another text, and all get one more resource.
func TestInstance(t *testing.T) {
	first := definition("web", "Web", "")
	check(t, reconciletest.Scenario{
		Server: reconciletest.Options{CRDs: []string{installed(t, first)}},
		Steps: append(reconciletest.ApplyYAML(first+instance("Web", "a", "one")+instance("Web", "old", "one"),
			instance("Web", "a", "two"), definition("web", "Web", copied), instance("Web", "b", "one")),
			reconciletest.Delete("webs.kro.run", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{active(s, "web", 2), gone[*corev1.ConfigMap](s, "configmaps", "default", "old"),
				gone[*corev1.ConfigMap](s, "configmaps", "default", "old-copied")}
			for name, text := range map[string]string{"a": "two", "b": "one"} {
				for of, key := range map[string]string{name: "text", name + "-copied": "copy"} {
					m, err := there[*corev1.ConfigMap](s, "configmaps", "default", of)
					if err != nil {
						return err
					}
					errs = append(errs, want("text of "+of, m.Data[key], text))
				}
			}
			return errors.Join(errs...)
		},
	})
}
