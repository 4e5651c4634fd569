package main

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
	"github.com/thermostat-go/thermostat/examples/tenant/tenanttest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

// tenant is the manifest of one with these projects, role and quota.
func tenant(projects, role, quota string) string {
	return fmt.Sprintf(`
apiVersion: platform.example.com/v1
kind: Tenant
metadata: {name: acme}
spec: {projects: [%s], members: [ada], role: %s, quota: {%s}, pullSecret: registry}
`, projects, role, quota)
}

const registry = `
apiVersion: v1
kind: Secret
metadata: {name: registry, namespace: platform}
type: example.com/token
data: {token: b25l}
`

// provisioned is about a Tenant that gets another role, a quota that the server refuses, and one project more, and all
// of it back.
func provisioned(t *testing.T, steps ...string) reconciletest.Scenario {
	sc := reconciletest.Scenario{
		Run:      start,
		Server:   tenanttest.ServerOptions(tenanttest.Manifests(t)),
		User:     tenanttest.Account,
		Steps:    reconciletest.ApplyYAML(steps...),
		Settled:  settled,
		Always:   keepsTenants,
		Budget:   time.Second,
		Limit:    3 * time.Second,
		Parallel: true,
	}
	if soak {
		sc.Budget, sc.Limit, sc.Seed = 3*time.Minute, 0, uint64(time.Now().UnixNano())
	}
	return sc
}

func settled(s *reconciletest.Server) error {
	t, ok := reconciletest.Get[*v1.Tenant](s, "tenants.platform.example.com", "", "acme")
	if !ok || len(t.Status.Conditions) == 0 || t.Status.Conditions[0].Reason != v1.ReasonProvisioned ||
		t.Status.ObservedGeneration != t.Generation {
		return fmt.Errorf("the Tenant is %+v", t)
	}
	for _, project := range t.Spec.Projects {
		namespace := "acme-" + project
		quota, _ := reconciletest.Get[*corev1.ResourceQuota](s, "resourcequotas", namespace, v1.QuotaName)
		binding, _ := reconciletest.Get[*rbacv1.RoleBinding](s, "rolebindings.rbac.authorization.k8s.io", namespace,
			v1.MembersName)
		if quota == nil || len(quota.Spec.Hard) != len(t.Spec.Quota) || binding == nil ||
			binding.RoleRef.Name != t.Spec.Role {
			return fmt.Errorf("namespace %s has %+v and %+v", namespace, quota, binding)
		}
	}
	return nil
}

// keepsTenants is about each write: nothing is made where the Tenant has no namespace, nobody works in a namespace that
// is deleted, and the pods of one that is not are held back.
func keepsTenants(w reconciletest.Write, s *reconciletest.Server) error {
	switch w.Resource.Resource {
	case "rolebindings", "networkpolicies":
		home, ok := reconciletest.Get[*corev1.Namespace](s, "namespaces", "", w.Namespace)
		if w.New != nil && (!ok || home.Labels[v1.OwnerLabel] == "") {
			return errors.New("something is made in a namespace of somebody else")
		}
		if w.New == nil && w.Resource.Resource == "networkpolicies" {
			return errors.New("a policy is deleted, which should go with its namespace")
		}
	case "namespaces":
		if w.Old == nil || w.New != nil && w.New.GetDeletionTimestamp() == nil {
			return nil
		}
		if len(reconciletest.List[*rbacv1.RoleBinding](s, "rolebindings.rbac.authorization.k8s.io", w.Name)) > 0 {
			return errors.New("a namespace is deleted, and members still have rights there")
		}
	case "tenants":
		var owned []string
		for _, o := range reconciletest.List[*corev1.Namespace](s, "namespaces", "") {
			if o.Labels[v1.OwnerLabel] != "" {
				owned = append(owned, o.Name)
			}
		}
		if w.New == nil && len(owned) > 0 {
			return fmt.Errorf("the Tenant is gone, and %v are there", owned)
		}
	}
	return nil
}

// TestCheck disturbs the operator while a Tenant gets another role and a quota that the server refuses, and the first
// ones again. A long run does so at each request.
func TestCheck(t *testing.T) {
	reconciletest.Check(t, provisioned(t, registry, tenant("web", "edit", "pods: 5"),
		tenant("web", "view", "pods: -1"), tenant("web", "edit", "pods: 5")))
}

// TestCheckProjects does the same while a project comes, and goes.
func TestCheckProjects(t *testing.T) {
	if soak {
		reconciletest.Check(t, provisioned(t, registry, tenant("web", "edit", "pods: 5"),
			tenant("web, data", "edit", "pods: 5"), tenant("web", "edit", "pods: 5")))
	}
}

// TestCheckDeletion does the same while a Tenant is deleted, in the foreground.
func TestCheckDeletion(t *testing.T) {
	s := provisioned(t, registry, tenant("web", "edit", "pods: 5"))
	s.Steps = append(s.Steps, reconciletest.DeleteWith(metav1.DeletePropagationForeground,
		"tenants.platform.example.com", "", "acme"))
	s.Settled = func(s *reconciletest.Server) error {
		_, ok := reconciletest.Get[*v1.Tenant](s, "tenants.platform.example.com", "", "acme")
		_, there := reconciletest.Get[*corev1.Namespace](s, "namespaces", "", "acme-web")
		if ok || there {
			return errors.New("the Tenant or its namespace is still there")
		}
		return nil
	}
	reconciletest.Check(t, s)
}
