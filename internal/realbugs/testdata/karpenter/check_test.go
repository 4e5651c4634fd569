package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const pools, claims = "nodepools.karpenter.sh", "nodeclaims.karpenter.sh"

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

const class = `
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
`

// claimOf is a NodeClaim of a pool, with annotations.
func claimOf(name, pool, annotations, expireAfter string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: %s, labels: {karpenter.sh/nodepool: %s}, annotations: {%s}}
spec:
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
  requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
  expireAfter: %s
---
`, name, pool, annotations, expireAfter)
}

func TestHash(t *testing.T) {
	const old = "karpenter.sh/nodepool-hash: '1', karpenter.sh/nodepool-hash-version: v1"
	check(t, hashes, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(claimOf("first", "a", old, "Never"), poolOf("a", "default", "red")+
			poolOf("b", "default", "red"), poolOf("a", "default", "blue")), reconciletest.Delete(pools, "", "b")),
		Settled: func(s *reconciletest.Server) error {
			a, err := there[*v1.NodePool](s, pools, "", "a")
			first, err2 := there[*v1.NodeClaim](s, claims, "", "first")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(want("hash", a.Annotations[v1.NodePoolHashAnnotationKey], a.Hash()),
				want("version", first.Annotations[v1.NodePoolHashVersionAnnotationKey], v1.NodePoolHashVersion))
		},
	})
}

// conditionOf is the status of a condition of a pool.
func conditionOf(s *reconciletest.Server, pool, condition string) string {
	p, ok := reconciletest.Get[*v1.NodePool](s, pools, "", pool)
	if !ok {
		return "none"
	}
	return string(p.StatusConditions().Get(condition).GetStatus())
}

func TestReadiness(t *testing.T) {
	check(t, ready, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(poolOf("a", "default", "red")+poolOf("b", "other", "red"), class,
			poolOf("c", "default", "red")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(want("a", conditionOf(s, "a", v1.ConditionTypeNodeClassReady), "True"),
				want("b", conditionOf(s, "b", v1.ConditionTypeNodeClassReady), "False"),
				want("c", conditionOf(s, "c", v1.ConditionTypeNodeClassReady), "True"))
		},
	})
}

func TestValidation(t *testing.T) {
	check(t, valid, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(poolOf("a", "default", "red")+poolOf("b", "default", "red"),
			poolOf("a", "default", "blue")), reconciletest.Delete(pools, "", "b")),
		Settled: func(s *reconciletest.Server) error {
			return want("a", conditionOf(s, "a", v1.ConditionTypeValidationSucceeded), "True")
		},
	})
}

func TestExpiration(t *testing.T) {
	check(t, expires, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(claimOf("kept", "a", "", "Never")+claimOf("short", "a", "", "5m"),
			claimOf("long", "a", "", "2h")), reconciletest.Wait(10*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*v1.NodeClaim](s, claims, "", "kept")
			_, err2 := there[*v1.NodeClaim](s, claims, "", "long")
			if _, ok := reconciletest.Get[*v1.NodeClaim](s, claims, "", "short"); ok {
				return errors.Join(err, err2, errors.New("short is still there"))
			}
			return errors.Join(err, err2)
		},
	})
}
