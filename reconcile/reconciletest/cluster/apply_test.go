package cluster_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// A program may look for its rights as soon as they are applied, in whatever order binding and role come.
func TestWhatIsAppliedIsGranted(t *testing.T) {
	c := cluster.Shared(t)
	for i := range 20 {
		namespace := c.Namespace(t)
		objects, err := cluster.Decode(fmt.Appendf(nil, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads}
subjects:
- {kind: ServiceAccount, name: reader, namespace: %[1]s}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads, namespace: %[1]s}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: missing}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody}]
`, namespace))
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), objects...))
		cfg := c.Config()
		cfg.Impersonate.UserName = "system:serviceaccount:" + namespace + ":reader"
		reader := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace)
		_, err = reader.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, "try %d", i)
	}
}
