package main

import (
	"context"
	"log"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// label is on every object of this story. A ConfigMap that has it asks for pods. On a pod, its value is the name of the
// ConfigMap for which the pod was created.
const label = "loop"

// cluster is a namespace of a Kubernetes cluster, with one client for each kind of object.
type cluster struct {
	configMaps coreclient.ConfigMapInterface
	pods       coreclient.PodInterface
	leases     coordinationclient.LeaseInterface
}

func connect(cfg *rest.Config, namespace string) (cluster, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return cluster{}, err
	}
	core := client.CoreV1()
	return cluster{core.ConfigMaps(namespace), core.Pods(namespace), client.CoordinationV1().Leases(namespace)}, nil
}

// numberOfPods is how many pods a ConfigMap asks for.
func numberOfPods(configMap *corev1.ConfigMap) (int, error) {
	n, err := strconv.ParseUint(configMap.Data["pods"], 10, 16)
	return int(n), err
}

// createPod creates one pod for the ConfigMap of that name. The server completes the name of the pod: web-7tqxk, say.
func (c cluster) createPod(ctx context.Context, configMap string) (*corev1.Pod, error) {
	pod, err := c.pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: configMap + "-", Labels: map[string]string{label: configMap}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "pause", Image: "registry.k8s.io/pause:3.10", // a program that does nothing
		}}},
	}, metav1.CreateOptions{})
	if err == nil {
		log.Printf("created pod %s", pod.Name)
	}
	return pod, err
}

// deletePod deletes a pod. That the pod is gone already is no error.
func (c cluster) deletePod(ctx context.Context, name string) error {
	err := c.pods.Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		log.Printf("deleted pod %s", name)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// send puts v into a channel, unless ctx ends first.
func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

// sleep waits for d, or until ctx ends. It reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
