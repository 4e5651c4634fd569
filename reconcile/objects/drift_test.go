package objects_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func web() *appsv1ac.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	return appsv1ac.Deployment("web", "default").WithLabels(labels).WithSpec(appsv1ac.DeploymentSpec().WithReplicas(3).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().WithContainers(
			corev1ac.Container().WithName("web").WithImage("web:1").WithArgs("a", "b").
				WithPorts(corev1ac.ContainerPort().WithContainerPort(80).WithProtocol(corev1.ProtocolTCP))))))
}

func TestDriftNamesEachFieldAndWhoSetIt(t *testing.T) {
	ctx := t.Context()
	clients := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t, reconciletest.Options{}).Config())
	deployments := clients.AppsV1().Deployments("default")
	drift := func() (fields []string) {
		found, err := objects.Drift(ctx, deployments, deployments.Apply, web(), asMe)
		require.NoError(t, err)
		for _, d := range found {
			fields = append(fields, fmt.Sprintf("%s: %v, is %v, by %v", d.Field, d.Desired, d.Is, d.Managers))
		}
		return fields
	}
	missing := drift()
	require.Contains(t, missing, ".spec.replicas: 3, is <nil>, by []")
	_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	require.Error(t, err, "it was a dry run")

	_, err = objects.Apply(ctx, deployments.Apply, web(), asMe)
	require.NoError(t, err)
	require.Empty(t, drift())

	_, err = deployments.UpdateScale(ctx, "web", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 5},
	}, metav1.UpdateOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	require.Equal(t, []string{".spec.replicas: 3, is 5, by [kubectl]"}, drift())

	_, err = deployments.Patch(ctx, "web", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"app":null,
		"other":"x"}},"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2","args":["a","c","d"]},
		{"name":"side","image":"side:1"}]}}}}`), metav1.PatchOptions{FieldManager: "editor"})
	require.NoError(t, err)
	container := `.spec.template.spec.containers[name="web"]`
	require.Equal(t, []string{
		".metadata.labels.app: web, is <nil>, by []",
		".spec.replicas: 3, is 5, by [kubectl]",
		container + ".args[1]: b, is c, by [editor]",
		container + ".args[2]: <nil>, is d, by [editor]",
		container + ".image: web:1, is web:2, by [editor]",
	}, drift(), "what others have added is not compared")

	_, err = objects.Apply(ctx, deployments.Apply, web(), metav1.ApplyOptions{FieldManager: "me", Force: true})
	require.NoError(t, err)
	require.Empty(t, drift())
}

// TestDriftComparesOneState lets another writer in between the two requests, until it has no more time.
func TestDriftComparesOneState(t *testing.T) {
	ctx := t.Context()
	clients := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t, reconciletest.Options{}).Config())
	deployments := clients.AppsV1().Deployments("default")
	_, err := objects.Apply(ctx, deployments.Apply, web(), asMe)
	require.NoError(t, err)
	writes := 0
	busy := func(limit int) func(context.Context, *appsv1ac.DeploymentApplyConfiguration,
		metav1.ApplyOptions) (*appsv1.Deployment, error) {
		writes = 0
		return func(ctx context.Context, config *appsv1ac.DeploymentApplyConfiguration,
			opts metav1.ApplyOptions) (*appsv1.Deployment, error) {
			if writes++; writes <= limit {
				patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 10*limit+writes)
				_, err := deployments.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
				require.NoError(t, err)
			}
			return deployments.Apply(ctx, config, opts)
		}
	}
	found, err := objects.Drift(ctx, deployments, busy(2), web(), asMe)
	require.NoError(t, err)
	require.Equal(t, int64(22), found[0].Is)
	require.Equal(t, 3, writes)
	_, err = objects.Drift(ctx, deployments, busy(9), web(), asMe)
	require.ErrorContains(t, err, "compare Deployment default/web: the object changed 5 times while it was read")
	_, err = objects.Drift(ctx, deployments, deployments.Apply, appsv1ac.Deployment("", "default"), asMe)
	require.ErrorContains(t, err, "metadata.name is empty")
}

func TestDriftPrintsNoValues(t *testing.T) {
	for d, want := range map[string]objects.Difference{
		".data.a was set by kubectl and me": {Field: ".data.a", Desired: "x", Is: "y",
			Managers: []string{"kubectl", "me"}},
		".data.a is missing":     {Field: ".data.a", Desired: "x"},
		".data.a has no manager": {Field: ".data.a", Is: "y"},
	} {
		require.Equal(t, d, want.String())
	}
}
