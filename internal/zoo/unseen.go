package zoo

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const unseenClass = "a state that nobody saw"

// unseen are bugs of operators that act on a state which may pass while they do not look.
var unseen = []bug{
	{
		published:  "instaclustr/cassandra-operator#398",
		class:      unseenClass,
		mistake:    "a claim is deleted when its pod is seen with a deletion timestamp, and stays if that is missed",
		reconciler: watchingPods,
		scenario:   shrinking(),
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
