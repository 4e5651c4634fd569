package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	frrk8sv1beta1 "github.com/metallb/frr-k8s/api/v1beta1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const (
	states   = "frrnodestates"
	reported = "bgpsessionstates"
)

// TestNodeStateCleaner: a node that routes no more has no state, and one that begins to route has one.
func TestNodeStateCleaner(t *testing.T) {
	node := func(name, routes string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {routes: "%s"}}
---
`, name, routes)
	}
	const set = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: frr-k8s, namespace: frr-k8s-system}
spec:
  selector: {matchLabels: {app.kubernetes.io/component: frr-k8s}}
  template:
    metadata: {labels: {app.kubernetes.io/component: frr-k8s}}
    spec:
      nodeSelector: {routes: "true"}
      containers: [{name: controller, image: "quay.io/metallb/frr-k8s:v0.0.21"}]
---
`
	check(t, cleaner, reconciletest.Scenario{
		World:  &reconciletest.World{},
		Beside: []func(context.Context, *rest.Config) error{daemons},
		Steps: reconciletest.ApplyYAML(node("first", "true")+node("second", "true")+node("third", "false")+set,
			node("second", "false"), node("third", "true")),
		Settled: func(s *reconciletest.Server) error {
			_, first := there[*frrk8sv1beta1.FRRNodeState](s, states, "", "first")
			_, third := there[*frrk8sv1beta1.FRRNodeState](s, states, "", "third")
			return errors.Join(first, third, gone[*frrk8sv1beta1.FRRNodeState](s, states, "", "second"))
		},
	})
}

// TestBGPSessionState: there is one object for each session of the node, with its state. That of another node stays.
func TestBGPSessionState(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte(`
apiVersion: v1
kind: Pod
metadata: {name: frr-k8s-first, namespace: frr-k8s-system, labels: {app.kubernetes.io/component: frr-k8s}}
spec:
  nodeName: first
  containers: [{name: controller, image: "quay.io/metallb/frr-k8s:v0.0.21"}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	frr := func(data string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: sessions, namespace: frr-k8s-system}
data: {%s}
---
`, data)
	}
	const nodes = `
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRNodeState
metadata: {name: first}
---
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRNodeState
metadata: {name: second}
---
apiVersion: frrk8s.metallb.io/v1beta1
kind: BGPSessionState
metadata:
  name: second-abcde
  namespace: frr-k8s-system
  labels: {frrk8s.metallb.io/node: second, frrk8s.metallb.io/peer: 10.0.0.1, frrk8s.metallb.io/vrf: ""}
---
`
	wait := reconciletest.Wait(5 * time.Minute)
	check(t, reporter, reconciletest.Scenario{
		Server: reconciletest.Options{Manifests: []string{pod}},
		Steps: []reconciletest.Step{
			reconciletest.ApplyYAML(frr("10.0.0.1: default Connect N/A, 10.0.0.2: red Established up") + nodes)[0],
			wait,
			reconciletest.ApplyYAML(frr("10.0.0.1: default Established up, 10.0.0.2: red Established down, " +
				"10.0.0.3: red Active N/A"))[0], wait,
			reconciletest.ApplyYAML(frr("10.0.0.1: default Established up, 10.0.0.3: red Established N/A"))[0], wait,
		},
		Settled: func(s *reconciletest.Server) error {
			_, other := there[*frrk8sv1beta1.BGPSessionState](s, reported, system, "second-abcde")
			is := map[string]string{}
			for _, o := range reconciletest.List[*frrk8sv1beta1.BGPSessionState](s, reported, system) {
				if o.Labels["frrk8s.metallb.io/node"] == here {
					is[o.Status.Peer] += fmt.Sprintf("%s %s %s;", o.Status.VRF, o.Status.BGPStatus, o.Status.BFDStatus)
				}
			}
			return errors.Join(other, want("sessions", is,
				map[string]string{"10.0.0.1": " Established up;", "10.0.0.3": "red Established N/A;"}))
		},
	})
}
