package cluster

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// awaitBinding waits until the API server grants what a RoleBinding or a ClusterRoleBinding does, to each subject the
// first verb on the first resource of every rule. Its authorizer learns of bindings from a watch, so a program that
// begins at once may be refused. Any other object, and a binding whose role is missing, grants nothing.
func awaitBinding(ctx context.Context, client kubernetes.Interface, o *unstructured.Unstructured) error {
	if o.GroupVersionKind().Group != rbacv1.GroupName || o.GetKind() != "RoleBinding" &&
		o.GetKind() != "ClusterRoleBinding" {
		return nil
	}
	// A ClusterRoleBinding has the same fields, and no namespace.
	var binding rbacv1.RoleBinding
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
		return err
	}
	rules, err := rulesOf(ctx, client, binding.RoleRef, binding.Namespace)
	if err != nil {
		return err
	}
	for _, subject := range binding.Subjects {
		for _, rule := range rules {
			if err := awaitGrant(ctx, client, subject, accessTo(rule, binding.Namespace)); err != nil {
				return err
			}
		}
	}
	return nil
}

func rulesOf(ctx context.Context, client kubernetes.Interface, ref rbacv1.RoleRef,
	namespace string) ([]rbacv1.PolicyRule, error) {
	role, err := &rbacv1.Role{}, error(nil)
	if ref.Kind == "Role" {
		role, err = client.RbacV1().Roles(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	} else {
		var all *rbacv1.ClusterRole
		if all, err = client.RbacV1().ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{}); err == nil {
			role.Rules = all.Rules
		}
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return role.Rules, err
}

func awaitGrant(ctx context.Context, client kubernetes.Interface, subject rbacv1.Subject,
	access authorizationv1.SelfSubjectAccessReviewSpec) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: subject.Name, ResourceAttributes: access.ResourceAttributes,
		NonResourceAttributes: access.NonResourceAttributes,
	}}
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		review.Spec.User = fmt.Sprintf("system:serviceaccount:%s:%s", subject.Namespace, subject.Name)
	case rbacv1.GroupKind:
		review.Spec.User, review.Spec.Groups = "anybody", []string{subject.Name}
	}
	what := fmt.Sprintf("%s %s may %v%v", subject.Kind, subject.Name, access.ResourceAttributes,
		access.NonResourceAttributes)
	return eventually(ctx, what, func(ctx context.Context) (bool, error) {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
}
