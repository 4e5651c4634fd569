package zoo

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const unseenClass = "unseen state"

// unseen are bugs of operators that act on a state which may pass while they do not look.
var unseen = []bug{
	{
		published:  "instaclustr/cassandra-operator#398",
		class:      unseenClass,
		mistake:    "a claim is deleted when its pod is seen with a deletion timestamp, and stays if that is missed",
		reconciler: watchingPods,
		scenario:   shrinking(),
	}, {
		published: "konpyutaika/nifikop#86",
		class:     unseenClass,
		mistake: "a pod that was never seen ready while it was asked for is never removed, since only ready ones " +
			"are drained",
		reconciler: draining,
		scenario:   drained(),
		heldBack:   true,
	},
}

// shrinking is a Cluster with a Set that is scaled down.
func shrinking() reconciletest.Scenario {
	s := decommissioned()
	s.Beside = []func(context.Context, *rest.Config) error{beside}
	return s
}

// watchingPods makes the Set and the Volumes, and removes the Volume of a Member that it sees going.
func watchingPods(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		if err := w.ensureSet(ctx, c, spec{"count": number(c, "spec", "replicas")}); err != nil {
			return err
		}
		for i := range number(c, "spec", "replicas") {
			err := w.create(ctx, volumes, child(c, volumes, ordinal(c.GetName(), i), spec{"ordinal": i}))
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		for _, v := range w.list(volumes, key.Namespace, key.Name) {
			if number(v, "spec", "ordinal") < number(c, "spec", "replicas") {
				continue
			}
			m := w.get(members, key.Namespace, v.GetName())
			if m != nil && m.GetDeletionTimestamp() != nil || m == nil && fixed {
				if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), v.GetUID()); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// drained is a Cluster that is scaled down.
func drained() reconciletest.Scenario {
	s := scenario(spec{"replicas": 2}, spec{"replicas": 1})
	s.Beside = []func(context.Context, *rest.Config) error{beside}
	s.Settled = func(s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		if there := int64(len(all(s, members))); there != number(c, "spec", "replicas") {
			return fmt.Errorf("there are %d members", there)
		}
		return nil
	}
	return s
}

// draining makes Members, notes of those that the Cluster asks for when they are ready, and removes the others.
func draining(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		for i := range number(c, "spec", "replicas") {
			m, err := w.live(ctx, members, key.Namespace, ordinal(c.GetName(), i))
			if err != nil {
				return err
			}
			if m == nil {
				m = child(c, members, ordinal(c.GetName(), i), spec{"ordinal": i, "image": "good"})
				set(m, "UpscaleRunning", "metadata", "annotations", "action")
				if err := w.create(ctx, members, m); err != nil {
					return err
				}
			}
			status, _ := m.Object["status"].(map[string]any)
			if status["ready"] == true && m.GetAnnotations()["action"] == "UpscaleRunning" {
				set(m, "UpscaleSucceeded", "metadata", "annotations", "action")
				if err := w.update(ctx, members, m); err != nil {
					return err
				}
			}
		}
		for _, m := range w.list(members, key.Namespace, key.Name) {
			if number(m, "spec", "ordinal") < number(c, "spec", "replicas") ||
				m.GetAnnotations()["action"] == "UpscaleRunning" && !fixed {
				continue
			}
			if err := w.delete(ctx, members, key.Namespace, m.GetName(), m.GetUID()); err != nil {
				return err
			}
		}
		return nil
	}
}
