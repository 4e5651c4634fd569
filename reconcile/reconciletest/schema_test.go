package reconciletest

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
)

// An object that was valid once, under an older schema, can still be changed elsewhere: what has not changed is not
// judged again.
func TestWhatHasNotChangedIsNotJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resources, err := ReadCRDs(backupsManifest)
		require.NoError(t, err)
		s := NewServer(t, Options{Resources: resources})
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		backups := client.Resource(resources[0].GroupVersionResource).Namespace("default")
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "corpus.example.com/v1", "kind": "Backup",
			"metadata": map[string]any{"name": "a", "namespace": "default"},
			"spec": map[string]any{"database": "X", "mode": "Half",
				"targets": []any{map[string]any{"name": "one", "weight": "heavy"}}},
		}}
		_, err = s.store.write(resources[0].GroupResource(), types.NamespacedName{Namespace: "default", Name: "a"}, nil,
			o)
		require.NoError(t, err)
		patch := func(body string) error {
			_, err := backups.Patch(t.Context(), "a", types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		}
		require.NoError(t, patch(`{"metadata":{"labels":{"x":"y"}}}`))
		require.NoError(t, patch(`{"spec":{"suspend":true}}`))
		require.NoError(t, patch(`{"spec":{"targets":[{"name":"two"},{"name":"one","weight":"heavy"}]}}`),
			"the elements are told apart by their keys")
		err = patch(`{"spec":{"database":"Y"}}`)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.NotContains(t, err.Error(), "spec.mode")
		require.True(t, apierrors.IsInvalid(patch(`{"spec":{"targets":[{"name":"one","weight":"light"}]}}`)))
	})
}

// TestDefaultsKeepTheirIntegers that no float64 holds, below a list and a map as well.
func TestDefaultsKeepTheirIntegers(t *testing.T) {
	const field = "{type: object, default: {}, properties: {count: {type: integer, default: 9007199254740993}}}"
	resources, err := ReadCRDs([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions: [{name: v1, served: true, schema: {openAPIV3Schema: {type: object, properties: {
    one: ` + field + `, list: {type: array, items: ` + field + `},
    map: {type: object, additionalProperties: ` + field + `}}}}}]`))
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(NewServer(t, Options{Resources: resources}).Config())
	require.NoError(t, err)
	made, err := client.Resource(resources[0].GroupVersionResource).Namespace("default").Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "a"}, "list": []any{map[string]any{}},
			"map": map[string]any{"x": map[string]any{}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	want := map[string]any{"count": int64(9007199254740993)}
	require.Equal(t, want, made.Object["one"])
	require.Equal(t, []any{want}, made.Object["list"])
	require.Equal(t, map[string]any{"x": want}, made.Object["map"])
}

// TestAStatusMayHaveADefault, which is there although the author of an object cannot write its status.
func TestAStatusMayHaveADefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resources, err := ReadCRDs([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, default: {phase: New}, properties: {phase: {type: string}}}
`))
		require.NoError(t, err)
		s := NewServer(t, Options{Resources: resources})
		clients, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		made, err := clients.Resource(resources[0].GroupVersionResource).Create(t.Context(),
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": "a"}, "status": map[string]any{"phase": "Mine"}}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"phase": "New"}, made.Object["status"])
	})
}

