// Package check runs controllers of Spark's operator, each by itself: that of SparkConnects, with the caches, the
// namespaces and the limits of its Helm chart, and those that give its webhooks their authority, as the main of these
// does. The webhooks, leader election and HTTP are left out.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubeflow/spark-operator/v2/api/v1alpha1"
	"github.com/kubeflow/spark-operator/v2/internal/controller/sparkconnect"
	"github.com/kubeflow/spark-operator/v2/pkg/common"
	"github.com/kubeflow/spark-operator/v2/pkg/util"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	// The kubelet sets them in the pod of the operator.
	for name, value := range map[string]string{common.EnvKubernetesServiceHost: "10.96.0.1",
		common.EnvKubernetesServicePort: "443"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{"default": {}},
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:            {Label: labels.Set{common.LabelLaunchedBySparkOperator: "true"}.AsSelector()},
				&corev1.ConfigMap{}:      {},
				&corev1.Service{}:        {},
				&v1alpha1.SparkConnect{}: {},
			},
		},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	//nolint:staticcheck // The program takes the older recorder.
	recorder := mgr.GetEventRecorderFor("SparkConnect")
	if err := sparkconnect.NewReconciler(mgr, mgr.GetScheme(), mgr.GetClient(), recorder,
		sparkconnect.Options{Namespaces: []string{"default"}}).SetupWithManager(mgr, controller.Options{
		MaxConcurrentReconciles: 10,
		CacheSyncTimeout:        30 * time.Second,
		RateLimiter:             util.NewRateLimiter[ctrl.Request](50, 500, 6*time.Hour),
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
