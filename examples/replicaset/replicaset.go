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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// replicaSetReconciler keeps the wanted number of pods for each ReplicaSet.
//
// It keeps no state between two runs whose loss would matter. What it knows is in the caches. reconcile.TrackWrites
// lets a run start only when they show what the last run has written: a pod that was created is counted. So a key may
// run in another replica from one run to the next, as with --shards.
type replicaSetReconciler struct {
	server clients
	events eventRecorder

	// The caches, and their indexes.
	replicaSets            *informer.SharedIndexInformer[*appsv1.ReplicaSet]
	replicaSetsByNamespace *informer.Index[string, *appsv1.ReplicaSet]
	replicaSetsByOwner     *informer.Index[ownerKey, *appsv1.ReplicaSet]

	pods            *informer.SharedIndexInformer[*corev1.Pod]
	podsByNamespace *informer.Index[string, *corev1.Pod]
	podsByOwner     *informer.Index[ownerKey, *corev1.Pod]

	statusDelay time.Duration
	// waiting has, by informer.Key, the time.Time since which a status waits to be written. An entry stays if the key
	// runs in another replica meanwhile. Should it come back, its next status is written at once.
	waiting sync.Map
}

// eventRecorder records Events; *events.Recorder is one.
type eventRecorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// clients read and write the objects of the API server.
type clients struct {
	replicaSets *informer.Resource[*appsv1.ReplicaSet]
	pods        *informer.Resource[*corev1.Pod]
}

func newClients(cfg *rest.Config) (clients, error) {
	sets, setsErr := informer.NewResource[*appsv1.ReplicaSet](cfg,
		appsv1.SchemeGroupVersion.WithResource("replicasets"), informer.ResourceOptions{})
	pods, podsErr := informer.NewResource[*corev1.Pod](cfg, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	return clients{sets, pods}, errors.Join(setsErr, podsErr)
}

// kind is the kind of a pod's controller if the pod is ours.
var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// ownerKey is what objects are indexed by: the namespace, and all that identifies the controller, except for its API
// group: there have been several for ReplicaSets. An orphan's has the namespace only.
type ownerKey struct {
	namespace, kind, name string
	uid                   types.UID
}

func ownerKeyOf(obj metav1.Object) ownerKey {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return ownerKey{obj.GetNamespace(), owner.Kind, owner.Name, owner.UID}
	}
	return ownerKey{namespace: obj.GetNamespace()}
}

// The functions of the indexes.
func byOwner[T metav1.Object](obj T, add func(ownerKey))   { add(ownerKeyOf(obj)) }
func byNamespace[T metav1.Object](obj T, add func(string)) { add(obj.GetNamespace()) }

// newController makes the reconciler with its caches, and the controller that maps their changes to keys.
func newController(cfg *rest.Config, events eventRecorder, namespace string, options reconcile.Options) (
	*replicaSetReconciler, *reconcile.Controller, error) {
	server, err := newClients(cfg)
	if err != nil {
		return nil, nil, err
	}
	r := &replicaSetReconciler{server: server, events: events, statusDelay: statusDelay}
	var errs [7]error
	r.replicaSets, errs[0] = informer.New(server.replicaSets.In(namespace), informer.Options[*appsv1.ReplicaSet]{})
	r.replicaSetsByNamespace, errs[1] = informer.AddIndex(r.replicaSets, byNamespace)
	r.replicaSetsByOwner, errs[2] = informer.AddIndex(r.replicaSets, byOwner)
	r.pods, errs[3] = informer.New(server.pods.In(namespace), informer.Options[*corev1.Pod]{})
	r.podsByNamespace, errs[4] = informer.AddIndex(r.pods, byNamespace)
	r.podsByOwner, errs[5] = informer.AddIndex(r.pods, byOwner)

	var c *reconcile.Controller
	c, errs[6] = reconcile.NewController("replicaset", r, options)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	reconcile.For(c, r.replicaSets)
	reconcile.Watches(c, r.pods, r.concerned) // called for the old and the new pod: both of its controllers get a run
	return r, c, nil
}

// concerned returns the keys of the ReplicaSets that a change of a pod concerns: its controller or, if it has none, all
// whose selectors match it.
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
		r.waiting.Delete(key)
		return reconcile.Result{}, nil // the garbage collector deletes its pods
	}
	selector, err := selectorOf(rs)
	if err != nil {
		return reconcile.Result{}, reconcile.Terminal(err)
	}
	now := time.Now() // one clock reading for all decisions of this run

	// Observe: find the pods that are ours, adopting and releasing where needed.
	candidates := candidates(rs, r.podsByOwner.Get)
	owner := objects.NewOwner(r.server.replicaSets.In(rs.Namespace), rs, kind)
	mine, err := r.claim(ctx, rs, owner, selector, candidates)
	if err != nil {
		return reconcile.Result{}, err
	}

	// Diff and act: create the missing pods, delete the surplus.
	var failure error
	if rs.DeletionTimestamp == nil {
		failure = r.scale(ctx, rs, owner, mine, now)
	}

	// Report: write the status, also when scaling failed.
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

// selectorOf returns the selector of rs. An empty one would match every pod: the API server refuses it, and here it
// matches none.
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