func TestDefinitionsThatAreNotModelledAreRefused(t *testing.T) {
	manifest := string(backupsManifest)
	for name, c := range map[string]struct{ from, to, want string }{
		"two that are stored": {"  - name: v1\n",
			"  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n  - name: v1\n",
			"2 versions have storage: true"},
		"no webhook": {"  scope: Namespaced\n", "  scope: Namespaced\n  conversion: {strategy: Webhook}\n",
			"spec.conversion.webhook.clientConfig: Required value"},
		"an old review": {"  scope: Namespaced\n", "  scope: Namespaced\n  conversion: {strategy: Webhook, webhook: " +
			"{conversionReviewVersions: [v1beta1, v1], clientConfig: {url: \"https://a.example.com\"}}}\n",
			"not modelled: a ConversionReview"},
		"embedded, of no type": {"suspend: {type: boolean}",
			"suspend: {type: string, x-kubernetes-embedded-resource: true}", "its type is to be object"},
		"embedded, without fields": {"suspend: {type: boolean}",
			"suspend: {type: object, x-kubernetes-embedded-resource: true}", "it is to have properties"},
		"no type":  {"suspend: {type: boolean}", "suspend: {}", ".spec.suspend has no type"},
		"no scope": {"  scope: Namespaced\n", "", "spec.scope"},
		"another name": {"backups.corpus.example.com", "backup.corpus.example.com",
			`metadata.name is to be "backups.corpus.example.com"`},
		"both kinds": {"suspend: {type: boolean}",
			"suspend: {type: object, properties: {a: {type: string}}, additionalProperties: {type: string}}",
			"exclude each other"},
		"no schema": {"served: true\n    storage: true\n", "served: true\n    storage: true\n    schemas: {}\n",
			""},
		"nothing served": {"served: true", "served: false", "no version is served"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, manifest, c.from)
			_, err := ReadCRDs([]byte(strings.Replace(manifest, c.from, c.to, 1)))
			if c.want == "" {
				require.NoError(t, err, "fields that are not read do not matter")
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

const ruled = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: limits.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: limits, kind: Limit}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              low: {type: integer}
              high: {type: integer, maximum: 10, allOf: [{x-kubernetes-validations: [{rule: "self > 0"}]}]}
`

// judge is a RuleCompiler that knows one rule.
type judge struct{ t *testing.T }

func (j judge) CompileRules(schema []byte) (RuleCheck, error) {
	require.Contains(j.t, string(schema), `"rule":"self \u003e 0"`)
	return func(object, old map[string]any) field.ErrorList {
		high, _, _ := unstructured.NestedInt64(object, "spec", "high")
		before, _, _ := unstructured.NestedInt64(old, "spec", "high")
		if high <= before {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "high"), high, "is too low")}
		}
		return nil
	}, nil
}

func TestRulesAreRefusedWithoutACompiler(t *testing.T) {
	resources, err := ReadCRDs([]byte(ruled))
	require.NoError(t, err)
	message := refusal(t, Options{Resources: resources})
	require.Contains(t, message, "example.com/v1, Resource=limits: its schema has rules in CEL")
	require.Contains(t, message, "go get github.com/thermostat-go/thermostat/reconcile/reconciletest/cel")
}

func TestRulesAreAskedAboutWhatTheSchemaAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, Options{CRDs: []string{filepath.Dir(manifestOf(t, []byte(ruled)))}, Rules: judge{t}})
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		limits := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1",
			Resource: "limits"}).Namespace("default")
		patch := func(spec string) string {
			_, err := limits.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":`+spec+`}`),
				metav1.PatchOptions{})
			if err != nil {
				return err.Error()
			}
			return ""
		}
		_, err = limits.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Limit", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"high": int64(1)},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Empty(t, patch(`{"high":2}`))
		require.Contains(t, patch(`{"high":1}`), "is too low")
		require.Contains(t, patch(`{"high":"x"}`), "some validation rules were not checked")
		require.NotContains(t, patch(`{"high":"x"}`), "is too low")
		require.Contains(t, patch(`{"high":11}`), "should be less than or equal to 10")
	})
}

func TestManifestsThatAreMissingAreSaid(t *testing.T) {
	empty := t.TempDir()
	require.Contains(t, refusal(t, Options{CRDs: []string{empty}}), "has no manifests")
	require.Contains(t, refusal(t, Options{CRDs: []string{filepath.Join(empty, "none.yaml")}}), "no such file")
	require.Contains(t, refusal(t, Options{CRDs: []string{manifestOf(t, []byte("kind: Secret"))}}),
		"there are no CustomResourceDefinitions in")
}
