package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// TestNode: a virtual node has the capacity of what is behind it. It is deleted, and joins again; a user labels and
// cordons it, and it grows. Nothing is switched off; no schedule begins after a minute. The heartbeats are masked: each
// minute has one, which is in the node and in the annotation with its last status. So is the one with its UID.
func TestNode(t *testing.T) {
	of := func(cpus int) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: default}
data: {cpu: "%d"}
---
`, capacityOf, cpus)
	}
	const cordoned = `
apiVersion: v1
kind: Node
metadata: {name: ` + name + `, labels: {team: blue}}
spec: {unschedulable: true}
`
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{Kinds: builtin.Kinds(),
			Namespaces: []string{"default", corev1.NamespaceNodeLease}},
		Limit: time.Minute,
		Mask:  withoutHeartbeats,
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(of(4))[0], reconciletest.Delete("nodes", "", name),
			reconciletest.ApplyYAML(of(8) + cordoned)[0]},
		Settled: func(s *reconciletest.Server) error {
			n, err := there[*corev1.Node](s, "nodes", "", name)
			if err != nil {
				return err
			}
			ready := corev1.ConditionUnknown
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					ready = c.Status
				}
			}
			return errors.Join(want("processors", n.Status.Capacity.Cpu().Value(), 8), want("ready", ready, "True"),
				want("its type", n.Labels["type"], "virtual-kubelet"), want("its team", n.Labels["team"], "blue"),
				want("cordoned", n.Spec.Unschedulable, true))
		},
	})
}

// withoutHeartbeats removes the times at which the node was seen, and what was applied last.
func withoutHeartbeats(o *unstructured.Unstructured) {
	if o.GetKind() != "Node" {
		return
	}
	annotations := o.GetAnnotations()
	delete(annotations, "virtual-kubelet.io/last-applied-node-status")
	delete(annotations, "virtual-kubelet.io/last-applied-object-meta") // it has the node's UID
	o.SetAnnotations(annotations)
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok {
			delete(fields, "lastHeartbeatTime")
		}
	}
	if len(conditions) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
	}
}
