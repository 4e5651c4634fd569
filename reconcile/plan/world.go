package plan

import (
	"cmp"
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// World is what goes on in a fork beside the program.
type World int

const (
	// Still: nothing. A program that waits for a rollout is seen up to there.
	Still World = iota
	// Healthy: what the program writes is carried out at once, as in a cluster in which nothing fails. A Deployment is
	// rolled out by ReplicaSets, and these, StatefulSets and DaemonSets have the pods that they want, which run, are
	// ready and are of the newest template, if the strategy says so. A pod that is deleted goes, and its owner makes
	// another one. A Job has succeeded, without pods, and a claim is bound.
	Healthy
)

func (w World) String() string {
	if w == Healthy {
		return "healthy"
	}
	return "still"
}

// worldManager is who a healthy world writes as. What it writes is no change of the program's.
const worldManager = "plan-healthy-world"

// world does to a fork what the controllers and the nodes of a healthy cluster do.
type world struct {
	client kubernetes.Interface // past the recorder
	drew   func(hash string)    // is told of hashes of templates that the cluster's controllers make otherwise

	mu sync.Mutex // one write is carried out after the other
	// Guarded by mu.
	ips       int   // of pods
	revisions *bool // the cluster has ControllerRevisions; nil: not known yet
}

func newWorld(fork *rest.Config) (*world, error) {
	fork = rest.CopyConfig(fork)
	fork.UserAgent = worldManager
	client, err := kubernetes.NewForConfig(fork)
	return &world{client: client}, err
}

// carriesOut reports whether a healthy world does something about a write.
func carriesOut(w reconciletest.BaseWrite) bool {
	if _, ok := cmp.Or[reconciletest.Object](w.New, w.Old).(*corev1.Pod); ok {
		return w.Subresource != "status"
	}
	if w.New == nil || w.Subresource == "status" || w.New.GetDeletionTimestamp() != nil {
		return false
	}
	switch w.New.(type) {
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job,
		*corev1.PersistentVolumeClaim:
		return true
	}
	return false
}

// carryOut does what a write asks for. It looks at the fork as it is now, and begins anew if somebody else writes at
// the same time.
func (w *world) carryOut(ctx context.Context, write reconciletest.BaseWrite) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for attempt := 1; ; attempt++ {
		err := w.try(ctx, write)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) || attempt == attempts:
			return err
		}
		if !lifecycle.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (w *world) try(ctx context.Context, write reconciletest.BaseWrite) error {
	namespace, name := write.Namespace, write.Name
	switch o := cmp.Or[reconciletest.Object](write.New, write.Old).(type) {
	case *appsv1.Deployment:
		return w.deployment(ctx, namespace, name)
	case *appsv1.ReplicaSet:
		return w.replicaSet(ctx, namespace, name)
	case *appsv1.StatefulSet:
		was, _ := write.Old.(*appsv1.StatefulSet)
		return w.statefulSet(ctx, namespace, name, was == nil || !sameTemplate(was.Spec.Template, o.Spec.Template))
	case *appsv1.DaemonSet:
		was, _ := write.Old.(*appsv1.DaemonSet)
		return w.daemonSet(ctx, namespace, name, was == nil || !sameTemplate(was.Spec.Template, o.Spec.Template))
	case *batchv1.Job:
		c := w.client.BatchV1().Jobs(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, succeeded)
	case *corev1.PersistentVolumeClaim:
		c := w.client.CoreV1().PersistentVolumeClaims(namespace)
		return carried(ctx, name, c.Get, c.UpdateStatus, bound)
	case *corev1.Pod:
		switch {
		case write.New == nil:
			return w.owner(ctx, o)
		case o.DeletionTimestamp != nil:
			if err := w.end(ctx, o); err != nil {
				return err
			}
			return w.owner(ctx, o)
		}
		return w.start(ctx, namespace, name)
	}
	return nil
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
