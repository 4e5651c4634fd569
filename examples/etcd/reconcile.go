package main

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// Etcd does not tell when something changes: the operator asks again after these times. Changes of pods bring a key
// back at once.
const (
	soon  = 500 * time.Millisecond // after an action on etcd, and while something is under way
	later = 10 * time.Second       // while there is nothing to do
)

// reconciler makes the cluster match the EtcdClusters.
type reconciler struct {
	options
	clusters *informer.Cached[*v1.EtcdCluster]
	pods     *informer.Cached[*corev1.Pod]
	claims   *informer.Cached[*corev1.PersistentVolumeClaim]
	words    *informer.Cached[*corev1.ConfigMap]
	services *informer.Cached[*corev1.Service]
	budgets  *informer.Cached[*policyv1.PodDisruptionBudget]
	secrets  *informer.Cached[*corev1.Secret]
	volumes  *informer.Resource[*corev1.PersistentVolume]
	nodes    *informer.Resource[*corev1.Node]
	// by the UID of the EtcdCluster
	podsOf    *informer.Index[types.UID, *corev1.Pod]
	claimsOf  *informer.Index[types.UID, *corev1.PersistentVolumeClaim]
	wordsOf   *informer.Index[types.UID, *corev1.ConfigMap]
	secretsOf *informer.Index[types.UID, *corev1.Secret]

	backups   *informer.Cached[*v1.EtcdBackup]
	jobs      *informer.Cached[*batchv1.Job]
	jobPods   *informer.Cached[*corev1.Pod]
	backupsOf *informer.Index[informer.Key, *v1.EtcdBackup] // by EtcdCluster
	jobPodsOf *informer.Index[types.UID, *corev1.Pod]       // by the UID of the Job

	events *events.Recorder
	ear    ear
}

// Reconcile observes, lets package plan decide, reports, and does the one thing that comes next. An EtcdCluster that is
// deleted needs no more than its last backup: the garbage collector deletes what it owns.
func (r *reconciler) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	cluster, ok := r.clusters.Cache.Get(key)
	if !ok {
		r.ear.forget(key)
		return reconcile.Result{}, nil
	}
	call := &call{reconciler: r, cluster: cluster,
		owner: objects.NewOwner(r.clusters.In(key.Namespace), cluster, r.clusters.GroupVersionKind())}
	if goOn, err := call.hold(ctx); err != nil || !goOn {
		return reconcile.Result{}, err
	}
	var taken *objects.TakenError
	err := call.frame(ctx)
	if err == nil {
		err = call.certify(ctx)
	}
	if errors.As(err, &taken) {
		_, err := call.report(ctx, observed{}, plan.Action{Do: v1.ReasonNameTaken, Why: taken.Error()})
		return reconcile.Result{RequeueAfter: later}, err
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if s := call.tls; s.reason != "" && len(s.bundle) == 0 { // a pod that is made now would trust nobody
		_, err := call.report(ctx, observed{}, plan.Action{Do: plan.Wait, Why: s.problem})
		return reconcile.Result{RequeueAfter: later}, err
	}
	seen, err := call.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if stepped, err := call.rotate(ctx, &seen); err != nil || stepped {
		return reconcile.Result{}, err
	}
	action := plan.Next(seen.Cluster)
	// The status is written first: that the cluster is formed, and which version has failed, must not be forgotten.
	if call.cluster, err = call.report(ctx, seen, action); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case action.Do == plan.Rest || action.Do == plan.Pause || action.Do == plan.Refuse:
		return reconcile.Result{RequeueAfter: later}, nil
	case !action.Changes():
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	err = call.act(ctx, seen, action)
	switch {
	case errors.Is(err, members.ErrNotYet):
		klog.FromContext(ctx).V(1).Info("Etcd wants to be asked again", "action", action.String(), "reason",
			err.Error())
	case errors.As(err, &taken):
		_, err := call.report(ctx, seen, plan.Action{Do: v1.ReasonNameTaken, Why: taken.Error()})
		return reconcile.Result{RequeueAfter: later}, err
	case err != nil:
		return reconcile.Result{}, err
	case action.Notable():
		r.events.Event(call.cluster, corev1.EventTypeNormal, string(action.Do), action.String())
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// invalid is called in place of Reconcile while an EtcdCluster does not fit its Go type. Its members go on as they are.
func (r *reconciler) invalid(_ context.Context, _ reconcile.Key, why *informer.InvalidError) (reconcile.Result, error) {
	r.events.Event(why.Object, corev1.EventTypeWarning, v1.ReasonInvalid, why.Error())
	return reconcile.Result{}, nil
}

// call is one call of Reconcile.
type call struct {
	*reconciler
	cluster *v1.EtcdCluster
	owner   *objects.Owner
	etcd    members.Etcd // with the certificate for this cluster
	tls     secured
}
