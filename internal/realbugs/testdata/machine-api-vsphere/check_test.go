// Package check runs the controller of MachineSets of OpenShift's Machine API for vSphere, as its main does. It asks no
// cloud. The controller of machines, leader election and HTTP are left out.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/openshift/machine-api-operator/pkg/controller/vsphere/machineset"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	again, period := true, 10*time.Minute
	mgr, err := manager.New(cfg, manager.Options{
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cache.Options{SyncPeriod: &period},
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if err := errors.Join(configv1.Install(mgr.GetScheme()), machinev1.Install(mgr.GetScheme())); err != nil {
		return err
	}
	if err := (&machineset.Reconciler{Client: mgr.GetClient(), Log: logr.Discard()}).SetupWithManager(mgr,
		controller.Options{}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// TestMachineSet: a MachineSet has annotations with the size of its machines, which the autoscaler reads. That of one
// cannot be read for a while, and another one goes. Nothing is switched off; no schedule begins after a minute.
func TestMachineSet(t *testing.T) {
	const resource = "machinesets.machine.openshift.io"
	set := func(name, cpus string, memory int) string {
		return fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s, machine.openshift.io/cluster-api-cluster: test}}
    spec: {providerSpec: {value: {numCPUs: %[2]s, memoryMiB: %[3]d}}}
---
`, name, cpus, memory)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default"}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(set("web", "2", 4096)+set("db", "4", 8192)+set("old", "2", 4096),
			set("web", "'two'", 4096), set("web", "8", 16384)), reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for name, cpus := range map[string]string{"web": "8", "db": "4"} {
				m, err := there[*machinev1.MachineSet](s, resource, "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("processors of "+name, m.Annotations["machine.openshift.io/vCPU"], cpus))
			}
			return errors.Join(append(errs, gone[*machinev1.MachineSet](s, resource, "default", "old"))...)
		},
	})
}
