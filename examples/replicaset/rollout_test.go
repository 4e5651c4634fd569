package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

// These tests put Kubernetes' own Deployment controller on top: it works with nothing but the ReplicaSets' numbers and
// what their status says.

// A rollout is a Deployment, with a check of what it promises.
type rollout struct {
	*world
	deployment string

	// Guarded by mu. The Deployment controller reckons with the number of pods that its ReplicaSets are to have: that
	// is what it keeps below most. The pods that there are can be more for a moment, while those of one ReplicaSet go
	// and those of another come.
	mu         sync.Mutex
	least      int // available pods, by their own word
	most       int // the sum of spec.replicas
	replicas   map[types.UID]int
	available  map[types.UID]bool
	worst      struct{ available, replicas int }
	violations []string
}

// newRollout creates the Deployment and waits until it is complete.
func newRollout(t *testing.T, replicas, surge, unavailable int) *rollout {
	w := newWorld(t, shared(t))
	w.control()
	r := &rollout{world: w, deployment: "web", replicas: map[types.UID]int{}, available: map[types.UID]bool{},
		most: replicas}
	n, grace := int32(replicas), int64(1)
	maxSurge, maxUnavailable := intstr.FromInt32(int32(surge)), intstr.FromInt32(int32(unavailable))
	_, err := w.client.AppsV1().Deployments(w.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: r.deployment},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": r.deployment}},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &maxSurge, MaxUnavailable: &maxUnavailable}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": r.deployment},
					Annotations: map[string]string{"standin/ready-after": "200ms"}},
				Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{Name: "c", Image: "image:0"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	r.watch()
	r.complete("image:0")
	r.promise(replicas-unavailable, replicas+surge)
	return r
}

// promise says what holds from now on.
func (r *rollout) promise(least, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.least, r.most = least, most
	r.worst.available, r.worst.replicas = len(r.available), 0
}

// watch follows pods and ReplicaSets until the end of the test, and then says what was wrong.
func (r *rollout) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	pods, err := r.client.CoreV1().Pods(r.namespace).Watch(ctx, metav1.ListOptions{})
	require.NoError(r.t, err)
	replicaSets, err := r.client.AppsV1().ReplicaSets(r.namespace).Watch(ctx, metav1.ListOptions{})
	require.NoError(r.t, err)
	var done sync.WaitGroup
	for _, w := range []watch.Interface{pods, replicaSets} {
		done.Go(func() {
			for event := range w.ResultChan() {
				r.see(event)
			}
			if ctx.Err() == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.violations = append(r.violations, "a watch broke: not all was seen")
			}
		})
	}
	r.t.Cleanup(func() {
		cancel()
		pods.Stop()
		replicaSets.Stop()
		done.Wait()
		require.Empty(r.t, r.violations)
	})
}

func (r *rollout) see(event watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.Pod:
		delete(r.available, object.UID)
		if isReady, _ := ready(object); isReady && active(object) && event.Type != watch.Deleted {
			r.available[object.UID] = true
		}
	case *appsv1.ReplicaSet:
		delete(r.replicas, object.UID)
		if event.Type != watch.Deleted {
			r.replicas[object.UID] = int(*object.Spec.Replicas)
		}
	}
	total := 0
	for _, n := range r.replicas {
		total += n
	}
	r.worst.available, r.worst.replicas = min(r.worst.available, len(r.available)), max(r.worst.replicas, total)
	if len(r.available) < r.least || total > r.most {
		r.violations = append(r.violations,
			fmt.Sprintf("%d pods available, at least %d are promised; %d wanted, at most %d", len(r.available), r.least,
				total, r.most))
	}
}

// change patches the Deployment.
func (r *rollout) change(patch string) {
	r.t.Helper()
	_, err := r.client.AppsV1().Deployments(r.namespace).Patch(r.t.Context(), r.deployment,
		types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(r.t, err)
}

func (r *rollout) image(name string) {
	r.t.Helper()
	r.change(fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, name))
}

func (r *rollout) status() (*appsv1.Deployment, appsv1.DeploymentStatus) {
	r.t.Helper()
	d, err := r.client.AppsV1().Deployments(r.namespace).Get(r.t.Context(), r.deployment, metav1.GetOptions{})
	require.NoError(r.t, err)
	return d, d.Status
}

