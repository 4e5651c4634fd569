package check

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// set is a StatefulSet, whose pods come and go at once, and are of a group that has the name of the set.
func set(name, namespace string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  serviceName: %[1]s
  replicas: %[3]d
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s, scheduling.x-k8s.io/pod-group: %[1]s}}
    spec:
      containers: [{name: work, image: example.com/work:1, resources: {requests: {cpu: 500m, memory: 1Gi}}}]
---
`, name, namespace, replicas)
}

// podGroupResource has its group, since Kubernetes has a resource of that name as well.
const podGroupResource = "podgroups.scheduling.x-k8s.io"

// TestPodGroup: a group runs when it has enough pods. One gets more of them, another one is too large until it asks for
// less, and a third one goes with its pods.
func TestPodGroup(t *testing.T) {
	group := func(name string, members int) string {
		return fmt.Sprintf(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: %s, namespace: default}
spec: {minMember: %d, scheduleTimeoutSeconds: 10}
---
`, name, members)
	}
	check(t, podGroups, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(group("workers", 2)+set("workers", "default", 3)+
			group("large", 4)+set("large", "default", 2)+group("old", 1)+set("old", "default", 1),
			set("workers", "default", 4), group("large", 2)),
			reconciletest.Delete(podGroupResource, "default", "old"),
			reconciletest.Delete("statefulsets", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*schedulingv1alpha1.PodGroup](s, podGroupResource, "default", "old")}
			for name, running := range map[string]int32{"workers": 4, "large": 2} {
				g, err := there[*schedulingv1alpha1.PodGroup](s, podGroupResource, "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("phase of "+name, g.Status.Phase, schedulingv1alpha1.PodGroupRunning),
					want("pods of "+name+" that run", g.Status.Running, running),
					want("who has "+name, g.Status.OccupiedBy, "default/"+name))
			}
			return errors.Join(errs...)
		},
	})
}

// TestElasticQuota: a quota counts what the pods of its namespace ask for. One gets more pods, and then fewer; the
// other one counts more, and is one with another name later.
func TestElasticQuota(t *testing.T) {
	quota := func(name, namespace, max string) string {
		return fmt.Sprintf(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: %s, namespace: %s}
spec: {min: {cpu: 1}, max: {%s}}
---
`, name, namespace, max)
	}
	used := func(s *reconciletest.Server, namespace, name, cpu, memory string) error {
		q, err := there[*schedulingv1alpha1.ElasticQuota](s, "elasticquotas", namespace, name)
		if err != nil {
			return err
		}
		is := func(of corev1.ResourceName, should string) error {
			amount := q.Status.Used[of]
			return want(fmt.Sprintf("%s of %s", of, name), amount.Cmp(resource.MustParse(should)), 0)
		}
		return errors.Join(is(corev1.ResourceCPU, cpu), is(corev1.ResourceMemory, memory))
	}
	check(t, elasticQuotas, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(quota("quota", "default", "cpu: 10, memory: 20Gi")+
			set("workers", "default", 2)+quota("old", "other", "cpu: 10")+set("others", "other", 1),
			set("workers", "default", 4), set("workers", "default", 3)+quota("old", "other", "cpu: 20, memory: 20Gi")),
			reconciletest.Delete("elasticquotas", "other", "old"),
			reconciletest.ApplyYAML(quota("new", "other", "cpu: 10, memory: 20Gi"))[0]),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(used(s, "default", "quota", "1500m", "3Gi"), used(s, "other", "new", "500m", "1Gi"),
				gone[*schedulingv1alpha1.ElasticQuota](s, "elasticquotas", "other", "old"))
		},
	})
}
