package check

import (
	"errors"
	"testing"

	"github.com/koordinator-sh/koordinator/apis/configuration"
	"github.com/koordinator-sh/koordinator/apis/extension"
	quotav1alpha1 "github.com/koordinator-sh/koordinator/apis/quota/v1alpha1"
	slov1alpha1 "github.com/koordinator-sh/koordinator/apis/slo/v1alpha1"
	schedv1alpha1 "github.com/koordinator-sh/koordinator/apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/quota-controller/profile"
	"github.com/koordinator-sh/koordinator/pkg/slo-controller/nodemetric"
	"github.com/koordinator-sh/koordinator/pkg/slo-controller/nodeslo"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestNodeSLO: each node has a NodeSLO, by the configuration for its pool or that of the cluster. A pool gets one of
// its own, a node comes to it, and another node goes.
func TestNodeSLO(t *testing.T) {
	const key, resource = configuration.ResourceThresholdConfigKey, "nodeslos.slo.koordinator.sh"
	check(t, nodeslo.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(
			configured(key, `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60}}`)+
				node("one", "web", 4)+node("two", "batch", 4)+node("old", "web", 4),
			configured(key, `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60}, `+
				`"nodeStrategies": [{"name": "batch", "nodeSelector": {"matchLabels": {"pool": "batch"}}, `+
				`"cpuSuppressThresholdPercent": 40}]}`)+node("three", "web", 4)),
			reconciletest.Delete("nodes", "", "old"), reconciletest.ApplyYAML(node("one", "batch", 4))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*slov1alpha1.NodeSLO](s, resource, "", "old")}
			for name, percent := range map[string]int64{"one": 40, "two": 40, "three": 60} {
				o, err := there[*slov1alpha1.NodeSLO](s, resource, "", name)
				if err != nil {
					return err
				}
				if by := o.Spec.ResourceUsedThresholdWithBE; by != nil && by.CPUSuppressThresholdPercent != nil {
					errs = append(errs, want("threshold of "+name, *by.CPUSuppressThresholdPercent, percent))
				} else {
					errs = append(errs, errors.New(name+" has no threshold"))
				}
			}
			return errors.Join(errs...)
		},
	})
}

// TestNodeMetric: the same for what is measured on a node.
func TestNodeMetric(t *testing.T) {
	const key, resource = configuration.ColocationConfigKey, "nodemetrics.slo.koordinator.sh"
	check(t, nodemetric.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(
			configured(key, `{"enable": true, "metricReportIntervalSeconds": 60}`)+
				node("one", "web", 4)+node("two", "batch", 4)+node("old", "web", 4),
			configured(key, `{"enable": true, "metricReportIntervalSeconds": 60, "nodeConfigs": [{"name": "batch", `+
				`"nodeSelector": {"matchLabels": {"pool": "batch"}}, "metricReportIntervalSeconds": 20}]}`)+
				node("three", "web", 4)),
			reconciletest.Delete("nodes", "", "old"), reconciletest.ApplyYAML(node("one", "batch", 4))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*slov1alpha1.NodeMetric](s, resource, "", "old")}
			for name, seconds := range map[string]int64{"one": 20, "two": 20, "three": 60} {
				o, err := there[*slov1alpha1.NodeMetric](s, resource, "", name)
				if err != nil {
					return err
				}
				if by := o.Spec.CollectPolicy; by != nil && by.ReportIntervalSeconds != nil {
					errs = append(errs, want("interval of "+name, *by.ReportIntervalSeconds, seconds))
				} else {
					errs = append(errs, errors.New(name+" has no interval"))
				}
			}
			return errors.Join(errs...)
		},
	})
}

// TestQuotaProfile: a profile has a quota with what its nodes have. Nodes come and go, and a second profile has another
// pool.
func TestQuotaProfile(t *testing.T) {
	of := func(pool string) string {
		return `
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: ` + pool + `, namespace: default}
spec:
  quotaName: ` + pool + `-root
  quotaLabels: {team: ` + pool + `}
  nodeSelector: {matchLabels: {pool: ` + pool + `}}
---
`
	}
	const quotas = "elasticquotas.scheduling.sigs.k8s.io"
	check(t, profile.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(node("one", "web", 4)+node("two", "batch", 8)+of("web"),
			node("three", "web", 16)+of("batch"), node("four", "batch", 32)),
			reconciletest.Delete("nodes", "", "two")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for pool, processors := range map[string]int64{"web": 20, "batch": 32} {
				p, err := there[*quotav1alpha1.ElasticQuotaProfile](s, "elasticquotaprofiles", "default", pool)
				if err != nil {
					return err
				}
				q, err := there[*schedv1alpha1.ElasticQuota](s, quotas, "default", pool+"-root")
				if err != nil {
					return err
				}
				errs = append(errs, want("processors of "+pool, q.Spec.Min.Cpu().Value(), processors),
					want("tree of "+pool, q.Labels[extension.LabelQuotaTreeID], p.Labels[extension.LabelQuotaTreeID]),
					want("team of "+pool, q.Labels["team"], pool))
			}
			return errors.Join(errs...)
		},
	})
}
