package plan

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
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
	// a still world. A
	// pod that the program deletes goes, and if a StatefulSet or a ReplicaSet wants it there is another one.
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
	if w.New == nil || w.Subresource == "status" {
		return false
	}
	switch w.New.(type) {
	case *corev1.Pod:
		return true
	case *appsv1.Deployment, *appsv1.StatefulSet, *batchv1.Job, *corev1.PersistentVolumeClaim:
		return w.New.GetDeletionTimestamp() == nil
	}
	return false
}

// carryOut writes the status of an object, or ends a pod. Somebody else may write it at the same time.
func (w *world) carryOut(ctx context.Context, write reconciletest.BaseWrite) error {
	o := write.New
	if pod, ok := o.(*corev1.Pod); ok && pod.DeletionTimestamp != nil {
		return w.end(ctx, pod)
	}
	set, _ := o.(*appsv1.StatefulSet)
	was, _ := write.Old.(*appsv1.StatefulSet)
	revised := set != nil && (was == nil || !apiequality.Semantic.DeepEqual(was.Spec.Template, set.Spec.Template))
	for {
		err := w.try(ctx, o, revised)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
	}
}

// end ends a pod that is being deleted, and makes another one in its place if its owner wants one.
func (w *world) end(ctx context.Context, pod *corev1.Pod) error {
	err := w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) || len(pod.Finalizers) > 0 { // one that ran nowhere has gone at once
		return ignoreGone(err)
	}
	next, err := w.successor(ctx, pod)
	if err != nil || next == nil {
		return ignoreGone(err)
	}
	made, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, next, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return w.try(ctx, made, false)
}

// successor returns the pod that a StatefulSet or a ReplicaSet makes in place of one that is gone; nil: none.
func (w *world) successor(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Labels: maps.Clone(pod.Labels),
		OwnerReferences: pod.OwnerReferences}}
	switch owner.Kind {
	case "StatefulSet":
		set, err := w.client.AppsV1().StatefulSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil || set.UID != owner.UID || set.DeletionTimestamp != nil {
			return nil, err
		}
		next.Name, next.Spec = pod.Name, *set.Spec.Template.Spec.DeepCopy()
		maps.Copy(next.Labels, set.Spec.Template.Labels)
		next.Labels[appsv1.StatefulSetRevisionLabel] = set.Status.UpdateRevision
		next.Spec.Hostname, next.Spec.Subdomain = pod.Spec.Hostname, pod.Spec.Subdomain
		for _, v := range pod.Spec.Volumes {
			same := func(o corev1.Volume) bool { return o.Name == v.Name }
			if v.PersistentVolumeClaim != nil && !slices.ContainsFunc(next.Spec.Volumes, same) { // of a claim template
				next.Spec.Volumes = append(next.Spec.Volumes, v)
			}
		}
	case "ReplicaSet":
		set, err := w.client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil || set.UID != owner.UID || set.DeletionTimestamp != nil {
			return nil, err
		}
		next.GenerateName, next.Spec = set.Name+"-", *set.Spec.Template.Spec.DeepCopy()
	default:
		return nil, nil
	}
	return next, nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (w *world) try(ctx context.Context, o reconciletest.Object, revised bool) error {
	namespace, name := o.GetNamespace(), o.GetName()
	switch o.(type) {
	case *appsv1.Deployment:
		c := w.client.AppsV1().Deployments(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, rolledOut)
	case *appsv1.StatefulSet:
		c := w.client.AppsV1().StatefulSets(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, func(s *appsv1.StatefulSet) { rolledOutSet(s, revised) })
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

// rolledOutSet leaves the revisions as they are unless the template was revised.
func rolledOutSet(s *appsv1.StatefulSet, revised bool) {
	s.Status.ObservedGeneration = s.Generation
	n := *s.Spec.Replicas
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = n, n, n
	if revised || s.Status.UpdateRevision == "" {
		hash := fnv.New32a()
		fmt.Fprint(hash, s.Spec.Template.String())
		s.Status.UpdateRevision = fmt.Sprintf("%s-%x", s.Name, hash.Sum32())
	}
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
