package zoo

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	},
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
