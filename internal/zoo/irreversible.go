package zoo

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const irreversibleClass = "irreversible"

// irreversible are bugs of operators that wait for what a bad spec has broken before they look at the next spec.
var irreversible = []bug{
	{
		published:  "humio/humio-operator#210",
		class:      irreversibleClass,
		mistake:    "all pods must be ready before reconciliation goes on, and the pods of a bad spec never are",
		reconciler: waiting(func(ready, there int64, _ bool) bool { return ready < there }),
		scenario:   goodBadGood(),
	}, {
		published:  "FoundationDB/fdb-kubernetes-operator#281",
		class:      irreversibleClass,
		mistake:    "a step before the one that changes pods needs a running pod",
		reconciler: waiting(func(ready, there int64, _ bool) bool { return there > 0 && ready == 0 }),
		scenario:   goodBadGood(),
		rightOf:    "humio/humio-operator#210",
	}, {
		published:  "k8ssandra/cass-operator#334",
		class:      irreversibleClass,
		mistake:    "the stateful set is not touched while an update of it is under way, and a bad one never ends",
		reconciler: waiting(func(_, _ int64, updating bool) bool { return updating }),
		scenario:   goodBadGood(),
		rightOf:    "humio/humio-operator#210",
	}, {
		published:  "redpanda-data/redpanda-operator#196",
		class:      irreversibleClass,
		mistake:    "a changed spec is not looked at while a broker crashes",
		reconciler: waiting(func(ready, there int64, updating bool) bool { return ready != there || updating }),
		scenario:   goodBadGood(),
		rightOf:    "humio/humio-operator#210",
	}, {
		published:  "kubernetes/kubernetes#67250",
		class:      irreversibleClass,
		mistake:    "a pod that is not ready is waited for, even if its template is not the one that is asked for",
		reconciler: rolling,
		scenario:   goodBadGood(),
		heldBack:   true,
	}, {
		published: "xlab-uiuc/acto#209",
		class:     irreversibleClass,
		mistake: "leaders that are not ready are waited for before their own stateful set gets the spec that mends " +
			"them",
		reconciler: leading,
		scenario:   goodBadGood(replacing(false)),
		heldBack:   true,
		long:       true,
	}, {
		published: "valkey-io/valkey-operator#357",
		class:     irreversibleClass,
		mistake: "the stateful set of a pod that does not start is mended, and nothing replaces the pod, since the " +
			"controller of stateful sets waits for it",
		reconciler: nodes,
		scenario:   goodBadGood(replacing(true)),
		heldBack:   true,
		long:       true,
	},
}

// goodBadGood applies a spec that works, one that does not, and the first one again.
func goodBadGood(more ...duty) reconciletest.Scenario {
	good, bad := spec{"replicas": 2, "image": "good"}, spec{"replicas": 2, "image": badImage}
	s := scenario(good, bad, good)
	s.Beside = []func(context.Context, *rest.Config) error{standIn(append(more, fill, tend)...)}
	s.Settled = func(s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		for _, m := range all(s, members) {
			if text(m, "status", "image") != text(c, "spec", "image") {
				return fmt.Errorf("%s runs %q, and the Cluster asks for %q", m.GetName(), text(m, "status", "image"),
					text(c, "spec", "image"))
			}
		}
		if len(all(s, members)) != 2 {
			return errors.New("members are missing")
		}
		return nil
	}
	return s
}

