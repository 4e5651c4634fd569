package zoo

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const crashClass = "crash"

// crash are bugs of operators that take the first of two writes for the sign that both were made.
var crash = []bug{
	{
		published:  "rabbitmq/cluster-operator#782",
		class:      crashClass,
		mistake:    "whether a claim has to grow is asked of the stateful set, which is made anew after a crash",
		reconciler: expanding(false),
		scenario:   growing(),
	}, {
		published:  "konpyutaika/nifikop#79",
		class:      crashClass,
		mistake:    "a pod that is there counts as set up, and a field that is written after it is missing for ever",
		reconciler: annotating,
		scenario:   downAndUp(spec{"replicas": 2}, spec{"replicas": 1}),
	}, {
		published:  "Orange-OpenSource/casskop#370",
		class:      crashClass,
		mistake:    "the pod is removed before the status says so, and without the pod the status does not move on",
		reconciler: decommissioning,
		scenario:   decommissioned(),
	}, {
		published:  "konpyutaika/nifikop#49",
		class:      crashClass,
		mistake:    "the pods are restarted if the status says so, which is written after the new configuration",
		reconciler: configuring,
		scenario:   configured(),
		heldBack:   true,
	},
}

// annotating marks a Member as ready for a graceful end in a second write, and removes only Members with the mark.
func annotating(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.cluster(ctx, key, true)
		if c == nil || err != nil {
			return err
		}
		for i := range number(c, "spec", "replicas") {
			name := ordinal(c.GetName(), i)
			v, err := w.live(ctx, volumes, key.Namespace, name)
			if err != nil {
				return err
			}
			created := v == nil
			if created {
				v = child(c, volumes, name, spec{"ordinal": i})
				if err := w.create(ctx, volumes, v); err != nil {
					return err
				}
			}
			if created || fixed && v.GetAnnotations()["action"] == "" {
				if v, err = w.live(ctx, volumes, key.Namespace, name); err != nil || v == nil {
					return err
				}
				set(v, "UpscaleSucceeded", "metadata", "annotations", "action")
				if err := w.update(ctx, volumes, v); err != nil {
					return err
				}
			}
		}
		for _, v := range w.list(volumes, key.Namespace, key.Name) {
			if number(v, "spec", "ordinal") < number(c, "spec", "replicas") || v.GetAnnotations()["action"] == "" {
				continue
			}
			if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), v.GetUID()); err != nil {
				return err
			}
		}
		return nil
	}
}

// decommissioned is a Cluster that is scaled down.
func decommissioned() reconciletest.Scenario {
	s := scenario(spec{"replicas": 2}, spec{"replicas": 1})
	s.Mask = func(o *object) { delete(o.Object, "status") } // which step was the last one is no part of the end
	s.Settled = func(s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		if n := int64(len(all(s, volumes))); n != number(c, "spec", "replicas") || n != int64(len(all(s, members))) {
			return fmt.Errorf("there are %d volumes and %d members", n, len(all(s, members)))
		}
		return nil
	}
	return s
}

// decommissioning removes a Member and then its Volume, in steps that it notes in the status: Ongoing until the Member
// is gone, Finalizing until the Volume is gone.
func decommissioning(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		want, phase, victim := number(c, "spec", "replicas"), text(c, "status", "phase"), text(c, "status", "victim")
		move := func(phase, victim string) error {
			c := c.DeepCopy()
			set(c, map[string]any{"phase": phase, "victim": victim}, "status")
			return w.updateStatus(ctx, clusters, c)
		}
		switch phase {
		case "Ongoing":
			m, err := w.live(ctx, members, key.Namespace, victim)
			if err != nil {
				return err
			}
			if m == nil && !fixed {
				return fmt.Errorf("pod %s not found", victim) // for ever, if the crash came before the next status
			}
			if m != nil {
				if err := w.delete(ctx, members, key.Namespace, victim, m.GetUID()); err != nil {
					return err
				}
			}
			return move("Finalizing", victim)
		case "Finalizing":
			if err := w.delete(ctx, volumes, key.Namespace, victim, ""); err != nil {
				return err
			}
			return move("Done", "")
		}
		for i := range want {
			for _, name := range []string{members, volumes} {
				err := w.create(ctx, name, child(c, name, ordinal(c.GetName(), i), spec{"ordinal": i}))
				if err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
		}
		victim = ordinal(c.GetName(), want)
		m, err := w.live(ctx, members, key.Namespace, victim)
		if err != nil {
			return err
		}
		if m != nil {
			return move("Ongoing", victim)
		}
		v, err := w.live(ctx, volumes, key.Namespace, victim) // of an earlier Cluster of this name
		if err != nil || v == nil {
			return err
		}
		return move("Finalizing", victim)
	}
}

// configured is a Cluster that gets a new configuration.
func configured() reconciletest.Scenario {
	s := scenario(spec{"config": "one"}, spec{"config": "two"})
	s.Settled = func(s *reconciletest.Server) error {
		c, m := held(s, clusters, "a"), held(s, members, "a-0")
		if m == nil || text(m, "spec", "config") != text(c, "spec", "config") {
			return fmt.Errorf("the member does not run with the configuration %q", text(c, "spec", "config"))
		}
		return nil
	}
	return s
}

// configuring keeps the configuration of a Cluster in a Volume, and starts the Member anew when it has changed.
func configuring(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		want, name := text(c, "spec", "config"), ordinal(c.GetName(), 0)
		move := func(config string) error {
			set(c, map[string]any{"config": config}, "status")
			return w.updateStatus(ctx, clusters, c)
		}
		v, err := w.live(ctx, volumes, key.Namespace, name)
		switch {
		case err != nil:
			return err
		case v == nil:
			return w.create(ctx, volumes, child(c, volumes, name, spec{"config": want}))
		case text(v, "spec", "config") != want:
			set(v, want, "spec", "config")
			if err := w.update(ctx, volumes, v); err != nil {
				return err
			}
			return move("OutOfSync")
		}
		m, err := w.live(ctx, members, key.Namespace, name)
		switch {
		case err != nil:
			return err
		case m == nil:
			return w.create(ctx, members, child(c, members, name, spec{"config": want}))
		case text(m, "spec", "config") != want && (fixed || text(c, "status", "config") == "OutOfSync"):
			return w.delete(ctx, members, key.Namespace, name, m.GetUID())
		case text(c, "status", "config") != "InSync":
			return move("InSync")
		}
		return nil
	}
}
