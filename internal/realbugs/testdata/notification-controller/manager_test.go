// Package check runs the controller of Receivers of Flux's notification-controller, with the manager and the defaults
// of the flags of its main. What it serves, leader election and metrics are left out.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apiv1 "github.com/fluxcd/notification-controller/api/v1"
	apiv1beta2 "github.com/fluxcd/notification-controller/api/v1beta2"
	apiv1beta3 "github.com/fluxcd/notification-controller/api/v1beta3"
	"github.com/fluxcd/notification-controller/internal/controller"
	helper "github.com/fluxcd/pkg/runtime/controller"
	"github.com/fluxcd/pkg/runtime/metrics"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	const name = "notification-controller"
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiv1.AddToScheme,
		apiv1beta2.AddToScheme, apiv1beta3.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again, recovers := true, true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: &again, RecoverPanic: &recovers,
			MaxConcurrentReconciles: 4},
	})
	if err != nil {
		return err
	}
	//nolint:staticcheck // The program takes the older recorder.
	recorder := mgr.GetEventRecorderFor(name)
	if err := (&controller.ReceiverReconciler{Client: mgr.GetClient(), ControllerName: name, EventRecorder: recorder,
		Metrics: helper.NewMetrics(mgr, metrics.NewRecorder(), apiv1.NotificationFinalizer),
	}).SetupWithManagerAndOptions(mgr, controller.ReceiverReconcilerOptions{
		RateLimiter: helper.GetRateLimiter(helper.RateLimiterOptions{MinRetryDelay: 750 * time.Millisecond,
			MaxRetryDelay: 15 * time.Minute}),
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
