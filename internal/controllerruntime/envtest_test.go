package controllerruntime

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// envtest finds etcd, kube-apiserver and kubectl in the folder of package cluster, and starts them with flags of its
// own.
func TestEnvtest(t *testing.T) {
	programs, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	t.Setenv("KUBEBUILDER_ASSETS", programs)
	environment := &envtest.Environment{
		ControlPlaneStartTimeout: 5 * time.Minute, ControlPlaneStopTimeout: 5 * time.Minute,
	}
	config, err := environment.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, environment.Stop()) })

	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "memo"}}
	require.NoError(t, c.Create(t.Context(), o))
	require.NotEmpty(t, o.ResourceVersion)

	user, err := environment.AddUser(envtest.User{Name: "nobody"}, nil)
	require.NoError(t, err)
	weak, err := client.New(user.Config(), client.Options{})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(weak.Get(t.Context(), client.ObjectKeyFromObject(o), o)), "RBAC is on")

	admin, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	require.NoError(t, err)
	kubectl, err := admin.Kubectl()
	require.NoError(t, err)
	stdout, _, err := kubectl.Run("get", "configmap", "memo", "-o", "name")
	require.NoError(t, err)
	said, err := io.ReadAll(stdout)
	require.NoError(t, err)
	require.Equal(t, "configmap/memo\n", string(said))
}
