package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestSmallestRoles has a program that may list pods everywhere and do more in two namespaces.
func TestSmallestRoles(t *testing.T) {
	const user = "system:serviceaccount:a:b"
	rule := func(verbs []string, group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: []string{resource}}
	}
	a := &access{roles: map[[2]string][]rbacv1.PolicyRule{
		{"", "everywhere"}: {rule([]string{"list", "watch"}, "", "pods")},
		{"a", "own"}:       {rule([]string{"update", "get"}, "", "pods"), rule([]string{"*"}, "batch", "jobs")},
		{"c", "all"}:       {rule([]string{"*"}, "", "*")},
		{"", "others"}:     {rule([]string{"get"}, "", "secrets")},
	}, bindings: []binding{
		{user: user, role: [2]string{"", "everywhere"}},
		{user: user, namespace: "a", role: [2]string{"a", "own"}},
		{group: "system:serviceaccounts:a", namespace: "c", role: [2]string{"c", "all"}},
		{user: "somebody else", role: [2]string{"", "others"}},
	}}
	granted := a.granted(user)
	require.Equal(t, []use{{"", "", "pods", "list"}, {"", "", "pods", "watch"}, {"a", "", "pods", "get"},
		{"a", "", "pods", "update"}, {"a", "batch", "jobs", "*"}, {"c", "", "*", "*"}}, granted)
	require.Empty(t, a.granted(""), "a program without a user may do everything")

	used := usage{{"a", "", "pods", "list"}: true, {"c", "", "pods", "list"}: true, {"a", "", "pods", "update"}: true,
		{"a", "", "pods", "get"}: true, {"a", "batch", "jobs", "create"}: true}
	require.Equal(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: minimal}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: minimal, namespace: a}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, update]}
- {apiGroups: [batch], resources: [jobs], verbs: [create]}
`, used.manifest(func(u use) bool { return a.everywhere(user, u) }))

	named := &access{roles: map[[2]string][]rbacv1.PolicyRule{{"", "binder"}: {{Verbs: []string{"bind"},
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"}}}},
		bindings: []binding{{user: user, role: [2]string{"", "binder"}}}}
	bind := use{"a", rbacv1.GroupName, "clusterroles", "bind"}
	require.True(t, bind.judged())
	require.True(t, named.everywhere(user, bind), "for one name, in all namespaces")
	require.False(t, named.everywhere(user, use{"a", rbacv1.GroupName, "roles", "bind"}))

	var unused []string
	for _, g := range granted {
		if !used.covers(g) {
			unused = append(unused, g.String())
		}
	}
	require.Equal(t, []string{"watch pods"}, unused)
	require.True(t, used.covers(use{"", "batch", "*", "create"}))
	require.False(t, used.covers(use{"c", "batch", "jobs", "create"}), "in another namespace")
	require.Equal(t, "create jobs.batch in the namespace a", use{"a", "batch", "jobs", "create"}.String())
}
