package zoo

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const downUpClass = "stale: old spec"

// downUp are bugs of operators that start again with an old cache, which shows a Cluster that is scaled down, or a
// Member that goes, although it was scaled up again since.
var downUp = []bug{
	{
		published:  "pravega/zookeeper-operator#314",
		class:      downUpClass,
		mistake:    "claims above the number of replicas are deleted by a spec that may be old",
		reconciler: pruning,
		scenario:   downAndUp(spec{"replicas": 2}, spec{"replicas": 1}),
	}, {
		published:  "elastic/cloud-on-k8s#5274",
		class:      downUpClass,
		mistake:    "the stateful set is scaled to a spec that may be old",
		reconciler: scaling,
		scenario:   downAndUp(spec{"replicas": 2}, spec{"replicas": 1}),
	}, {
		published:  "instaclustr/cassandra-operator#407",
		class:      downUpClass,
		mistake:    "the claim of a pod that is being deleted is deleted by its name, which the next pod has as well",
		reconciler: following,
		scenario:   downAndUp(spec{"replicas": 2}, spec{"replicas": 1}),
	}, {
		published: "rabbitmq/cluster-operator#653",
		class:     downUpClass,
		mistake: "the stateful set is deleted if its capacity differs, even if it is larger, as if that could " +
			"shrink",
		reconciler: expanding(true),
		scenario:   growing(),
	},
}

// downAndUp applies two specs, and the first one again. What is in use must never be deleted.
func downAndUp(up, down spec) reconciletest.Scenario {
	s := scenario(up, down, up)
	s.Beside = []func(context.Context, *rest.Config) error{beside}
	s.Always = func(w reconciletest.Write, s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		if c == nil || c.GetDeletionTimestamp() != nil {
			return nil
		}
		switch {
		case w.Resource.Resource == volumes && w.New == nil &&
			number(w.Old, "spec", "ordinal") < number(c, "spec", "replicas"):
			return fmt.Errorf("%s is in use, and its data is lost", w.Old.GetName())
		case w.Resource.Resource == sets && w.New != nil && w.Old != nil &&
			number(w.New, "spec", "count") < number(c, "spec", "replicas"):
			return fmt.Errorf("the set is scaled to %d, and the Cluster asks for %d", number(w.New, "spec", "count"),
				number(c, "spec", "replicas"))
		}
		return nil
	}
	return s
}

// pruning deletes the Volumes above the number of replicas.
func pruning(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.cluster(ctx, key, fixed)
		if c == nil || err != nil {
			return err
		}
		for _, v := range w.list(volumes, key.Namespace, key.Name) {
			if number(v, "spec", "ordinal") < number(c, "spec", "replicas") {
				continue
			}
			uid := types.UID("")
			if fixed {
				uid = v.GetUID()
			}
			if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), uid); err != nil {
				return err
			}
		}
		return w.numberedVolumes(ctx, c)
	}
}

// numberedVolumes makes the Volumes of a Cluster that are missing.
func (w *world) numberedVolumes(ctx context.Context, c *object) error {
	for i := range number(c, "spec", "replicas") {
		name := ordinal(c.GetName(), i)
		if w.get(volumes, c.GetNamespace(), name) != nil {
			continue
		}
		if err := w.create(ctx, volumes, child(c, volumes, name, spec{"ordinal": i})); err != nil {
			return err
		}
	}
	return nil
}

// scaling writes the number of replicas into the Set.
func scaling(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.cluster(ctx, key, fixed)
		if c == nil || err != nil {
			return err
		}
		return w.ensureSet(ctx, c, spec{"count": number(c, "spec", "replicas"), "image": text(c, "spec", "image")})
	}
}

// ensureSet makes the Set of a Cluster what it should be.
func (w *world) ensureSet(ctx context.Context, c *object, want spec) error {
	s := w.get(sets, c.GetNamespace(), c.GetName())
	if s == nil {
		return w.create(ctx, sets, child(c, sets, c.GetName(), want))
	}
	s = s.DeepCopy()
	before := s.DeepCopy()
	for field, value := range want {
		set(s, value, "spec", field)
	}
	if equal(before, s) {
		return nil
	}
	return w.update(ctx, sets, s)
}

