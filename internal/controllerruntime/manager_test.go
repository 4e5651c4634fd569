package controllerruntime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// program is what a user has in main: a manager with leader election, whose controller gives each ConfigMap a Secret of
// its name.
func program(t *testing.T, cfg *rest.Config) ctrl.Manager {
	twice := true                                // two programs in one process have controllers of one name
	lease, renew := 5*time.Minute, 4*time.Minute // a busy machine loses no leadership
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Logger:                        logr.Discard(),
		LeaderElection:                true,
		LeaderElectionID:              "twins",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		Controller:                    config.Controller{SkipNameValidation: &twice},
	})
	require.NoError(t, err)
	require.NoError(t, ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		Complete(&twins{m.GetClient()}))
	return m
}

type twins struct{ client.Client }

func (c *twins) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var of corev1.ConfigMap
	if err := c.Get(ctx, r.NamespacedName, &of); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: of.Name, Namespace: of.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.Client, &secret, func() error {
		secret.StringData = of.Data
		return controllerutil.SetControllerReference(&of, &secret, c.Scheme())
	})
	return ctrl.Result{}, err
}

// run starts a program; stop ends it and waits for it.
func run(t *testing.T, cfg *rest.Config) (stop func()) {
	m := program(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// lead has two programs work one after the other.
func lead(t *testing.T, server *reconciletest.Server, connect func() *rest.Config, eventually func(func() bool)) {
	first := connect()
	admin := kubernetes.NewForConfigOrDie(server.Config())
	create := func(name string) {
		_, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": name}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	made := func(name string) bool {
		s, ok := reconciletest.Get[*corev1.Secret](server, "secrets", "default", name)
		return ok && string(s.Data["x"]) == name
	}
	holder := func() string {
		l, ok := reconciletest.Get[*coordinationv1.Lease](server, "leases", "default", "twins")
		if !ok || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}

	create("before")
	stopFirst := run(t, first)
	eventually(func() bool { return made("before") })
	leader := holder()
	run(t, connect())
	create("during")
	eventually(func() bool { return made("during") })
	require.Equal(t, leader, holder())

	stopFirst()
	create("after")
	eventually(func() bool { return made("after") })
	require.NotEqual(t, leader, holder())

	err := admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "during", metav1.DeleteOptions{})
	require.NoError(t, err)
	eventually(func() bool { return !made("during") }) // the garbage collector's work
	_, err = admin.CoreV1().Secrets("default").Get(t.Context(), "during", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestAManagerWithLeaderElectionInABubble(t *testing.T) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		lead(t, server, func() *rest.Config { return server.Link().Config() }, func(done func() bool) {
			for limit := time.Now().Add(time.Hour); !done(); time.Sleep(time.Second) {
				require.True(t, time.Now().Before(limit))
			}
		})
	})
	t.Logf("it took %v", time.Since(began))
}

func TestAManagerWithLeaderElectionOverHTTP(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	lead(t, server, func() *rest.Config { return server.Link().Listen() }, func(done func() bool) {
		require.Eventually(t, done, time.Minute, 10*time.Millisecond)
	})
}
