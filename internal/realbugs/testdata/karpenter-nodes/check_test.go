package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const (
	pools    = "nodepools.karpenter.sh"
	claims   = "nodeclaims.karpenter.sh"
	overlaid = "nodeoverlays.karpenter.sh"
	classes  = "kwoknodeclasses.karpenter.kwok.sh"
	// label says of which class something is.
	label = "karpenter.kwok.sh/kwoknodeclass"
)

// poolOf is a NodePool whose nodes have a label team, and are of a class.
func poolOf(name, class, team string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec:
  template:
    metadata: {labels: {team: %s}}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: %s}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}
---
`, name, team, class)
}

// classOf is the class default, with a delay of registration.
func classOf(delay string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
spec: {nodeRegistrationDelay: %s}
---
`, delay)
}

// claimOf is a NodeClaim of the pool one, with annotations.
func claimOf(name, annotations string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: %s, labels: {karpenter.sh/nodepool: one}, annotations: {%s}}
spec:
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
  requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
  expireAfter: Never
---
`, name, annotations)
}

// nodeOf is the node of the instance of a NodeClaim.
func nodeOf(name, team string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {team: %s}}
spec: {providerID: %q}
---
`, name, team, providerID(name))
}

// TestNodeClaimHydration: NodeClaims have a label with their class.
func TestNodeClaimHydration(t *testing.T) {
	check(t, claimHydration, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(claimOf("one", "")+claimOf("old", ""), claimOf("one", "team: blue")+
			claimOf("two", "")), reconciletest.Delete(claims, "", "old")),
		Settled: func(s *reconciletest.Server) error {
			one, err := there[*v1.NodeClaim](s, claims, "", "one")
			two, err2 := there[*v1.NodeClaim](s, claims, "", "two")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(gone[*v1.NodeClaim](s, claims, "", "old"),
				want("class of one", one.Labels[label], "default"), want("class of two", two.Labels[label], "default"))
		},
	})
}

// TestNodeHydration: nodes of NodeClaims have a label with the class of theirs, and others have not.
func TestNodeHydration(t *testing.T) {
	const other = `
apiVersion: v1
kind: Node
metadata: {name: other}
spec: {providerID: "metal://other"}
---
`
	check(t, nodeHydration, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{registers},
		Steps: reconciletest.ApplyYAML(claimOf("one", "")+nodeOf("one", "red")+claimOf("two", "")+other,
			nodeOf("two", "red"), nodeOf("one", "blue")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for name, class := range map[string]string{"one": "default", "two": "default", "other": ""} {
				n, err := there[*corev1.Node](s, "nodes", "", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("class of "+name, n.Labels[label], class))
			}
			return errors.Join(errs...)
		},
	})
}

// TestRegistrationHealth: nobody knows whether nodes of a pool register until one has, nor when the pool or its class
// has changed since.
func TestRegistrationHealth(t *testing.T) {
	check(t, registrationHealth, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(poolOf("one", "default", "red")+poolOf("two", "other", "red"), classOf("1s"),
			poolOf("one", "default", "blue"), classOf("5s")),
		Settled: func(s *reconciletest.Server) error {
			pool, err := there[*v1.NodePool](s, pools, "", "one")
			class, err2 := there[*kwokv1alpha1.KWOKNodeClass](s, classes, "", "default")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			healthy := pool.StatusConditions().Get(v1.ConditionTypeNodeRegistrationHealthy)
			if healthy == nil {
				return errors.New("it is not said whether nodes register")
			}
			return errors.Join(want("nodes register", healthy.Status, "Unknown"),
				want("generation of the pool", healthy.ObservedGeneration, pool.Generation),
				want("generation of the class", pool.Status.NodeClassObservedGeneration, class.Generation))
		},
	})
}

// TestGarbageCollection: NodeClaims go whose instances have gone.
func TestGarbageCollection(t *testing.T) {
	check(t, collection, reconciletest.Scenario{
		Outside: outside(map[string]string{"/instances/kept": "{}", "/instances/lost": "{}", "/instances/late": "{}"}),
		Beside:  []func(context.Context, *rest.Config) error{registers},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(claimOf("kept", "") + claimOf("lost", ""))[0],
			remove("/instances/lost"), reconciletest.ApplyYAML(claimOf("late", ""))[0],
			reconciletest.Wait(5 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*v1.NodeClaim](s, claims, "", "kept")
			_, err2 := there[*v1.NodeClaim](s, claims, "", "late")
			return errors.Join(err, err2, gone[*v1.NodeClaim](s, claims, "", "lost"))
		},
	})
}

// TestCounter: a pool says how many nodes it has, and what they have. One is asked for later, another one goes.
func TestCounter(t *testing.T) {
	check(t, counter, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{registers},
		Steps: append(reconciletest.ApplyYAML(classOf("1s")+poolOf("one", "default", "red")+claimOf("kept", "")+
			claimOf("old", ""), claimOf("late", "")), reconciletest.Delete(claims, "", "old")),
		Settled: func(s *reconciletest.Server) error {
			pool, err := there[*v1.NodePool](s, pools, "", "one")
			if err != nil {
				return err
			}
			if pool.Status.Nodes == nil {
				return errors.New("it is not said how many nodes there are")
			}
			return errors.Join(want("nodes", *pool.Status.Nodes, 2),
				want("processors", pool.Status.Resources.Cpu().Value(), 8))
		},
	})
}

// TestNodeOverlay: of two overlays that say different prices with the same weight one has a conflict, until they have
// different ones. A third one comes into the way of the first, and goes.
func TestNodeOverlay(t *testing.T) {
	of := func(name, price string, weight int) string {
		return fmt.Sprintf(`
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: %s}
spec: {weight: %d, price: %q, requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}
---
`, name, weight, price)
	}
	check(t, overlays, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(poolOf("one", "default", "red")+classOf("1s")+of("cheap", "0.01", 10)+
			of("double", "0.02", 10), of("cheap", "0.01", 20), of("third", "0.03", 20)),
			reconciletest.Delete(overlaid, "", "third")),
		Settled: func(s *reconciletest.Server) error {
			cheap, err := there[*v1alpha1.NodeOverlay](s, overlaid, "", "cheap")
			double, err2 := there[*v1alpha1.NodeOverlay](s, overlaid, "", "double")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			const valid = v1alpha1.ConditionTypeValidationSucceeded
			return errors.Join(gone[*v1alpha1.NodeOverlay](s, overlaid, "", "third"),
				want("cheap is valid", cheap.StatusConditions().IsTrue(valid), true),
				want("double is valid", double.StatusConditions().IsTrue(valid), true))
		},
	})
}
