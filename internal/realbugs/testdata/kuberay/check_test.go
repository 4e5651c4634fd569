package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// object is one of Ray.
func object(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: ray.io/v1\nkind: %s\nmetadata: {name: %s, namespace: default}\nspec: {%s}\n---\n",
		kind, name, spec)
}

// cluster is the spec of a Ray cluster with a head and some workers.
func cluster(image string, workers int) string {
	return fmt.Sprintf(`rayVersion: 2.46.0,
    headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: ray-head, image: %s}]}}},
    workerGroupSpecs: [{groupName: small, replicas: %d, minReplicas: 0, maxReplicas: 5, rayStartParams: {},
      template: {spec: {containers: [{name: ray-worker, image: %s}]}}}]`, image, workers, image)
}

// pods counts those of a cluster that have not ended, by their types.
func pods(s *reconciletest.Server, cluster string) map[string]int {
	of := map[string]int{}
	for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if p.Labels[utils.RayClusterLabelKey] == cluster && p.DeletionTimestamp == nil {
			of[p.Labels[utils.RayNodeTypeLabelKey]]++
		}
	}
	return of
}

// clustersOf returns the Ray clusters of a job or a service.
func clustersOf(s *reconciletest.Server, name string) (of []*rayv1.RayCluster) {
	for _, c := range reconciletest.List[*rayv1.RayCluster](s, "rayclusters", "default") {
		if c.Labels[utils.RayOriginatedFromCRNameLabelKey] == name {
			of = append(of, c)
		}
	}
	return of
}

// TestRayCluster: a cluster gets more workers, is suspended, and comes back with fewer.
func TestRayCluster(t *testing.T) {
	of := func(name string, workers int, suspend bool) string {
		return object("RayCluster", name, fmt.Sprintf("suspend: %t, %s", suspend, cluster("ray", workers)))
	}
	check(t, clusters, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", 1, false)+of("old", 1, false), of("web", 3, false),
			of("web", 3, true), of("web", 2, false)), reconciletest.Delete("rayclusters", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*rayv1.RayCluster](s, "rayclusters", "default", "web")
			if err != nil {
				return err
			}
			return errors.Join(want("state", c.Status.State, rayv1.Ready),
				want("ready workers", c.Status.ReadyWorkerReplicas, 2),
				want("pods of web", pods(s, "web"), map[string]int{"head": 1, "worker": 2}),
				want("pods of old", pods(s, "old"), map[string]int{}))
		},
	})
}

// TestRayJob: KubeRay submits jobs by HTTP. One is done, one waits until it is not suspended any more, and one runs
// until it is deleted. The clusters of those that are done go.
func TestRayJob(t *testing.T) {
	of := func(name, entrypoint string, suspend bool) string {
		return object("RayJob", name, fmt.Sprintf(`submissionMode: HTTPMode, jobId: %s-1, entrypoint: %s, suspend: %t,
  shutdownAfterJobFinishes: true, ttlSecondsAfterFinished: 10, rayClusterSpec: {%s}`, name, entrypoint, suspend,
			cluster("ray", 1)))
	}
	const train = "python train.py"
	check(t, jobs, reconciletest.Scenario{
		Beside:  []func(context.Context, *rest.Config) error{operator(clusters)},
		Outside: outside(),
		Steps: append(reconciletest.ApplyYAML(of("net", train, false)+of("old", endless, false),
			of("late", train, true), of("late", train, false)), reconciletest.Delete("rayjobs", "default", "old"),
			reconciletest.Wait(time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*rayv1.RayJob](s, "rayjobs", "default", "old"),
				want("clusters of old", len(clustersOf(s, "old")), 0)}
			for _, name := range []string{"net", "late"} {
				j, err := there[*rayv1.RayJob](s, "rayjobs", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("deployment of "+name, j.Status.JobDeploymentStatus,
					rayv1.JobDeploymentStatusComplete), want("status of "+name, j.Status.JobStatus,
					rayv1.JobStatusSucceeded), want("clusters of "+name, len(clustersOf(s, name)), 0))
			}
			return errors.Join(errs...)
		},
	})
}

// TestRayService: a service gets another application, and then another image, for which it has another cluster.
func TestRayService(t *testing.T) {
	of := func(name, app, image string) string {
		return object("RayService", name, fmt.Sprintf(
			"serveConfigV2: '{\"applications\": [{\"name\": \"app\", \"import_path\": %q}]}', rayClusterConfig: {%s}",
			app, cluster(image, 1)))
	}
	check(t, services, reconciletest.Scenario{
		Beside:  []func(context.Context, *rest.Config) error{operator(clusters)},
		Outside: outside(),
		Steps: append(reconciletest.ApplyYAML(of("web", "one.app", "one")+of("old", "one.app", "one"),
			of("web", "two.app", "one"), of("web", "two.app", "two")), reconciletest.Wait(2*time.Minute),
			reconciletest.Delete("rayservices", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*rayv1.RayService](s, "rayservices", "default", "web")
			if err != nil {
				return err
			}
			of := clustersOf(s, "web")
			if len(of) != 1 {
				return fmt.Errorf("there are %d clusters of web", len(of))
			}
			return errors.Join(want("status", r.Status.ServiceStatus, rayv1.Running),
				want("active cluster", r.Status.ActiveServiceStatus.RayClusterName, of[0].Name),
				want("image", of[0].Spec.HeadGroupSpec.Template.Spec.Containers[0].Image, "two"),
				want("clusters of old", len(clustersOf(s, "old")), 0))
		},
	})
}
