package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

// node does to the API server what a scheduler and a kubelet do: it binds the pods that have no node, reports them as
// Running and Ready, and ends those that are deleted. It is written on client-go alone: what it is a test bed for, it
// must not be made of.
type node struct {
	client   typedcorev1.CoreV1Interface
	narrator *story.Narrator
	timers   sync.WaitGroup
}

const (
	nodeName = "standin"
	// startAfter is how long a pod takes from bound to Ready. It is long enough to see a rollout in the counts.
	startAfter = 400 * time.Millisecond
	retryAfter = 200 * time.Millisecond
	// readyAfter is the annotation of the real control plane's stand-in. Of its values this one knows "never".
	readyAfter = "standin/ready-after"
)

func newNode(cfg *rest.Config, say *story.Narrator) (*node, error) {
	client, err := typedcorev1.NewForConfig(cfg)
	return &node{client: client, narrator: say}, err
}

// complain prints what failed. What fails after the end of ctx fails because of it.
func (n *node) complain(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		n.narrator.Line("      node: " + err.Error())
	}
}

// run plays the node until ctx ends. What fails is printed and tried again.
func (n *node) run(ctx context.Context) {
	defer n.timers.Wait()
	for ctx.Err() == nil {
		n.complain(ctx, n.work(ctx))
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// work takes the next step of each pod, and again whenever a pod changes, until the watch ends.
func (n *node) work(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		return err
	}
	list, err := n.client.Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		if err := n.step(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	w, err := n.client.Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watch pods: %w", apierrors.FromObject(event.Object))
		}
		if event.Type == watch.Deleted {
			continue
		}
		if err := n.step(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// register creates the Node if there is none.
func (n *node) register(ctx context.Context) error {
	_, err := n.client.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the node: %w", err)
	}
	return nil
}

// step takes the next step of a pod. The watch brings the pod as the step has left it, for the one after.
func (n *node) step(ctx context.Context, pod *corev1.Pod) (err error) {
	pods := n.client.Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil && pod.Spec.NodeName != "":
		now := int64(0)
		err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now,
			Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.DeletionTimestamp != nil:
	case pod.Spec.NodeName == "":
		err = pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodPending:
		n.timers.Add(1)
		timer := time.AfterFunc(startAfter, func() {
			defer n.timers.Done()
			n.complain(ctx, ignoreRace(n.start(ctx, pod)))
		})
		context.AfterFunc(ctx, func() {
			if timer.Stop() {
				n.timers.Done()
			}
		})
	}
	return ignoreRace(err)
}

// ignoreRace drops the error of a step whose pod has changed or is gone: the watch brings that.
func ignoreRace(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// start reports a pod as Running and, unless its annotation says never, as Ready.
func (n *node) start(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.Now()
	ready := corev1.ConditionTrue
	if pod.Annotations[readyAfter] == "never" {
		ready = corev1.ConditionFalse
	}
	condition := func(t corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: status, LastTransitionTime: now}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{
			condition(corev1.PodInitialized, corev1.ConditionTrue), condition(corev1.ContainersReady, ready),
			condition(corev1.PodReady, ready),
		}},
	})
	if err != nil {
		return err
	}
	if _, err = n.client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status"); err != nil {
		return errors.Join(fmt.Errorf("start pod %s/%s", pod.Namespace, pod.Name), err)
	}
	return nil
}
