package processnode

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// watcher is the part of a pool that lists and watches pods, and hands them to their workers.
type watcher struct{ *Pool }

// run follows the pods of the cluster until the pool ends.
func (w watcher) run() {
	for {
		w.complain(w.ctx, w.follow(w.ctx))
		if !lifecycle.Sleep(w.ctx, retryAfter) {
			return
		}
	}
}

// follow returns when the watch has ended.
func (w watcher) follow(ctx context.Context) error {
	client := w.client.CoreV1().Pods(metav1.NamespaceAll)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	w.replace(list.Items)
	events, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watch pods: %w", apierrors.FromObject(event.Object))
		}
		w.mu.Lock()
		if event.Type == watch.Deleted {
			w.forget(pod)
		} else {
			w.learn(pod)
		}
		w.mu.Unlock()
		w.kick()
	}
	return nil
}

func (w watcher) replace(items []corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[types.NamespacedName]bool{}
	for i := range items {
		listed[keyOf(&items[i])] = true
		w.learn(&items[i])
	}
	for key, pod := range w.pods {
		if !listed[key] {
			w.forget(pod)
		}
	}
	w.kick()
}

// learn takes in the present state of a pod. The caller holds mu.
func (p *Pool) learn(pod *corev1.Pod) {
	if old := p.pods[keyOf(pod)]; old != nil && old.UID != pod.UID {
		p.forget(old)
	}
	p.pods[keyOf(pod)] = pod
	p.assign(pod)
}

// forget takes in that a pod is gone. The caller holds mu.
func (p *Pool) forget(pod *corev1.Pod) {
	delete(p.pods, keyOf(pod))
	if w := p.workers[pod.UID]; w != nil {
		w.tell(nil)
	} else {
		p.addresses.release(pod)
	}
}

// assign hands a pod to its worker, if its node is one of ours and up. The caller holds mu.
func (p *Pool) assign(pod *corev1.Pod) {
	w := p.workers[pod.UID]
	for _, n := range p.nodes {
		if w == nil && n.up && n.Name == pod.Spec.NodeName {
			w = newPodWorker(n.ctx, n, pod)
			p.workers[pod.UID] = w
			n.group.Go("pod "+keyOf(pod).String(), w.run)
		}
	}
	if w != nil {
		w.tell(pod)
	}
}

// kick has the scheduler look at the pods.
func (p *Pool) kick() {
	select {
	case p.schedule <- struct{}{}:
	default:
	}
}

// worker returns the worker of a pod by name.
func (p *Pool) worker(pod types.NamespacedName) *podWorker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.pods[pod]; known != nil {
		return p.workers[known.UID]
	}
	return nil
}

// patchPod changes the status of this very pod: its UID goes along as a precondition.
func (p *Pool) patchPod(ctx context.Context, pod *corev1.Pod, status any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod is gone: the watch is about to deliver that
	}
	return err
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
