package cluster_test

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// testDeployment is TestDeployment in a test file of yours.
func testDeployment(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	config, err := c.ServiceAccount(t.Context(), namespace,
		rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
		rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	labels := map[string]string{"app": "web"}
	_, err = client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for ready := false; !ready; time.Sleep(50 * time.Millisecond) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ready = len(pods.Items) == 1 && slices.ContainsFunc(pods.Items[0].Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	}
	err = client.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("delete the Deployment: %v; no rule says delete", err)
	}
}

// A Deployment gets a Ready pod, and a client may do what its rules say.
func Example() {
	var t *testing.T // that of your TestDeployment
	testDeployment(t)
}
