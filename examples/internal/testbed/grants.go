package testbed

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/rights"
)

// CheckGrants checks that the rules in an example's manifests, seen from its folder, are those that its command looks
// for at its start: in all namespaces, and for the Lease in its own.
func CheckGrants(t *testing.T, needs rights.Needs) {
	t.Helper()
	text, err := os.ReadFile("deploy/rbac.yaml")
	require.NoError(t, err)
	objects, err := cluster.Decode(text) // not rights.Parse: kustomize adds the namespace of the Role
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range objects {
		kinds[o.GetKind()]++
		var role rbacv1.Role // a ClusterRole has its rules in the same place
		switch o.GetKind() {
		case "ClusterRole":
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			require.Equal(t, ByResource(needs[""]), ByResource(role.Rules))
		case "Role":
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			require.Len(t, role.Rules, len(needs["thermostat"]))
		}
	}
	require.Equal(t, []int{1, 1}, []int{kinds["ClusterRole"], kinds["Role"]})
}

// ByResource returns the verbs of rules that are about one resource each, by group/resource.
func ByResource(rules []rbacv1.PolicyRule) map[string][]string {
	verbs := map[string][]string{}
	for _, rule := range rules {
		verbs[rule.APIGroups[0]+"/"+rule.Resources[0]] = rule.Verbs
	}
	return verbs
}
