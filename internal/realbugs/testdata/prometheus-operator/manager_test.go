// Package check runs each controller of prometheus-operator by itself, as its main does, with the defaults of the
// flags, on a cluster that has all of its kinds and grants all rights. Metrics and the web server are left out.
package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/set"

	"github.com/prometheus-operator/prometheus-operator/pkg/alertmanager"
	"github.com/prometheus-operator/prometheus-operator/pkg/kubelet"
	"github.com/prometheus-operator/prometheus-operator/pkg/operator"
	prometheusagent "github.com/prometheus-operator/prometheus-operator/pkg/prometheus/agent"
	prometheusserver "github.com/prometheus-operator/prometheus-operator/pkg/prometheus/server"
	"github.com/prometheus-operator/prometheus-operator/pkg/thanos"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// start makes a controller, and returns what runs it.
type start func(ctx context.Context, cfg *rest.Config, flags operator.Config, logger *slog.Logger,
	metrics prometheus.Registerer) (run func(context.Context) error, err error)

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute. definitions are the
// custom resources that it reads: the files have more, which would have to be read for each run.
func check(t *testing.T, start start, s reconciletest.Scenario, definitions ...string) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, start) }
	s.Server.Kinds, s.Server.Rules = builtin.Kinds(), cel.Rules{}
	wanted := set.New(definitions...)
	for _, r := range defined() {
		if wanted.Has(r.Resource) {
			s.Server.Resources = append(s.Server.Resources, r)
		}
	}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// defined are the custom resources of the operator.
var defined = sync.OnceValue(func() (all []reconciletest.Resource) {
	files, err := filepath.Glob("crd/*.yaml")
	for _, file := range files {
		data, err2 := os.ReadFile(file)
		some, err3 := reconciletest.ReadCRDs(data)
		err, all = errors.Join(err, err2, err3), append(all, some...)
	}
	if err != nil {
		panic(err)
	}
	return all
})

func run(ctx context.Context, cfg *rest.Config, start start) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	flags := operator.DefaultConfig("10m", "50Mi")
	flags.ReloaderConfig.Image = operator.DefaultPrometheusConfigReloaderImage
	flags.AlertmanagerDefaultBaseImage = operator.DefaultAlertmanagerBaseImage
	flags.PrometheusDefaultBaseImage = operator.DefaultPrometheusBaseImage
	flags.ThanosDefaultBaseImage = operator.DefaultThanosBaseImage
	flags.LocalHost = "localhost"
	flags.EventRecorderFactory = operator.NewEventRecorderFactory(true)
	if flags.KubernetesVersion, err = semver.ParseTolerant(version.String()); err != nil {
		return fmt.Errorf("version %s: %w", version, err)
	}
	if err := flags.Namespaces.Finalize(); err != nil {
		return err
	}
	run, err := start(ctx, cfg, flags, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	return run(ctx)
}

func servers(ctx context.Context, cfg *rest.Config, flags operator.Config, logger *slog.Logger,
	metrics prometheus.Registerer) (func(context.Context) error, error) {
	o, err := prometheusserver.New(ctx, cfg, flags, logger, metrics, prometheusserver.WithStorageClassValidation(),
		prometheusserver.WithScrapeConfig(), prometheusserver.WithEndpointSlice())
	if err != nil {
		return nil, err
	}
	return o.Run, nil
}

func agents(ctx context.Context, cfg *rest.Config, flags operator.Config, logger *slog.Logger,
	metrics prometheus.Registerer) (func(context.Context) error, error) {
	o, err := prometheusagent.New(ctx, cfg, flags, logger, metrics, prometheusagent.WithStorageClassValidation(),
		prometheusagent.WithScrapeConfig(), prometheusagent.WithEndpointSlice())
	if err != nil {
		return nil, err
	}
	return o.Run, nil
}

func alertmanagers(ctx context.Context, cfg *rest.Config, flags operator.Config, logger *slog.Logger,
	metrics prometheus.Registerer) (func(context.Context) error, error) {
	o, err := alertmanager.New(ctx, cfg, flags, logger, metrics, alertmanager.WithStorageClassValidation())
	if err != nil {
		return nil, err
	}
	return o.Run, nil
}

func rulers(ctx context.Context, cfg *rest.Config, flags operator.Config, logger *slog.Logger,
	metrics prometheus.Registerer) (func(context.Context) error, error) {
	o, err := thanos.New(ctx, cfg, flags, logger, metrics, thanos.WithStorageClassValidation())
	if err != nil {
		return nil, err
	}
	return o.Run, nil
}

// kubelets is run with --kubelet-service=kube-system/kubelet.
func kubelets(_ context.Context, cfg *rest.Config, flags operator.Config, logger *slog.Logger,
	metrics prometheus.Registerer) (func(context.Context) error, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c, err := kubelet.New(logger, client, metrics, "kubelet", "kube-system", "", flags.Annotations, flags.Labels,
		kubelet.WithNodeAddressPriority("internal"), kubelet.WithSyncPeriod(3*time.Minute), kubelet.WithEndpoints())
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}
