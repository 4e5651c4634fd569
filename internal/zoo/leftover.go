package zoo

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const leftOverClass = "left over"

// leftOver are bugs of controllers that keep a note of what was asked for, and trust it when something else is.
var leftOver = []bug{
	{
		published: "kubernetes/kubernetes#138036",
		class:     leftOverClass,
		mistake: "a set that has the right size already keeps its note of the size before, and as long as a note is " +
			"old, there is no rollout",
		reconciler: deploying,
		scenario:   deployed(),
		heldBack:   true,
	},
}

// deployed is a Cluster that gets a new image, another size, and a third image.
func deployed() reconciletest.Scenario {
	s := scenario(spec{"replicas": 2, "image": "one"}, spec{"replicas": 2, "image": "two"},
		spec{"replicas": 1, "image": "two"}, spec{"replicas": 1, "image": "three"})
	s.Beside = []func(context.Context, *rest.Config) error{beside}
	s.Settled = func(s *reconciletest.Server) error {
		c, there := held(s, clusters, "a"), all(s, sets)
		if len(there) != 1 || text(there[0], "spec", "image") != text(c, "spec", "image") ||
			number(there[0], "spec", "count") != number(c, "spec", "replicas") {
			return fmt.Errorf("there are %d sets, and not one of the image %q with %d members", len(there),
				text(c, "spec", "image"), number(c, "spec", "replicas"))
		}
		return nil
	}
	return s
}

// deploying has a Set for each image, of which the new one takes over from the others, one Member after the other, and
// never more Members than the Cluster asks for. Each Set has a note of how many that were; a change of that is dealt
// with before a change of the image.
func deploying(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		want, image := number(c, "spec", "replicas"), text(c, "spec", "image")
		name := c.GetName() + "-" + image
		var fresh *object
		var active, empty []*object // the new one is the last of the active ones
		var total int64
		for _, s := range w.list(sets, key.Namespace, key.Name) {
			switch n := number(s, "spec", "count"); {
			case s.GetName() == name:
				fresh = s
				total += n
			case n > 0:
				active = append(active, s)
				total += n
			default:
				empty = append(empty, s)
			}
		}
		old := slices.Clone(active)
		if fresh != nil && number(fresh, "spec", "count") > 0 {
			active = append(active, fresh)
		}
		if slices.ContainsFunc(active, func(s *object) bool { return number(s, "spec", "desired") != want }) {
			if len(active) == 1 && total == want && !fixed {
				return nil
			}
			return w.resize(ctx, active, total-want, want)
		}
		switch {
		case fresh == nil:
			return w.create(ctx, sets, child(c, sets, name, spec{"image": image, "count": int64(0), "desired": want}))
		case total < want:
			return w.resize(ctx, []*object{fresh}, total-want, want)
		case len(old) > 0 && w.ready(fresh) == number(fresh, "spec", "count"):
			return w.resize(ctx, old[:1], 1, want)
		case len(old) > 0:
			return nil // an event comes when a Member is ready
		}
		for _, s := range empty {
			if err := w.delete(ctx, sets, key.Namespace, s.GetName(), s.GetUID()); err != nil {
				return err
			}
		}
		return nil
	}
}

// resize takes Members from Sets, or adds some to the last one if the number is negative, and notes what is wanted.
func (w *world) resize(ctx context.Context, all []*object, less, want int64) error {
	for i, s := range all {
		n := number(s, "spec", "count")
		take := min(n, less)
		if less < 0 && i < len(all)-1 {
			take = 0
		}
		less -= take
		s = s.DeepCopy()
		set(s, n-take, "spec", "count")
		set(s, want, "spec", "desired")
		if err := w.update(ctx, sets, s); err != nil {
			return err
		}
	}
	return nil
}

// ready returns how many Members of a Set are ready.
func (w *world) ready(of *object) int64 {
	var n int64
	for _, m := range w.list(members, of.GetNamespace(), of.GetLabels()["cluster"]) {
		status, _ := m.Object["status"].(map[string]any)
		if m.GetLabels()["set"] == of.GetName() && status["ready"] == true && m.GetDeletionTimestamp() == nil {
			n++
		}
	}
	return n
}
