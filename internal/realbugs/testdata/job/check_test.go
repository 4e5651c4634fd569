package check

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// run is what kube-controller-manager starts for Jobs.
func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := newController(ctx, client, factory)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	var wg sync.WaitGroup
	wg.Go(func() { controller.Run(ctx, 5) })
	wg.Wait()
	factory.Shutdown()
	return nil
}

const work = `
apiVersion: batch/v1
kind: Job
metadata: {name: work, namespace: default}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {labels: {app: work}}
    spec: {restartPolicy: Never, containers: [{name: c, image: c}]}
`

// failPod lets one of the pods fail.
func failPod(ctx context.Context, cfg *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default")
	pods, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.Phase != corev1.PodFailed && pod.DeletionTimestamp == nil {
			pod.Status.Phase, pod.Status.Conditions = corev1.PodFailed, nil
			_, err := client.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			return err
		}
	}
	return errors.New("there is no pod that could fail")
}

func TestJob(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		World:  &reconciletest.World{Except: []string{"jobs"}},
		Steps: append(reconciletest.ApplyYAML(work),
			reconciletest.StepFunc("a pod fails", failPod)),
	})
}
