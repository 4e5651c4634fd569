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
// Pods come and go in groups, and each step of each pod changes the counts. Changes that others wait for are written at
// once: all replicas are available, fewer pods are available, scaling fails or works again. Other changes lead to one
// of these, and wait for a moment, so that one write reports several.

// statusDelay is the longest time that a change waits to be reported. It is short against the time that a pod needs to
// become Ready.
const statusDelay = 50 * time.Millisecond

// report writes the status if it has changed, or returns how long the write may wait. If the ReplicaSet has changed
// meanwhile, it writes onto the newest version: the counts hold all the same, and observedGeneration tells for which
// spec.
func (r *replicaSetReconciler) report(ctx context.Context, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus,
	failure error, now time.Time) (wait time.Duration, err error) {
	key := informer.KeyOf(rs)
	status.Conditions = conditionsAfter(rs.Status.Conditions, rs, status.Replicas, failure, now)
	if failure == nil && !apiequality.Semantic.DeepEqual(rs.Status, status) && !urgent(rs, status) {
		since, _ := r.waiting.LoadOrStore(key, time.Now())
		if wait := r.statusDelay - time.Since(since.(time.Time)); wait > 0 {
			return wait, nil
		}
	}
	_, err = objects.UpdateStatus(ctx, r.server.replicaSets.In(rs.Namespace), rs,
		func(newest *appsv1.ReplicaSet) error {
			status.Conditions = conditionsAfter(newest.Status.Conditions, rs, status.Replicas, failure, now)
			newest.Status = status
			return nil
		})
	// After a failure the entry stays, so that the retry writes at once. To wait again would end the run without an
	// error, and reset the backoff.
	if err == nil {
		r.waiting.Delete(key)
	}
	return 0, err
}

// urgent reports whether status, which differs from that of rs, has a change that others may wait for.
func urgent(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) bool {
	return asWanted(rs, status) && !asWanted(rs, rs.Status) ||
		status.AvailableReplicas < rs.Status.AvailableReplicas ||
		!apiequality.Semantic.DeepEqual(status.Conditions, rs.Status.Conditions)
}

func asWanted(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) bool {
	return status.ObservedGeneration == rs.Generation && int(status.Replicas) == wanted(rs) &&
		int(status.AvailableReplicas) == wanted(rs)
}

// sooner returns the shorter of two waits; 0 means no wait.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
