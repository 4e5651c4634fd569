package check

import (
	"context"
	"errors"
	"fmt"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/openshift/machine-api-operator/pkg/controller/machine"
	"github.com/openshift/machine-api-operator/pkg/controller/machineset"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const (
	allMachines = "machines.machine.openshift.io"
	allSets     = "machinesets.machine.openshift.io"
)

// one writes a machine of some size.
func one(name, size string) string {
	return fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: %s, namespace: default, labels: {machine.openshift.io/cluster-api-cluster: test}}
spec: {providerSpec: {value: {size: %s}}}
---
`, name, size)
}

// set writes a MachineSet.
func set(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: %s, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s, machine.openshift.io/cluster-api-cluster: test}}
    spec: {providerSpec: {value: {size: small}}}
---
`, name, replicas, name, name)
}

func TestMachineSet(t *testing.T) {
	check(t, func(mgr ctrlmanager.Manager, o ctrlmanager.Options) error {
		return machineset.Add(mgr, o, gates)
	}, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{hosts(false)},
		Steps: append(reconciletest.ApplyYAML(set("web", 3)+set("old", 1), set("web", 1), set("web", 2)),
			reconciletest.Delete(allSets, "default", "old")),
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
	}, reconciletest.Scenario{
		Outside: outside(nil),
		Beside:  []func(context.Context, *rest.Config) error{hosts(true)},
		Steps: append(reconciletest.ApplyYAML(one("a", "small")+one("old", "small"),
			one("a", "large")+one("b", "small")), reconciletest.Delete(allMachines, "default", "old")),
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
