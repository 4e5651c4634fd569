package reconciletest

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// An object that was valid once, under an older schema, can still be changed elsewhere: what has not changed is not
// judged again.
func TestWhatHasNotChangedIsNotJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resources, err := ReadCRDs(backupsManifest)
		require.NoError(t, err)
		s, err := New(Options{Resources: resources})
		require.NoError(t, err)
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

func TestDefinitionsThatAreNotModelledAreRefused(t *testing.T) {
	manifest := string(backupsManifest)
	for name, c := range map[string]struct{ from, to, want string }{
		"CEL": {"suspend: {type: boolean}",
			`suspend: {type: boolean, x-kubernetes-validations: [{rule: "self"}]}`,
			"rules in CEL (x-kubernetes-validations) at .spec.suspend"},
		"two versions": {"  - name: v1\n",
			"  - {name: v2, served: true, schema: {openAPIV3Schema: {type: object}}}\n  - name: v1\n",
			"2 versions are served"},
		"a webhook": {"  scope: Namespaced\n", "  scope: Namespaced\n  conversion: {strategy: Webhook}\n",
			"conversion webhooks"},
		"embedded": {"suspend: {type: boolean}", "suspend: {type: object, x-kubernetes-embedded-resource: true}",
			"embedded resources"},
		"no type":  {"suspend: {type: boolean}", "suspend: {}", ".spec.suspend has no type"},
		"no scope": {"  scope: Namespaced\n", "", "spec.scope"},
		"another name": {"backups.corpus.example.com", "backup.corpus.example.com",
			`metadata.name is to be "backups.corpus.example.com"`},
		"both kinds": {"suspend: {type: boolean}",
			"suspend: {type: object, properties: {a: {type: string}}, additionalProperties: {type: string}}",
			"exclude each other"},
		"no schema": {"served: true\n    storage: true\n", "served: true\n    storage: true\n    schemas: {}\n",
			""},
		"nothing served": {"served: true", "served: false", "0 versions are served"},
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
