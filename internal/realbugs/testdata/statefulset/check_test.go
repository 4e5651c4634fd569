package check

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// run is what kube-controller-manager starts for StatefulSets.
func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := newController(ctx, factory.Core().V1().Pods(),
		factory.Apps().V1().StatefulSets(), factory.Core().V1().PersistentVolumeClaims(),
		factory.Apps().V1().ControllerRevisions(), client)
	factory.Start(ctx.Done())
	var wg sync.WaitGroup
	wg.Go(func() { controller.Run(ctx, 5) })
	wg.Wait()
	factory.Shutdown()
	return nil
}

const set = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec:
  replicas: 2
  serviceName: db
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: %q}]}
`

func TestStatefulSet(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		World: &reconciletest.World{
			Except: []string{"statefulsets"},
			Fails: func(o reconciletest.Object) bool {
				pod, ok := o.(*corev1.Pod)
				return ok && pod.Spec.Containers[0].Image == "broken"
			},
		},
		Steps: reconciletest.ApplyYAML(fmt.Sprintf(set, "broken"), fmt.Sprintf(set, "right")),
		Settled: func(s *reconciletest.Server) error {
			for _, pod := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
				if image := pod.Spec.Containers[0].Image; image != "right" {
					return fmt.Errorf("the pod %s has the image %s", pod.Name, image)
				}
			}
			return nil
		},
	})
}
