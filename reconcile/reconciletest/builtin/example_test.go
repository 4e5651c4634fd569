package builtin_test

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

func ExampleKinds() {
	server, err := reconciletest.Start(reconciletest.Options{Kinds: builtin.Kinds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	roles := kubernetes.NewForConfigOrDie(server.Config()).RbacV1().Roles("default")
	_, err = roles.Create(context.Background(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{Resources: []string{"pods"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{})
	fmt.Println(apierrors.ReasonForError(err))
	// Output: Invalid
}
