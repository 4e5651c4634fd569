package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/api/whereabouts.cni.cncf.io/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestNodeSlices: which of the nodes gets which slice is not compared, since it depends on which were given before, and
// on the order of nodes, which the controller sorts in its own tests only.
func TestNodeSlices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "whereabouts.conf")
	if err := os.WriteFile(file, []byte(`{"datastore": "kubernetes", "kubernetes": {"kubeconfig": "/none"}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	network := func(name, addresses string) string {
		return fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %s, namespace: default}
spec:
  config: '{"cniVersion": "0.3.0", "name": "%s", "type": "macvlan", "ipam": {"type": "whereabouts",
    "configuration_path": "%s", "range": "%s", "node_slice_size": "/24"}}'
---
`, name, name, file, addresses)
	}
	node := func(name string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n---\n", name)
	}
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(node("first")+node("second")+network("blue", "10.0.0.0/22")+
			network("old", "10.8.0.0/22"), node("third"), network("blue", "10.4.0.0/22")),
			reconciletest.Delete("nodes", "", "first"),
			reconciletest.Delete("network-attachment-definitions", "default", "old")),
		Mask: func(o *unstructured.Unstructured) {
			// One that is no list is not there.
			allocations, there, _ := unstructured.NestedSlice(o.Object, "status", "allocations")
			if o.GetKind() != "NodeSlicePool" || !there {
				return
			}
			for _, a := range allocations {
				delete(a.(map[string]any), "nodeName")
			}
			_ = unstructured.SetNestedSlice(o.Object, allocations, "status", "allocations") // it is a list
		},
		Settled: func(s *reconciletest.Server) error {
			pools := reconciletest.List[*v1alpha1.NodeSlicePool](s, "nodeslicepools", "default")
			if len(pools) != 1 || pools[0].Name != "blue" {
				return fmt.Errorf("%d pools, want blue", len(pools))
			}
			var nodes []string
			for _, a := range pools[0].Status.Allocations {
				if a.NodeName != "" {
					nodes = append(nodes, a.NodeName)
				}
			}
			slices.Sort(nodes)
			if !slices.Equal(nodes, []string{"second", "third"}) || pools[0].Spec.Range != "10.4.0.0/22" {
				return fmt.Errorf("%s is given to %q, want 10.4.0.0/22 for second and third", pools[0].Spec.Range,
					nodes)
			}
			return nil
		},
	})
}
