package zoo

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const earlierClass = "stale: namesake"

// earlier are bugs of operators that start again with an old cache. It shows the deletion of an object that is gone. An
// object of its name has been made since, and its children are taken for those of the old one.
var earlier = []bug{
	{
		published:  "k8ssandra/cass-operator#118",
		class:      earlierClass,
		mistake:    "claims are deleted by the name of their datacenter, and not by its UID",
		reconciler: cleaning(func(v, of *object) bool { return v.GetLabels()["cluster"] == of.GetName() }),
		scenario:   remade(),
	}, {
		published: "instaclustr/cassandra-operator#402",
		class:     earlierClass,
		mistake:   "claims are deleted by two fields of the spec that the new datacenter shares with the old one",
		reconciler: cleaning(func(v, of *object) bool {
			return text(v, "spec", "datacenter") == text(of, "spec", "datacenter") &&
				text(v, "spec", "ring") == text(of, "spec", "ring")
		}),
		scenario: remade(),
		rightOf:  "k8ssandra/cass-operator#118",
	}, {
		published: "Orange-OpenSource/casskop#316",
		class:     earlierClass,
		mistake:   "claims are deleted by names that are put together from cluster, datacenter and rack",
		reconciler: cleaning(func(v, of *object) bool {
			return strings.HasPrefix(v.GetName(), of.GetName()+"-")
		}),
		scenario: remade(),
		rightOf:  "k8ssandra/cass-operator#118",
	}, {
		published: "pravega/zookeeper-operator#312",
		class:     earlierClass,
		mistake:   "claims are deleted by namespace and name of the cluster",
		reconciler: cleaning(func(v, of *object) bool {
			return v.GetNamespace() == of.GetNamespace() && v.GetLabels()["cluster"] == of.GetName()
		}),
		scenario: remade(),
		rightOf:  "k8ssandra/cass-operator#118",
	}, {
		published:  "elastic/cloud-on-k8s#5249",
		class:      earlierClass,
		mistake:    "what belongs to a cluster that the cache does not show is deleted by the name of the cluster",
		reconciler: orphaning,
		scenario:   remade(),
		heldBack:   true,
	},
}

// remade is a Cluster that is deleted and made again.
func remade() reconciletest.Scenario {
	as := spec{"replicas": 2, "datacenter": "dc", "ring": "r"}
	s := scenario(as, as)
	s.Steps = []reconciletest.Step{s.Steps[0], reconciletest.Delete(clusters+"."+group.Group, "default", "a"),
		s.Steps[1]}
	s.Always = func(w reconciletest.Write, s *reconciletest.Server) error {
		if w.Resource.Resource != volumes || w.New != nil {
			return nil
		}
		if c := held(s, clusters, "a"); c != nil && c.GetDeletionTimestamp() == nil &&
			string(c.GetUID()) == w.Old.GetLabels()["uid"] {
			return fmt.Errorf("%s belongs to a Cluster that lives, and its data is lost", w.Old.GetName())
		}
		return nil
	}
	s.Settled = func(s *reconciletest.Server) error {
		if c := held(s, clusters, "a"); c != nil && int(number(c, "spec", "replicas")) != len(all(s, volumes)) {
			return fmt.Errorf("there are %d volumes", len(all(s, volumes)))
		}
		return nil
	}
	return s
}

// cleaning returns reconcilers that delete what belongs to a Cluster before that goes.
func cleaning(belongs func(volume, of *object) bool) func(fixed bool) reconciler {
	return func(fixed bool) reconciler {
		return func(ctx context.Context, w *world, key types.NamespacedName) error {
			c, err := w.cluster(ctx, key, fixed)
			if c == nil || err != nil {
				return err
			}
			if c.GetDeletionTimestamp() != nil {
				if len(c.GetFinalizers()) == 0 {
					return nil
				}
				for _, v := range w.list(volumes, key.Namespace, key.Name) {
					mine, uid := belongs(v, c), types.UID("")
					if fixed {
						mine, uid = v.GetLabels()["uid"] == string(c.GetUID()), v.GetUID()
					}
					if !mine {
						continue
					}
					if err := w.delete(ctx, volumes, v.GetNamespace(), v.GetName(), uid); err != nil {
						return err
					}
				}
				return w.finalizers(ctx, c)
			}
			if len(c.GetFinalizers()) == 0 {
				return w.finalizers(ctx, c, finalizer)
			}
			return w.fillVolumes(ctx, c)
		}
	}
}

// finalizers sets the finalizers of a Cluster.
func (w *world) finalizers(ctx context.Context, c *object, all ...string) error {
	c = c.DeepCopy()
	c.SetFinalizers(all)
	err := w.update(ctx, clusters, c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// fillVolumes makes a Cluster have as many Volumes as it has replicas.
func (w *world) fillVolumes(ctx context.Context, c *object) error {
	for i := range number(c, "spec", "replicas") {
		name := ordinal(c.GetName(), i)
		if w.get(volumes, c.GetNamespace(), name) != nil {
			continue
		}
		v := child(c, volumes, name, spec{"datacenter": text(c, "spec", "datacenter"), "ring": text(c, "spec", "ring")})
		v.SetLabels(map[string]string{"cluster": c.GetName(), "uid": string(c.GetUID())})
		if err := w.create(ctx, volumes, v); err != nil {
			return err
		}
	}
	return nil
}

// orphaning makes the Volumes of a Cluster, takes over those of an earlier one, and deletes them when the Cluster is
// gone. There is no finalizer.
func orphaning(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		if c := w.get(clusters, key.Namespace, key.Name); c != nil {
			for _, v := range w.list(volumes, key.Namespace, key.Name) {
				if v.GetLabels()["uid"] == string(c.GetUID()) {
					continue
				}
				v = v.DeepCopy()
				v.SetLabels(map[string]string{"cluster": c.GetName(), "uid": string(c.GetUID())})
				if err := w.update(ctx, volumes, v); err != nil {
					return err
				}
			}
			return w.fillVolumes(ctx, c)
		}
		if fixed {
			if c, err := w.live(ctx, clusters, key.Namespace, key.Name); c != nil || err != nil {
				return err
			}
		}
		for _, v := range w.list(volumes, key.Namespace, key.Name) {
			uid := types.UID("")
			if fixed {
				uid = v.GetUID()
			}
			if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), uid); err != nil {
				return err
			}
		}
		return nil
	}
}
