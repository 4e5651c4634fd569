package zoo

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const writesClass = "own writes unseen"

// writes are bugs of controllers that look for what they have made in a cache that does not show it yet.
var writes = []bug{
	{
		published:  "ray-project/kuberay#715",
		class:      writesClass,
		mistake:    "a second head pod is made, since the cache does not show the first one",
		reconciler: counting(1),
		scenario:   neverMore(1),
	}, {
		published:  "kubernetes/kubernetes#129795",
		class:      writesClass,
		mistake:    "more pods are made than asked for, since the cache does not show all of them",
		reconciler: counting(3),
		scenario:   neverMore(3),
	}, {
		published: "ray-project/kuberay#4849",
		class:     writesClass,
		mistake: "two jobs are made for one tick, since their names are random and the cache does not show that the " +
			"tick was noted",
		reconciler: ticking,
		scenario:   scheduled(),
		heldBack:   true,
	},
}

// scheduled is a Cluster with a Member for each minute.
func scheduled() reconciletest.Scenario {
	s := scenario(spec{"every": 60})
	s.Steps = append(s.Steps, reconciletest.Wait(150*time.Second))
	s.Always = func(w reconciletest.Write, s *reconciletest.Server) error {
		if w.Resource.Resource != members || w.New == nil {
			return nil
		}
		for _, m := range all(s, members) {
			if number(m, "spec", "tick") == number(w.New, "spec", "tick") && m.GetUID() != w.New.GetUID() {
				return fmt.Errorf("%s and %s are of one tick", m.GetName(), w.New.GetName())
			}
		}
		return nil
	}
	s.Settled = func(s *reconciletest.Server) error {
		if len(all(s, members)) == 0 {
			return errors.New("there is no member")
		}
		return nil
	}
	return s
}

// ticking makes a Member at each full minute, or what the Cluster has in place of minutes, and notes in the status
// which one was the last. What was missed is left out, but for the last one.
func ticking(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.cluster(ctx, key, false)
		if c == nil || err != nil || c.GetDeletionTimestamp() != nil {
			return err
		}
		now, every, last := time.Now().Unix(), number(c, "spec", "every"), number(c, "status", "last")
		tick := now - now%every
		if last > 0 && tick > last {
			if err := w.makeTick(ctx, c, tick, fixed); err != nil {
				return err
			}
		}
		if tick > last {
			c = c.DeepCopy()
			set(c, map[string]any{"last": tick}, "status")
			if err := w.updateStatus(ctx, clusters, c); err != nil {
				return err
			}
		}
		again(ctx, time.Until(time.Unix(tick+every, 0)))
		return nil
	}
}

// makeTick makes the Member of a tick: with a generated name, or with one of which there can be one only.
func (w *world) makeTick(ctx context.Context, c *object, tick int64, named bool) error {
	m := child(c, members, "", spec{"tick": tick})
	if !named {
		m.SetGenerateName(c.GetName() + "-")
		return w.create(ctx, members, m)
	}
	m.SetName(ordinal(c.GetName(), tick/number(c, "spec", "every")))
	refused := w.create(ctx, members, m)
	if !apierrors.IsAlreadyExists(refused) {
		return refused
	}
	there, err := w.live(ctx, members, m.GetNamespace(), m.GetName())
	if err == nil && (there == nil || !metav1.IsControlledBy(there, c)) {
		return refused // it is of an earlier Cluster, and goes
	}
	return err
}

// neverMore is a Cluster that must never have more Members than it asks for.
func neverMore(n int) reconciletest.Scenario {
	s := scenario(spec{"replicas": n}, spec{"replicas": n, "note": "a change that asks for nothing new"})
	s.Always = func(w reconciletest.Write, s *reconciletest.Server) error {
		if there := len(all(s, members)); w.Resource.Resource == members && there > n {
			return fmt.Errorf("there are %d members, and %d were asked for", there, n)
		}
		return nil
	}
	s.Settled = func(s *reconciletest.Server) error {
		if there := len(all(s, members)); there != n {
			return fmt.Errorf("there are %d members", there)
		}
		return nil
	}
	return s
}

// counting makes as many Members as are missing, with generated names: by the cache, or under names of their own, of
// which there can be one each.
func counting(n int64) func(fixed bool) reconciler {
	return func(fixed bool) reconciler {
		return func(ctx context.Context, w *world, key types.NamespacedName) error {
			c, err := w.cluster(ctx, key, fixed)
			if c == nil || err != nil {
				return err
			}
			if c, err = w.noted(ctx, c); err != nil || c == nil {
				return err
			}
			for i := int64(len(w.list(members, key.Namespace, key.Name))); i < n && !fixed; i++ {
				m := child(c, members, "", spec{})
				m.SetGenerateName(c.GetName() + "-")
				if err := w.create(ctx, members, m); err != nil {
					return err
				}
			}
			for i := range n {
				if !fixed || w.get(members, key.Namespace, ordinal(c.GetName(), i)) != nil {
					continue
				}
				err := w.create(ctx, members, child(c, members, ordinal(c.GetName(), i), spec{}))
				if err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
			return nil
		}
	}
}

// noted writes the generation that was seen into the status, as controllers do. The write wakes the controller.
func (w *world) noted(ctx context.Context, c *object) (*object, error) {
	if number(c, "status", "observedGeneration") == c.GetGeneration() {
		return c, nil
	}
	c = c.DeepCopy()
	set(c, c.GetGeneration(), "status", "observedGeneration")
	err := w.updateStatus(ctx, clusters, c)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return c, err
}
