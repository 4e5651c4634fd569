package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// look is the state of the demo's pods at one moment, read from the API server without this library, since the demo
// checks the library.
type look struct {
	owned       []*corev1.Pod // by a ReplicaSet, and not being deleted
	ready       int           // of these
	terminating int
	released    []*corev1.Pod // without a controller
}

const app = "web"

func (d *demo) look(ctx context.Context) (look, error) {
	list, err := d.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return look{}, fmt.Errorf("list the pods: %w", err)
	}
	var l look
	of := map[types.UID]int{} // how many each ReplicaSet owns
	for i := range list.Items {
		pod := &list.Items[i]
		switch owner := metav1.GetControllerOf(pod); {
		case pod.DeletionTimestamp != nil:
			l.terminating++
		case owner == nil:
			l.released = append(l.released, pod)
		default:
			l.owned = append(l.owned, pod)
			of[owner.UID]++
			d.mostOfOne = max(d.mostOfOne, of[owner.UID])
			if isReady(pod) {
				l.ready++
			}
		}
	}
	d.most, d.fewestReady = max(d.most, len(l.owned)), min(d.fewestReady, l.ready)
	return l, nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (l look) String() string {
	text := fmt.Sprintf("%d pods, %d Ready", len(l.owned), l.ready)
	if l.terminating > 0 {
		text += fmt.Sprintf(", %d ending", l.terminating)
	}
	if len(l.released) > 0 {
		text += fmt.Sprintf(", %d released", len(l.released))
	}
	return text
}

func (l look) has(name string) bool {
	return slices.ContainsFunc(l.owned, func(pod *corev1.Pod) bool { return pod.Name == name })
}

// images counts the pods by their images.
func (l look) images() string {
	count := map[string]int{}
	for _, pod := range l.owned {
		count[pod.Spec.Containers[0].Image]++
	}
	var parts []string
	for image, n := range count {
		parts = append(parts, fmt.Sprintf("%d of %s", n, image))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (l look) allRun(image string) bool {
	return !slices.ContainsFunc(l.owned, func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image != image })
}

const (
	timeout  = 90 * time.Second
	pollTime = 40 * time.Millisecond
)

// until looks at the pods and shows the counts until there returns true, and returns how long that took.
func (d *demo) until(ctx context.Context, wanted string, there func(look) bool) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last look
	for {
		l, err := d.look(ctx)
		if err == nil {
			last = l
			d.narrator.count(fmt.Sprintf("%-36s %s", l, l.images()))
			if there(l) {
				return time.Since(began), nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waited %s for %s; there are %s", seconds(time.Since(began)), wanted, last)
		case <-time.After(pollTime):
		}
	}
}

// settled reports n pods, all Ready, and none being deleted.
func settled(n int) func(look) bool {
	return func(l look) bool { return len(l.owned) == n && l.ready == n && l.terminating == 0 }
}
