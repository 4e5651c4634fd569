package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

const podWorkers = 16

// pods moves each pod one step at a time. The watch delivers each step that was taken, which leads to the next.
type pods struct {
	node   string
	pace   pace
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu    sync.Mutex
	known map[types.NamespacedName]*corev1.Pod // guarded by mu; the pods in it are not changed
}

func newPods(o Options, client kubernetes.Interface) *pods {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryAfter, 5*time.Second)
	return &pods{
		node:   o.Name,
		pace:   pace{startAfter: o.StartAfter, readyAfter: o.ReadyAfter, endAfter: o.EndAfter},
		client: client,
		queue:  workqueue.NewTypedRateLimitingQueue(limiter),
		known:  map[types.NamespacedName]*corev1.Pod{},
	}
}

// run returns when ctx has ended and with it the watch and all workers.
func (p *pods) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range podWorkers {
		workers.Go(func() { p.work(ctx) })
	}
	for ctx.Err() == nil {
		if err := p.watch(ctx); err != nil {
			complain(ctx, err)
		}
		sleep(ctx, retryAfter)
	}
	p.queue.ShutDown()
	workers.Wait()
}

// watch lists all pods, then follows their changes until the watch ends.
func (p *pods) watch(ctx context.Context) error {
	client := p.client.CoreV1().Pods(metav1.NamespaceAll)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	p.replace(list.Items)
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watch pods: %w", apierrors.FromObject(event.Object))
		}
		p.mu.Lock()
		if event.Type == watch.Deleted {
			delete(p.known, keyOf(pod))
		} else {
			p.known[keyOf(pod)] = pod
		}
		p.mu.Unlock()
		p.queue.Add(keyOf(pod))
	}
	return nil
}

func (p *pods) replace(items []corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
	for i := range items {
		p.known[keyOf(&items[i])] = &items[i]
		p.queue.Add(keyOf(&items[i]))
	}
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func (p *pods) work(ctx context.Context) {
	for {
		key, ended := p.queue.Get()
		if ended {
			return
		}
		again, err := p.reconcile(ctx, key)
		switch {
		case err != nil:
			complain(ctx, err)
			p.queue.AddRateLimited(key)
		default:
			p.queue.Forget(key)
			if again > 0 {
				p.queue.AddAfter(key, again)
			}
		}
		p.queue.Done(key)
	}
}

// reconcile takes the step of a pod that is due, or returns how long it has to wait for that.
func (p *pods) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	p.mu.Lock()
	pod := p.known[key]
	p.mu.Unlock()
	if pod == nil || (pod.Spec.NodeName != "" && pod.Spec.NodeName != p.node) || !p.mayRunHere(pod) {
		return 0, nil
	}
	pace, err := p.pace.of(pod)
	if err != nil { // it stays wrong until the pod changes
		complain(ctx, fmt.Errorf("pod %s: %w", key, err))
		return 0, nil
	}
	now := time.Now()
	step, wait := pace.next(pod, now)
	switch {
	case step == rest || wait == never:
		return 0, nil
	case wait > 0:
		return wait, nil
	}
	err = p.take(ctx, pod, step, pace, metav1.NewTime(now))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // the pod has changed or is gone: the watch is about to deliver that
	}
	return 0, err
}

// mayRunHere honours a nodeSelector, so that a test with several nodes can choose between them.
func (p *pods) mayRunHere(pod *corev1.Pod) bool {
	host, ok := pod.Spec.NodeSelector[corev1.LabelHostname]
	return !ok || host == p.node
}

func (p *pods) take(ctx context.Context, pod *corev1.Pod, step step, pace pace, now metav1.Time) error {
	switch step {
	case bind:
		return p.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: p.node},
		}, metav1.CreateOptions{})
	case start:
		return p.patchStatus(ctx, pod, runningStatus(pod, pace.readyAfter == 0, now))
	case makeReady:
		return p.patchStatus(ctx, pod, runningStatus(pod, true, now))
	case finish:
		return p.patchStatus(ctx, pod, finishedStatus(pod, pace.outcome, now))
	case end:
		// A controller with a finalizer on a pod, like the Job controller, waits until the pod's end is reported.
		if len(pod.Finalizers) > 0 && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			return p.patchStatus(ctx, pod, finishedStatus(pod, corev1.PodFailed, now))
		}
		immediately := int64(0)
		return p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &immediately,
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		})
	}
	return nil
}

// patchStatus changes the status of this very pod, as it was seen: its UID and version go along as preconditions.
func (p *pods) patchStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report pod %s/%s as %s: %w", pod.Namespace, pod.Name, status.Phase, err)
	}
	return nil
}
