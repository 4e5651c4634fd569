package main

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// children are the objects of one kind that Tenants own.
type children[T informer.Object] struct {
	*informer.Cached[T]
	byOwner *informer.Index[types.UID, T]
}

func childrenIn[T informer.Object](g *informer.Group, gvr schema.GroupVersionResource,
	selector labels.Selector) children[T] {
	c := informer.CachedIn(g, gvr, informer.Options[T]{LabelSelector: selector})
	return children[T]{c, informer.IndexIn(g, c.Cache, func(o T, add func(types.UID)) {
		add(types.UID(o.GetLabels()[v1.OwnerLabel]))
	})}
}

// watch lets a change of one name its Tenant.
func (c children[T]) watch(controller *reconcile.Controller) {
	reconcile.Watches(controller, c.Cache, objects.LabelledBy[T](v1.OwnerLabel))
}

// of returns those of a Tenant.
func (c children[T]) of(t *v1.Tenant) iter.Seq[T] { return c.byOwner.Get(t.UID) }

// within returns those of a Tenant in some namespaces.
func (c children[T]) within(t *v1.Tenant, namespaces []string) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range c.of(t) {
			if slices.Contains(namespaces, o.GetNamespace()) && !yield(o) {
				return
			}
		}
	}
}

// namespacesOf returns the names of the namespaces that a Tenant wants.
func namespacesOf(t *v1.Tenant) []string {
	var names []string
	for _, project := range t.Spec.Projects {
		names = append(names, t.Name+"-"+project)
	}
	slices.Sort(names)
	return names
}

// home is a namespace. It does not let pods be what could harm their node.
func home(_ *v1.Tenant, name string) any {
	return corev1ac.Namespace(name).WithLabels(map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})
}

func quota(t *v1.Tenant, namespace string) any {
	spec := corev1ac.ResourceQuotaSpec()
	if len(t.Spec.Quota) > 0 { // an empty one would be applied as null
		spec.WithHard(t.Spec.Quota)
	}
	return corev1ac.ResourceQuota(v1.QuotaName, namespace).WithSpec(spec)
}

// limitRange is for containers that ask for nothing: a quota would refuse their pods.
func limitRange(_ *v1.Tenant, namespace string) any {
	ask := corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}
	most := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("512Mi")}
	return corev1ac.LimitRange(v1.QuotaName, namespace).WithSpec(corev1ac.LimitRangeSpec().WithLimits(
		corev1ac.LimitRangeItem().WithType(corev1.LimitTypeContainer).WithDefaultRequest(ask).WithDefault(most)))
}

// policy lets pods be reached from the namespaces of their Tenant only.
func policy(t *v1.Tenant, namespace string) any {
	ours := metav1ac.LabelSelector().WithMatchLabels(map[string]string{v1.OwnerLabel: string(t.UID)})
	return networkingv1ac.NetworkPolicy(v1.QuotaName, namespace).WithSpec(networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector()).
		WithPolicyTypes(networkingv1.PolicyTypeIngress).
		WithIngress(networkingv1ac.NetworkPolicyIngressRule().
			WithFrom(networkingv1ac.NetworkPolicyPeer().WithNamespaceSelector(ours))))
}

// account is for what deploys to the namespace.
func account(_ *v1.Tenant, namespace string) any {
	return corev1ac.ServiceAccount(v1.DeployerName, namespace).WithAutomountServiceAccountToken(false)
}

// binding gives the Tenant's role to its members and to the account. The role of a RoleBinding cannot be changed.
func binding(t *v1.Tenant, namespace string) any {
	b := rbacv1ac.RoleBinding(v1.MembersName, namespace).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(t.Spec.Role)).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(namespace).
			WithName(v1.DeployerName))
	for _, member := range t.Spec.Members {
		b.WithSubjects(rbacv1ac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(member))
	}
	return b
}

// secretCopy returns the configuration of copies of a Secret. The type of a Secret cannot be changed.
func secretCopy(of *corev1.Secret) func(*v1.Tenant, string) any {
	return func(_ *v1.Tenant, namespace string) any {
		return corev1ac.Secret(of.Name, namespace).WithType(of.Type).WithData(of.Data)
	}
}