// updated waits until the rollout has made n pods of the newest revision, and maybe more since.
func (r *rollout) updated(n int32) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		d, status := r.status()
		return status.ObservedGeneration == d.Generation && status.UpdatedReplicas >= n
	}, time.Minute, 10*time.Millisecond, "%d pods of the newest revision", n)
}

// complete waits until all pods are of one image, available, and as many as wanted, and the watch has shown them.
func (r *rollout) complete(image string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		d, status := r.status()
		n := *d.Spec.Replicas
		if status.ObservedGeneration != d.Generation || status.UpdatedReplicas != n || status.Replicas != n ||
			status.AvailableReplicas != n {
			return false
		}
		list, err := r.client.CoreV1().Pods(r.namespace).List(r.t.Context(), metav1.ListOptions{})
		require.NoError(r.t, err)
		count := 0
		for i := range list.Items {
			if active(&list.Items[i]) {
				require.Equal(r.t, image, list.Items[i].Spec.Containers[0].Image)
				count++
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return count == int(n) && len(r.available) == int(n)
	}, 3*time.Minute, 20*time.Millisecond, "the rollout of %s should be complete", image)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Logf("%s: at least %d available, %d promised; at most %d wanted, %d promised", image, r.worst.available,
		r.least, r.worst.replicas, r.most)
}

func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ replicas, surge, unavailable int }{{6, 1, 0}, {6, 0, 1}, {8, 2, 3}, {4, 4, 0}} {
		t.Run(fmt.Sprintf("%d+%d-%d", c.replicas, c.surge, c.unavailable), func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, c.replicas, c.surge, c.unavailable)
			r.image("image:1")
			r.complete("image:1")
		})
	}
}

// Back to the first revision while the second is half done: its ReplicaSet is taken up again.
func TestRollback(t *testing.T) {
	t.Parallel()
	r := newRollout(t, 6, 1, 1)
	r.image("image:1")
	r.updated(2)
	// The Deployment controller reckons with the availableReplicas that it last saw, also of a ReplicaSet that it has
	// just scaled down. Reversed in the middle of a step, it may therefore go one below its promise: in 7 of 40 runs
	// with the built-in ReplicaSet controller, and in 3 of 40 with this one. So this test reverses it between two
	// steps.
	r.change(`{"spec":{"paused":true}}`)
	r.settled(2)
	r.image("image:0")
	r.change(`{"spec":{"paused":false}}`)
	r.complete("image:0")
	sets, err := r.client.AppsV1().ReplicaSets(r.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, sets.Items, 2)
}

// settled waits until the Deployment controller has seen the last change, there are n ReplicaSets, and the status of
// each agrees with its spec.
func (r *rollout) settled(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { d, status := r.status(); return status.ObservedGeneration == d.Generation },
		time.Minute, 10*time.Millisecond)
	sets, err := r.client.AppsV1().ReplicaSets(r.namespace).List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	require.Len(r.t, sets.Items, n)
	for _, rs := range sets.Items {
		require.Eventually(r.t, func() bool {
			now := r.get(rs.Name)
			return now.Status.Replicas == *now.Spec.Replicas && now.Status.AvailableReplicas == *now.Spec.Replicas
		}, time.Minute, 20*time.Millisecond, "its pods are kept meanwhile")
	}
}

// A paused rollout stays where it is, whatever is changed, and ends once it is resumed.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRollout(t, 6, 1, 1)
	r.image("image:1")
	r.updated(2)
	r.change(`{"spec":{"paused":true}}`)
	r.image("image:2")
	r.settled(2) // there is none for a template that was changed while the rollout is paused
	r.change(`{"spec":{"paused":false}}`)
	r.complete("image:2")
}

// Scaled up and then down while the pods are replaced: the ReplicaSets share what is added and what is taken away.
func TestScaleDuringARollout(t *testing.T) {
	t.Parallel()
	r := newRollout(t, 6, 2, 1)
	r.image("image:1")
	r.updated(2)
	r.promise(6-1, 12+2)
	r.change(`{"spec":{"replicas":12}}`)
	r.complete("image:1")

	r.promise(4-1, 12+2)
	r.image("image:2")
	r.updated(3)
	// In mid-step the promise would not hold: see TestRollback. Scaled down there it was broken 5 times of 25, and 17
	// times of 30 when each status was written at once.
	r.change(`{"spec":{"paused":true}}`)
	r.settled(3)
	r.change(`{"spec":{"replicas":4}}`)
	r.settled(3)
	r.change(`{"spec":{"paused":false}}`)
	r.complete("image:2")
}