// following scales the Set, and deletes the Volume of each Member that is being deleted.
func following(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.cluster(ctx, key, true)
		if c == nil || err != nil {
			return err
		}
		for _, m := range w.list(members, key.Namespace, key.Name) {
			if m.GetDeletionTimestamp() == nil ||
				fixed && m.GetLabels()["ordinal"] < fmt.Sprint(number(c, "spec", "replicas")) {
				continue
			}
			if err := w.delete(ctx, volumes, key.Namespace, m.GetName(), ""); err != nil {
				return err
			}
		}
		for i := range number(c, "spec", "replicas") {
			name := ordinal(c.GetName(), i)
			if m := w.get(members, key.Namespace, name); w.get(volumes, key.Namespace, name) != nil ||
				m != nil && m.GetDeletionTimestamp() != nil {
				continue
			}
			err := w.create(ctx, volumes, child(c, volumes, name, spec{"ordinal": i}))
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		// A Volume that no Member will ask for any more, since its Member went unseen.
		for _, v := range w.list(volumes, key.Namespace, key.Name) {
			if i := number(v, "spec", "ordinal"); i >= number(c, "spec", "replicas") {
				if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), v.GetUID()); err != nil {
					return err
				}
			}
		}
		return w.ensureSet(ctx, c, spec{"count": number(c, "spec", "replicas")})
	}
}

// growing is a Cluster that gets a larger capacity.
func growing() reconciletest.Scenario {
	s := scenario(spec{"capacity": 10}, spec{"capacity": 15})
	s.Always = func(w reconciletest.Write, s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		if c == nil || w.Resource.Resource != sets || w.New != nil {
			return nil
		}
		if number(w.Old, "spec", "capacity") == number(c, "spec", "capacity") {
			return fmt.Errorf("the set has the capacity that the Cluster asks for, and is deleted")
		}
		return nil
	}
	s.Settled = func(s *reconciletest.Server) error {
		c, v := held(s, clusters, "a"), held(s, volumes, "a-0")
		switch {
		case v == nil || held(s, sets, "a") == nil:
			return fmt.Errorf("the volume or the set is missing")
		case number(v, "spec", "capacity") != number(c, "spec", "capacity"):
			return fmt.Errorf("the volume has the capacity %d, and the Cluster asks for %d",
				number(v, "spec", "capacity"), number(c, "spec", "capacity"))
		}
		return nil
	}
	return s
}

// expanding gives a Cluster's Volume a new capacity: it deletes the Set, whose template cannot change, changes the
// Volume, and makes the Set anew. crashSafe: it looks at the Volume, too, and not only at the Set.
func expanding(crashSafe bool) func(fixed bool) reconciler {
	return func(fixed bool) reconciler {
		return func(ctx context.Context, w *world, key types.NamespacedName) error {
			c, err := w.cluster(ctx, key, fixed)
			if c == nil || err != nil {
				return err
			}
			want := number(c, "spec", "capacity")
			v := w.get(volumes, key.Namespace, ordinal(c.GetName(), 0))
			s, err := w.live(ctx, sets, key.Namespace, c.GetName())
			if err != nil {
				return err
			}
			if v == nil {
				return w.create(ctx, volumes, child(c, volumes, ordinal(c.GetName(), 0), spec{"capacity": want}))
			}
			resize := s != nil && number(s, "spec", "capacity") != want
			if crashSafe && fixed {
				resize = s != nil && number(s, "spec", "capacity") < want
			}
			if resize {
				if err := w.delete(ctx, sets, key.Namespace, s.GetName(), s.GetUID()); err != nil {
					return err
				}
			}
			if resize || (crashSafe || fixed) && number(v, "spec", "capacity") < want {
				v = v.DeepCopy()
				set(v, want, "spec", "capacity")
				if err := w.update(ctx, volumes, v); err != nil {
					return err
				}
			}
			if s == nil || resize {
				return w.create(ctx, sets, child(c, sets, c.GetName(), spec{"capacity": want, "count": int64(0)}))
			}
			return nil
		}
	}
}

// equal compares two objects.
func equal(a, b *object) bool {
	x, errX := a.MarshalJSON()
	y, errY := b.MarshalJSON()
	return errX == nil && errY == nil && slices.Equal(x, y)
}
