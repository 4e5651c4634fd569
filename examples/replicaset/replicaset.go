package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// replicaSetReconciler keeps the wanted number of pods for each ReplicaSet.
//
// It remembers nothing between two runs that would matter if it was lost. What it knows is in the caches, and
// reconcile.TrackWrites sees to it that a run starts only when they show what the run before has written: a pod that
// was created is counted.
type replicaSetReconciler struct {
	client kubernetes.Interface
	events record.EventRecorder

	replicaSets            *informer.SharedIndexInformer[*appsv1.ReplicaSet]
	replicaSetsByNamespace *informer.Index[string, *appsv1.ReplicaSet]
	replicaSetsByOwner     *informer.Index[place, *appsv1.ReplicaSet]

	pods            *informer.SharedIndexInformer[*corev1.Pod]
	podsByNamespace *informer.Index[string, *corev1.Pod]
	podsByOwner     *informer.Index[place, *corev1.Pod]

	patience time.Duration
	unsaid   sync.Map // since when, a time.Time, there is a status that waits, by informer.Key
}

// kind is what the controller owner reference of a pod says when the pod is ours.
var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// place is where an object is looked for: its namespace, and in there its controller, by all that identifies one. The
// group of its API is not part of that: there have been several for ReplicaSets. Orphans have no controller.
type place struct {
	namespace, kind, name string
	uid                   types.UID
}

func placeOf[T metav1.Object](obj T) []place {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return []place{{obj.GetNamespace(), owner.Kind, owner.Name, owner.UID}}
	}
	return []place{{namespace: obj.GetNamespace()}}
}

func namespaceOf[T metav1.Object](obj T) []string { return []string{obj.GetNamespace()} }

// newController says what the reconciler looks at, and which key each change of it wakes.
func newController(client kubernetes.Interface, events record.EventRecorder, namespace string,
	options reconcile.Options) (
	*replicaSetReconciler, *reconcile.Controller, error,
) {
	r := &replicaSetReconciler{client: client, events: events, patience: patience}
	var errs [7]error
	r.replicaSets, errs[0] = informer.New[*appsv1.ReplicaSet](client.AppsV1().ReplicaSets(namespace),
		informer.Options[*appsv1.ReplicaSet]{})
	r.replicaSetsByNamespace, errs[1] = informer.AddIndex(r.replicaSets, namespaceOf)
	r.replicaSetsByOwner, errs[2] = informer.AddIndex(r.replicaSets, placeOf)
	r.pods, errs[3] = informer.New[*corev1.Pod](client.CoreV1().Pods(namespace), informer.Options[*corev1.Pod]{})
	r.podsByNamespace, errs[4] = informer.AddIndex(r.pods, namespaceOf)
	r.podsByOwner, errs[5] = informer.AddIndex(r.pods, placeOf)

	var c *reconcile.Controller
	c, errs[6] = reconcile.NewController("replicaset", r, options)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	reconcile.For(c, r.replicaSets)
	reconcile.Watches(c, r.pods, r.concerned) // as it was and as it is: where a pod changes hands, both
	return r, c, nil
}

// concerned names the ReplicaSets that have something to do with a pod: its controller, or, if it has none, all that
// want it.
func (r *replicaSetReconciler) concerned(pod *corev1.Pod) (keys []informer.Key) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		if owner.Kind != kind.Kind {
			return nil
		}
		return []informer.Key{{Namespace: pod.Namespace, Name: owner.Name}}
	}
	for rs := range r.replicaSetsByNamespace.Get(pod.Namespace) {
		if selector, err := selectorOf(rs); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			keys = append(keys, informer.KeyOf(rs))
		}
	}
	if len(keys) > 1 {
		klog.Background().Info("Several ReplicaSets have a selector that matches this orphan; the first to adopt it "+
			"gets it", "pod", klog.KObj(pod), "replicaSets", keys)
	}
	return keys
}

// Reconcile is one round of the loop: observe, diff, act, report.
func (r *replicaSetReconciler) Reconcile(ctx context.Context, key informer.Key) (reconcile.Result, error) {
	rs, ok := r.replicaSets.Get(key)
	if !ok {
		r.unsaid.Delete(key)
		return reconcile.Result{}, nil // its pods are the garbage collector's now
	}
	selector, err := selectorOf(rs)
	if err != nil {
		return reconcile.Result{}, reconcile.Terminal(err)
	}
	now := time.Now() // one clock reading for all decisions of this run

	// Observe: the pods that are ours, once those that should come or go have done so.
	candidates := candidates(rs, r.podsByOwner.Get)
	owner := objects.NewOwner(r.client.AppsV1().ReplicaSets(rs.Namespace), rs, kind)
	mine, err := r.claim(ctx, rs, owner, selector, candidates)
	if err != nil {
		return reconcile.Result{}, err
	}

	// Diff and act: create what is missing, delete what is too much.
	var failure error
	if rs.DeletionTimestamp == nil {
		failure = r.scale(ctx, rs, owner, mine, now)
	}

	// Report: also when scaling failed, and then just that.
	wait, err := r.report(ctx, rs, statusOf(rs, mine, terminating(rs, selector, candidates), now), failure, now)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case failure != nil:
		return reconcile.Result{}, failure
	}
	return reconcile.Result{RequeueAfter: sooner(wait, nextAvailable(mine, rs.Spec.MinReadySeconds, now, time.Now()))},
		nil
}

// selectorOf reads the selector of rs. An empty one would match every pod; the API server lets none in, and here it
// matches nothing.
func selectorOf(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	if selector.Empty() {
		return labels.Nothing(), nil
	}
	return selector, nil
}
