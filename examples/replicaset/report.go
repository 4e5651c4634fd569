package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// When is the status written?
//
// Pods come and go in groups, and the counts change with each step of each of them. What others wait for is written at
// once: that all is as wanted, that there are fewer pods to rely on, that scaling fails or works again. Everything else
// is on its way to one of these. It waits a moment, so that one write tells of all that happens meanwhile.

// patience is how long the oldest of the changes waits that a status tells of. Next to the time that a pod takes to be
// ready it is nothing.
const patience = 50 * time.Millisecond

// report writes the status, unless the API server has it already, or returns for how long that may wait. Should
// somebody have changed the ReplicaSet meanwhile, it is written onto the newest version: the pods were counted all the
// same, and observedGeneration says for which spec.
func (r *replicaSetReconciler) report(ctx context.Context, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus,
	failure error, now time.Time) (wait time.Duration, err error) {
	key := informer.KeyOf(rs)
	status.Conditions = conditionsAfter(rs.Status.Conditions, rs, status.Replicas, failure, now)
	if failure == nil && !apiequality.Semantic.DeepEqual(rs.Status, status) && !urgent(rs, status) {
		since, _ := r.unsaid.LoadOrStore(key, time.Now())
		if wait := r.patience - time.Since(since.(time.Time)); wait > 0 {
			return wait, nil
		}
	}
	_, err = objects.UpdateStatus(ctx, r.client.AppsV1().ReplicaSets(rs.Namespace), rs,
		func(newest *appsv1.ReplicaSet) error {
			status.Conditions = conditionsAfter(newest.Status.Conditions, rs, status.Replicas, failure, now)
			newest.Status = status
			return nil
		})
	// or it has waited enough: to wait once more would be a run that went well, and the failures be forgotten
	if err == nil {
		r.unsaid.Delete(key)
	}
	return 0, err
}

// urgent is true if somebody may wait for what status says of rs, which says something else.
func urgent(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) bool {
	return asWanted(rs, status) && !asWanted(rs, rs.Status) ||
		status.AvailableReplicas < rs.Status.AvailableReplicas ||
		!apiequality.Semantic.DeepEqual(status.Conditions, rs.Status.Conditions)
}

func asWanted(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) bool {
	return status.ObservedGeneration == rs.Generation && int(status.Replicas) == wanted(rs) &&
		int(status.AvailableReplicas) == wanted(rs)
}

// sooner is the shorter one of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
