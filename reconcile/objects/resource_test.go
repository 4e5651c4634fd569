package objects_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func resourceOf[T informer.Object](t *testing.T, cfg *rest.Config, gvr schema.GroupVersionResource,
) *informer.Resource[T] {
	t.Helper()
	r, err := informer.NewResource[T](cfg, gvr, informer.ResourceOptions{})
	require.NoError(t, err)
	return r.In("default")
}

// Each helper takes a Resource as its client.
func TestAResourceFitsEveryHelper(t *testing.T) {
	ctx, cfg := t.Context(), reconciletest.NewServer(t, reconciletest.Options{}).Config()
	deployments := resourceOf[*appsv1.Deployment](t, cfg, appsv1.SchemeGroupVersion.WithResource("deployments"))
	maps := resourceOf[*corev1.ConfigMap](t, cfg, corev1.SchemeGroupVersion.WithResource("configmaps"))

	missing, err := objects.Drift(ctx, deployments, deployments.Apply, web(), asMe)
	require.NoError(t, err)
	require.NotEmpty(t, missing)
	d, err := objects.Apply(ctx, deployments.Apply, web(), asMe)
	require.NoError(t, err)
	missing, err = objects.Drift(ctx, deployments, deployments.Apply, web(), asMe)
	require.NoError(t, err)
	require.Empty(t, missing)
	same, err := objects.ApplyChanges(ctx, deployments.Apply, appsv1ac.ExtractDeployment, d, web(), asMe)
	require.NoError(t, err)
	require.Same(t, d, same, "nothing has changed, so nothing is sent")

	_, err = objects.UpdateStatus(ctx, deployments, d, func(d *appsv1.Deployment) error {
		d.Status.ObservedGeneration = d.Generation
		return nil
	})
	require.NoError(t, err)
	owner := objects.NewOwner(deployments, d, deployments.GroupVersionKind())
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "child"}}
	child, err := objects.CreateOwned(ctx, owner, maps, wanted)
	require.NoError(t, err)
	require.Equal(t, "Deployment", metav1.GetControllerOf(child).Kind)
	again, err := objects.CreateOwned(ctx, owner, maps, wanted)
	require.NoError(t, err)
	require.Equal(t, child.UID, again.UID)
}
