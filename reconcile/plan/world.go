package plan

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// World is what goes on in a fork beside the program.
type World int

const (
	// Still: nothing. A program that waits for a rollout is seen up to there.
	Still World = iota
	// Healthy: what the program writes is carried out at once, as far as its status tells. A Deployment and a
	// StatefulSet are rolled out, a Job has succeeded, a claim is bound, and a pod runs and is ready. For that no
	// ReplicaSet and no pod is made, replaced or deleted: a program that looks at the pods of a Deployment waits as in
	// a still world.
	Healthy
)

// worldManager is who a healthy world writes as. What it writes is no change of the program's.
const worldManager = "plan-healthy-world"

// world gives the objects that a program writes the status that they have in the end.
type world struct {
	client kubernetes.Interface // past the recorder
}

func newWorld(fork *rest.Config) (*world, error) {
	fork = rest.CopyConfig(fork)
	fork.UserAgent = worldManager
	client, err := kubernetes.NewForConfig(fork)
	return &world{client}, err
}

// carriesOut reports whether a healthy world does something about a write.
func carriesOut(w reconciletest.BaseWrite) bool {
	if w.New == nil || w.New.GetDeletionTimestamp() != nil || w.Subresource == "status" {
		return false
	}
	switch w.New.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *batchv1.Job, *corev1.PersistentVolumeClaim, *corev1.Pod:
		return true
	}
	return false
}

// carryOut writes the status of an object. Somebody else may write it at the same time.
func (w *world) carryOut(ctx context.Context, o reconciletest.Object) error {
	for {
		err := w.try(ctx, o.GetNamespace(), o.GetName(), o)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
	}
}

func (w *world) try(ctx context.Context, namespace, name string, o reconciletest.Object) error {
	switch o.(type) {
	case *appsv1.Deployment:
		c := w.client.AppsV1().Deployments(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, rolledOut)
	case *appsv1.StatefulSet:
		c := w.client.AppsV1().StatefulSets(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, rolledOutSet)
	case *batchv1.Job:
		c := w.client.BatchV1().Jobs(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, succeeded)
	case *corev1.PersistentVolumeClaim:
		c := w.client.CoreV1().PersistentVolumeClaims(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, bound)
	default:
		c := w.client.CoreV1().Pods(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, running)
	}
}

// carried writes the status that finish makes, unless the object has it.
func carried[T interface{ DeepCopy() T }](ctx context.Context, name string,
	get func(context.Context, string, metav1.GetOptions) (T, error),
	update func(context.Context, T, metav1.UpdateOptions) (T, error), finish func(T)) error {
	is, err := get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	done := is.DeepCopy()
	finish(done)
	if apiequality.Semantic.DeepEqual(is, done) {
		return nil
	}
	_, err = update(ctx, done, metav1.UpdateOptions{})
	return err
}

func rolledOut(d *appsv1.Deployment) {
	d.Status.ObservedGeneration = d.Generation
	if d.Spec.Paused {
		return
	}
	n := *d.Spec.Replicas
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, n, n, n
	d.Status.UnavailableReplicas = 0
	for _, c := range []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Reason: "MinimumReplicasAvailable"},
		{Type: appsv1.DeploymentProgressing, Reason: "NewReplicaSetAvailable"},
	} {
		c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.Now()
		c.LastUpdateTime = c.LastTransitionTime
		found := false
		for i, is := range d.Status.Conditions {
			if is.Type == c.Type {
				if found = true; is.Status != c.Status || is.Reason != c.Reason {
					d.Status.Conditions[i] = c
				}
			}
		}
		if !found {
			d.Status.Conditions = append(d.Status.Conditions, c)
		}
	}
}

func rolledOutSet(s *appsv1.StatefulSet) {
	s.Status.ObservedGeneration = s.Generation
	n := *s.Spec.Replicas
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = n, n, n
	hash := fnv.New32a()
	fmt.Fprint(hash, s.Spec.Template.String())
	s.Status.UpdateRevision = fmt.Sprintf("%s-%x", s.Name, hash.Sum32())
	strategy := s.Spec.UpdateStrategy
	switch rolling := strategy.RollingUpdate; {
	case strategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return
	case rolling != nil && rolling.Partition != nil && *rolling.Partition > 0:
		s.Status.UpdatedReplicas = max(0, n-*rolling.Partition)
		s.Status.CurrentReplicas = n - s.Status.UpdatedReplicas
	default:
		s.Status.UpdatedReplicas, s.Status.CurrentReplicas = n, n
		s.Status.CurrentRevision = s.Status.UpdateRevision
	}
}

func succeeded(j *batchv1.Job) {
	if j.Spec.Suspend != nil && *j.Spec.Suspend || j.Status.CompletionTime != nil {
		return
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	if j.Status.StartTime == nil {
		j.Status.StartTime = &now
	}
	j.Status.CompletionTime, j.Status.Active = &now, 0
	if j.Status.Succeeded = 1; j.Spec.Completions != nil {
		j.Status.Succeeded = *j.Spec.Completions
	}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue,
			LastProbeTime: now, LastTransitionTime: now, Reason: "CompletionsReached"})
	}
}

func bound(c *corev1.PersistentVolumeClaim) {
	c.Status.Phase, c.Status.AccessModes = corev1.ClaimBound, c.Spec.AccessModes
	c.Status.Capacity = c.Spec.Resources.Requests
}

func running(p *corev1.Pod) {
	if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded ||
		p.Status.Phase == corev1.PodFailed {
		return
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
	p.Status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: now})
	}
}
