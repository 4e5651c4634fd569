package main

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// deploymentReconciler moves the pods of each Deployment to its template, by ReplicaSets: one for each template.
//
// It keeps no state between two runs. What it knows is in the caches, and what has to outlive a run is in the cluster:
// revisions and sizes in the annotations of the ReplicaSets, progress in the conditions of the Deployment.
type deploymentReconciler struct {
	server clients
	events *events.Recorder

	// The caches, and their indexes.
	deployments            *informer.SharedIndexInformer[*appsv1.Deployment]
	deploymentsByNamespace *informer.Index[string, *appsv1.Deployment]

	replicaSets        *informer.SharedIndexInformer[*appsv1.ReplicaSet]
	replicaSetsByOwner *informer.Index[ownerKey, *appsv1.ReplicaSet]

	pods        *informer.SharedIndexInformer[podFacts]
	podsByOwner *informer.Index[types.UID, podFacts]
}

// clients read and write the objects of the API server.
type clients struct {
	deployments *informer.Resource[*appsv1.Deployment]
	replicaSets *informer.Resource[*appsv1.ReplicaSet]
	pods        *informer.Resource[*corev1.Pod]
}

func newClients(cfg *rest.Config) (c clients, err error) {
	var errs [3]error
	c.deployments, errs[0] = informer.NewResource[*appsv1.Deployment](cfg,
		appsv1.SchemeGroupVersion.WithResource("deployments"), informer.ResourceOptions{})
	c.replicaSets, errs[1] = informer.NewResource[*appsv1.ReplicaSet](cfg,
		appsv1.SchemeGroupVersion.WithResource("replicasets"), informer.ResourceOptions{})
	c.pods, errs[2] = informer.NewResource[*corev1.Pod](cfg, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	return c, errors.Join(errs[:]...)
}

// kind is the kind of a ReplicaSet's controller if the ReplicaSet is ours.
var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// newController makes the reconciler with its caches, and the controller that maps their changes to keys.
func newController(cfg *rest.Config, events *events.Recorder, namespace string,
	options reconcile.Options) (*deploymentReconciler, *reconcile.Controller, error) {
	server, err := newClients(cfg)
	if err != nil {
		return nil, nil, err
	}
	r := &deploymentReconciler{server: server, events: events}
	var errs [7]error
	r.deployments, errs[0] = informer.New(server.deployments.In(namespace), informer.Options[*appsv1.Deployment]{})
	r.deploymentsByNamespace, errs[1] = informer.AddIndex(r.deployments, namespaceOf)
	r.replicaSets, errs[2] = informer.New(server.replicaSets.In(namespace), informer.Options[*appsv1.ReplicaSet]{})
	r.replicaSetsByOwner, errs[3] = informer.AddIndex(r.replicaSets, ownerKeyOf)
	r.pods, errs[4] = informer.Project(server.pods.In(namespace), factsOf, informer.Options[*corev1.Pod]{})
	r.podsByOwner, errs[5] = informer.AddIndex(r.pods, func(p podFacts, add func(types.UID)) { add(p.owner.UID) })

	var c *reconcile.Controller
	c, errs[6] = reconcile.NewController("deployment", r, options)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	reconcile.For(c, r.deployments)
	reconcile.Watches(c, r.replicaSets, r.concerned) // called for the old and the new state: both controllers get a run
	reconcile.Watches(c, r.pods, r.recreating)
	return r, c, nil
}

func namespaceOf[T interface{ GetNamespace() string }](o T, add func(string)) { add(o.GetNamespace()) }

// Reconcile is one round of the loop: observe, diff, act, report.
func (r *deploymentReconciler) Reconcile(ctx context.Context, key informer.Key) (reconcile.Result, error) {
	d, ok := r.deployments.Get(key)
	if !ok {
		return reconcile.Result{}, nil // the garbage collector deletes its ReplicaSets
	}
	selector, err := selectorOf(d)
	if err != nil {
		return reconcile.Result{}, reconcile.Terminal(err)
	}
	now := time.Now() // one clock reading for all decisions of this run

	// Observe: find the ReplicaSets that are ours, adopting and releasing where needed.
	owner := objects.NewOwner(r.server.deployments.In(d.Namespace), d, kind)
	mine, err := r.claim(ctx, d, owner, selector)
	if err != nil {
		return reconcile.Result{}, err
	}
	ro := newRollout(d, mine, now)

	// Diff and act: resize, create and delete ReplicaSets.
	var failure error
	if d.DeletionTimestamp == nil {
		failure = r.act(ctx, ro, owner)
	}

	// Report: write the status, also after a failure.
	if err := errors.Join(failure, r.report(ctx, ro)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: ro.untilDeadline()}, nil
}

// act makes the next step. Each step is small, and its effect is what starts the next run: the status of a ReplicaSet
// that the step has resized.
func (r *deploymentReconciler) act(ctx context.Context, ro *rollout, owner *objects.Owner) error {
	d := ro.deployment
	ro.notePause()
	if ro.new != nil {
		if err := r.refreshNew(ctx, ro); err != nil {
			return err
		}
	}
	switch {
	case d.Spec.Paused:
		if err := r.resizeAll(ctx, ro, proportional(d, ro.new, ro.old)); err != nil {
			return err
		}
		return r.cleanUp(ctx, ro)
	case scaled(d, ro.sets()):
		return r.resizeAll(ctx, ro, proportional(d, ro.new, ro.old))
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return r.recreate(ctx, ro, owner)
	default:
		return r.roll(ctx, ro, owner)
	}
}
