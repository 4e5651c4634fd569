package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/openshift/machine-api-operator/pkg/controller/machine"
	"github.com/openshift/machine-api-operator/pkg/controller/machinehealthcheck"
	"github.com/openshift/machine-api-operator/pkg/controller/machineset"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const (
	allMachines = "machines.machine.openshift.io"
	allSets     = "machinesets.machine.openshift.io"
	allChecks   = "machinehealthchecks.machine.openshift.io"
)

// one writes a machine of some size.
func one(name, app, size string) string {
	return fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: %s, namespace: default, labels: {app: %s, machine.openshift.io/cluster-api-cluster: test}}
spec: {providerSpec: {value: {size: %s}}}
---
`, name, app, size)
}

// set writes a MachineSet.
func set(name string, replicas int, size string) string {
	return fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: %s, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s, machine.openshift.io/cluster-api-cluster: test}}
    spec: {providerSpec: {value: {size: %s}}}
---
`, name, replicas, name, name, size)
}

// resync is that of the mains of machines and of machine sets.
const resync = 10 * time.Minute

func TestMachineSet(t *testing.T) {
	check(t, func(mgr ctrlmanager.Manager, o ctrlmanager.Options) error {
		return machineset.Add(mgr, o, gates)
	}, resync, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{hosts(false)},
		Steps: append(reconciletest.ApplyYAML(set("web", 3, "small")+set("old", 1, "small"), set("web", 1, "small"),
			set("web", 2, "small")), reconciletest.Delete(allSets, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			m, err := there[*machinev1.MachineSet](s, allSets, "default", "web")
			if err != nil {
				return err
			}
			all := reconciletest.List[*machinev1.Machine](s, allMachines, "default")
			return errors.Join(want("machines", len(all), 2), want("replicas", m.Status.Replicas, 2),
				gone[*machinev1.MachineSet](s, allSets, "default", "old"))
		},
	})
}

func TestMachine(t *testing.T) {
	check(t, func(mgr ctrlmanager.Manager, _ ctrlmanager.Options) error {
		return machine.AddWithActuator(mgr, actuator{mgr.GetClient()}, gates)
	}, resync, reconciletest.Scenario{
		Outside: outside(nil),
		Beside:  []func(context.Context, *rest.Config) error{hosts(true)},
		Steps: append(reconciletest.ApplyYAML(one("a", "web", "small")+one("old", "web", "small"),
			one("a", "web", "large")+one("b", "web", "small")), reconciletest.Delete(allMachines, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"a", "b"} {
				m, err := there[*machinev1.Machine](s, allMachines, "default", name)
				if err != nil {
					return err
				}
				if m.Status.Phase == nil || *m.Status.Phase != machinev1.PhaseRunning {
					return fmt.Errorf("machine %s is not running", name)
				}
			}
			return errors.Join(gone[*machinev1.Machine](s, allMachines, "default", "old"),
				gone[*corev1.Node](s, "nodes", "", "old"))
		},
	})
}

func TestMachineHealthCheck(t *testing.T) {
	const health = `
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: health, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  maxUnhealthy: 60%
  unhealthyConditions: [{type: Ready, status: "False", timeout: 300s}]
`
	check(t, func(mgr ctrlmanager.Manager, o ctrlmanager.Options) error {
		return machinehealthcheck.Add(mgr, o)
	}, 0, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{hosts(false)},
		Steps: append(reconciletest.ApplyYAML(set("web", 2, "small")+one("a", "web", "small")+one("b", "web", "small")),
			reconciletest.StepFunc("web owns a and b", func(ctx context.Context, cfg *rest.Config) error {
				return owns(ctx, cfg, "web", "a", "b")
			}), reconciletest.ApplyYAML(health)[0],
			reconciletest.StepFunc("node b is not ready", func(ctx context.Context, cfg *rest.Config) error {
				return fails(ctx, cfg, "b")
			}), reconciletest.Wait(10*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			h, err := there[*machinev1.MachineHealthCheck](s, allChecks, "default", "health")
			if err != nil {
				return err
			}
			_, err = there[*machinev1.Machine](s, allMachines, "default", "a")
			if err != nil || h.Status.CurrentHealthy == nil {
				return fmt.Errorf("a: %w, healthy: %v", err, h.Status.CurrentHealthy)
			}
			return errors.Join(gone[*machinev1.Machine](s, allMachines, "default", "b"),
				want("healthy", *h.Status.CurrentHealthy, 1))
		},
	})
}
