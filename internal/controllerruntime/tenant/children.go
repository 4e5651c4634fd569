package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
)

// namespacesOf returns the names of the namespaces that a Tenant wants.
func namespacesOf(t *v1.Tenant) []string {
	var names []string
	for _, project := range t.Spec.Projects {
		names = append(names, t.Name+"-"+project)
	}
	slices.Sort(names)
	return names
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// setNamespace does not let pods be what could harm their node.
func setNamespace(o *corev1.Namespace) { o.Labels["pod-security.kubernetes.io/enforce"] = "baseline" }

// setLimits is for containers that ask for nothing: a quota would refuse their pods.
func setLimits(o *corev1.LimitRange) {
	o.Spec.Limits = []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer,
		DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("100m"),
			"memory": resource.MustParse("128Mi")},
		Default: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("512Mi")},
	}}
}

// setPolicy lets pods be reached from the namespaces of their Tenant only.
func setPolicy(o *networkingv1.NetworkPolicy, t *v1.Tenant) {
	ours := &metav1.LabelSelector{MatchLabels: map[string]string{v1.OwnerLabel: string(t.UID)}}
	o.Spec = networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: ours}}}},
	}
}

// setAccount is for what deploys to the namespace.
func setAccount(o *corev1.ServiceAccount) { o.AutomountServiceAccountToken = ptr.To(false) }

// setBinding gives the Tenant's role to its members and to the account. The role of a RoleBinding cannot be changed.
func setBinding(o *rbacv1.RoleBinding, t *v1.Tenant) error {
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: t.Spec.Role}
	if o.UID != "" && o.RoleRef != role {
		return errNotYet
	}
	o.RoleRef = role
	o.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.Namespace, Name: v1.DeployerName}}
	for _, member := range t.Spec.Members {
		o.Subjects = append(o.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: member})
	}
	return nil
}

// setCopy gives a Secret the type and the data of another one. The type of a Secret cannot be changed.
func setCopy(o, of *corev1.Secret) error {
	if o.UID != "" && o.Type != of.Type {
		return errNotYet
	}
	o.Type, o.Data = of.Type, of.Data
	return nil
}