// waiting makes the Set, and gives its Members the Cluster's image one after the other. blocks says that it waits.
func waiting(blocks func(ready, there int64, updating bool) bool) func(fixed bool) reconciler {
	return func(fixed bool) reconciler {
		return func(ctx context.Context, w *world, key types.NamespacedName) error {
			c, err := w.live(ctx, clusters, key.Namespace, key.Name)
			if c == nil || err != nil {
				return err
			}
			var ready, there int64
			updating := false
			all := w.list(members, key.Namespace, key.Name)
			for _, m := range all {
				there++
				status, _ := m.Object["status"].(map[string]any)
				if status["ready"] == true {
					ready++
				}
				updating = updating || text(m, "status", "image") != text(m, "spec", "image") ||
					status["ready"] == false
			}
			if !fixed && there > 0 && blocks(ready, there, updating) {
				return nil // an event comes when a Member changes
			}
			image := text(c, "spec", "image")
			if err := w.ensureSet(ctx, c, spec{"count": number(c, "spec", "replicas"), "image": image}); err != nil {
				return err
			}
			for _, m := range all {
				if text(m, "spec", "image") == image || m.GetDeletionTimestamp() != nil {
					continue
				}
				m = m.DeepCopy()
				set(m, image, "spec", "image")
				if err := w.update(ctx, members, m); err != nil {
					return err
				}
			}
			return nil
		}
	}
}

// rolling makes Members, each when the one before it is ready, and replaces those with another image, the last one
// first.
func rolling(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		image := text(c, "spec", "image")
		var old *object
		for i := range number(c, "spec", "replicas") {
			m, err := w.live(ctx, members, key.Namespace, ordinal(c.GetName(), i))
			if err != nil {
				return err
			}
			if m == nil {
				m = child(c, members, ordinal(c.GetName(), i), spec{"image": image})
				return w.create(ctx, members, m)
			}
			if text(m, "spec", "image") != image {
				old = m
			}
			if status, _ := m.Object["status"].(map[string]any); status["ready"] == true {
				continue
			}
			if fixed && old == m {
				return w.delete(ctx, members, key.Namespace, m.GetName(), m.GetUID())
			}
			return nil // an event comes when the Member is ready
		}
		if old != nil {
			return w.delete(ctx, members, key.Namespace, old.GetName(), old.GetUID())
		}
		return nil
	}
}

// leading has a Set of one leader and, when that is ready, a Set of one follower.
func leading(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		for _, role := range []string{"leader", "follower"} {
			s, err := w.live(ctx, sets, key.Namespace, c.GetName()+"-"+role)
			if err != nil {
				return err
			}
			ready := false
			if s != nil {
				m, err := w.live(ctx, members, key.Namespace, ordinal(s.GetName(), 0))
				if err != nil {
					return err
				}
				ready = m != nil && isReady(m)
			}
			if s != nil && !ready && !fixed {
				return nil // its address is needed; an event comes when it is ready
			}
			if changed, err := w.setImage(ctx, c, s, c.GetName()+"-"+role); changed || err != nil {
				return err // an event comes
			}
			if !ready {
				return nil // an event comes when it is
			}
		}
		return nil
	}
}

// setImage gives a Set of one Member the image of its Cluster, and makes it if it is nil. It reports whether there was
// something to do.
func (w *world) setImage(ctx context.Context, c, s *object, name string) (bool, error) {
	image := text(c, "spec", "image")
	switch {
	case s == nil:
		return true, w.create(ctx, sets, child(c, sets, name, spec{"count": int64(1), "image": image}))
	case text(s, "spec", "image") != image:
		set(s, image, "spec", "image")
		return true, w.update(ctx, sets, s)
	}
	return false, nil
}

// nodes has a Set of one Member for each replica, and changes the image of one after the other.
func nodes(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		for i := range number(c, "spec", "replicas") {
			name := ordinal(c.GetName(), i)
			s, err := w.live(ctx, sets, key.Namespace, name)
			if err != nil {
				return err
			}
			if changed, err := w.setImage(ctx, c, s, name); changed || err != nil {
				return err // an event comes
			}
			m, err := w.live(ctx, members, key.Namespace, ordinal(name, 0))
			if err != nil {
				return err
			}
			if m != nil && isReady(m) && text(m, "spec", "image") == text(s, "spec", "image") {
				continue
			}
			if fixed && m != nil && !isReady(m) && text(m, "spec", "image") != text(s, "spec", "image") {
				return w.delete(ctx, members, key.Namespace, m.GetName(), m.GetUID())
			}
			return nil // an event comes when the Member is ready
		}
		return nil
	}
}
