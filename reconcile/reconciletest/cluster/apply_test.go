package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const greetings = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.cluster.example.com}
spec:
  group: cluster.example.com
  names: {kind: Greeting, plural: greetings}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {text: {type: string}}}}
---
apiVersion: cluster.example.com/v1
kind: Greeting
metadata: {name: hello, namespace: default}
spec: {text: hello}
`

func TestApply(t *testing.T) {
	c := cluster.Shared(t)
	apply := func(documents string) error {
		objects, err := cluster.Decode([]byte(documents))
		require.NoError(t, err)
		return c.Apply(t.Context(), objects...)
	}
	require.NoError(t, apply(greetings), "the kind is served when its first object comes")
	require.NoError(t, apply(greetings))
	require.ErrorContains(t, apply(`{apiVersion: cluster.example.com/v1, kind: Greeting,
		metadata: {name: hello, namespace: default}, spec: {words: hello}}`),
		"spec.words: field not declared in schema")
	require.ErrorContains(t, apply(`{apiVersion: cluster.example.com/v1, kind: Farewell,
		metadata: {name: bye, namespace: default}}`), `no matches for kind "Farewell"`)
	_, err := cluster.Decode([]byte("a: 1\n---\nb: ["))
	require.ErrorContains(t, err, "after object 1")
}
