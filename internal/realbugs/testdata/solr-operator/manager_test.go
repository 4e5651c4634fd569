// Package check runs the controller of SolrPrometheusExporters of Solr's operator, as its main does. Leader election
// and HTTP are left out.
package check

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	zkv1beta1 "github.com/pravega/zookeeper-operator/api/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	solrv1beta1 "github.com/apache/solr-operator/api/v1beta1"
	"github.com/apache/solr-operator/controllers"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, solrv1beta1.AddToScheme,
		zkv1beta1.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if err := (&controllers.SolrPrometheusExporterReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).
		SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
