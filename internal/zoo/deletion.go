package zoo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const deletionClass = "deletion"

// deletion are bugs of operators in what they do when somebody deletes an object that has their finalizer.
var deletion = []bug{
	{
		published: "pravega/zookeeper-operator#410",
		class:     deletionClass,
		mistake: "when the finalizer is removed, the same call goes on as for a cluster that lives, and makes the " +
			"claims again that it has just deleted",
		reconciler: cleaningUp,
		scenario:   deleted(),
		heldBack:   true,
	}, {
		published: "external-secrets/external-secrets#3609",
		class:     deletionClass,
		mistake: "the finalizer is removed by what the policy Delete asks for, and nothing removes it when the " +
			"policy has become another one",
		reconciler: pushing,
		scenario:   pushed(),
		heldBack:   true,
	}, {
		published:  "kubernetes-sigs/kueue#1451",
		class:      deletionClass,
		mistake:    "a group of pods that is not complete is not looked at, and its deleted pods keep their finalizer",
		reconciler: grouping,
		scenario:   grouped(),
		heldBack:   true,
	},
}

// deleted is a Cluster that is deleted.
func deleted() reconciletest.Scenario {
	s := scenario(spec{"replicas": 2})
	s.Steps = append(s.Steps, reconciletest.Delete(clusters+"."+group.Group, "default", "a"))
	s.Settled = func(s *reconciletest.Server) error {
		want := int64(0)
		if c := held(s, clusters, "a"); c != nil {
			want = number(c, "spec", "replicas")
		}
		if there := int64(len(all(s, volumes))); there != want {
			return fmt.Errorf("there are %d volumes, and not %d", there, want)
		}
		return nil
	}
	return s
}

// cleaningUp makes the Set and the Volumes of a Cluster, and deletes the Volumes before that goes.
func cleaningUp(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		finalized := slices.Contains(c.GetFinalizers(), finalizer)
		switch deleting := c.GetDeletionTimestamp() != nil; {
		case !deleting && !finalized:
			return w.finalizers(ctx, c, finalizer) // an event comes
		case deleting && finalized:
			there, err := w.listLive(ctx, volumes, key.Namespace, key.Name)
			if err != nil {
				return err
			}
			for _, v := range there {
				if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), v.GetUID()); err != nil {
					return err
				}
			}
			if err := w.finalizers(ctx, c); err != nil || fixed {
				return err
			}
		case deleting && fixed:
			return nil
		}
		if err := w.ensureSet(ctx, c, spec{"count": number(c, "spec", "replicas")}); err != nil {
			return err
		}
		return w.numberedVolumes(ctx, c)
	}
}

// pushed is a Cluster whose policy changes before it is deleted.
func pushed() reconciletest.Scenario {
	s := scenario(spec{"policy": "Delete", "value": "one"}, spec{"policy": "None", "value": "one"})
	s.Steps = append(s.Steps, reconciletest.Delete(clusters+"."+group.Group, "default", "a"))
	s.Settled = func(s *reconciletest.Server) error {
		if c := held(s, clusters, "a"); c != nil && c.GetDeletionTimestamp() != nil {
			return fmt.Errorf("the Cluster is still there, with the finalizers %q", c.GetFinalizers())
		}
		return nil
	}
	return s
}

// pushing writes the value of a Cluster into a Volume that outlives it, unless the policy is Delete.
func pushing(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		v, err := w.live(ctx, volumes, key.Namespace, key.Name)
		if err != nil {
			return err
		}
		deleting, finalized := c.GetDeletionTimestamp() != nil, slices.Contains(c.GetFinalizers(), finalizer)
		switch remove := text(c, "spec", "policy") == "Delete"; {
		case remove && !deleting && !finalized:
			return w.finalizers(ctx, c, finalizer) // an event comes
		case remove && deleting && finalized:
			if v != nil {
				if err := w.delete(ctx, volumes, key.Namespace, v.GetName(), v.GetUID()); err != nil {
					return err
				}
			}
			return w.finalizers(ctx, c)
		case !remove && finalized && fixed:
			return w.finalizers(ctx, c)
		case deleting:
			return nil
		}
		value := text(c, "spec", "value")
		switch {
		case v == nil:
			return w.create(ctx, volumes, child(c, volumes, c.GetName(), spec{"value": value}))
		case text(v, "spec", "value") != value:
			set(v, value, "spec", "value")
			return w.update(ctx, volumes, v)
		}
		return nil
	}
}

// grouped is a group of two Members, of which the first one is deleted before the second one comes, and made again.
// The finalizer is put on by a webhook, in place of which the manifests have it.
func grouped() reconciletest.Scenario {
	member := func(name string) string {
		data, err := json.Marshal(map[string]any{"apiVersion": group.String(), "kind": "Member",
			"metadata": map[string]any{"name": name, "namespace": "default", "finalizers": []string{finalizer},
				"labels": map[string]any{"cluster": "a"}}, "spec": spec{"total": 2}})
		if err != nil {
			panic(err)
		}
		return string(data)
	}
	s := scenario()
	s.Steps = reconciletest.ApplyYAML(member("a-0"), member("a-0")+"\n---\n"+member("a-1"))
	s.Steps = slices.Insert(s.Steps, 1, reconciletest.Delete(members+"."+group.Group, "default", "a-0"))
	s.Settled = func(s *reconciletest.Server) error {
		for _, m := range all(s, members) {
			if m.GetDeletionTimestamp() != nil {
				return fmt.Errorf("%s is still there, with the finalizers %q", m.GetName(), m.GetFinalizers())
			}
		}
		if held(s, sets, "a") == nil {
			return errors.New("there is no set for the group")
		}
		return nil
	}
	return s
}

// grouping makes a Set for each group of Members that is complete, and lets Members go that are deleted. It is called
// with the name of a group, which is that of a Cluster elsewhere.
func grouping(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		there, err := w.listLive(ctx, members, key.Namespace, key.Name)
		if err != nil {
			return err
		}
		s, err := w.live(ctx, sets, key.Namespace, key.Name)
		if err != nil {
			return err
		}
		gone := func(m *object) bool { return m.GetDeletionTimestamp() != nil }
		left := slices.DeleteFunc(slices.Clone(there), gone)
		complete := len(left) > 0 && int64(len(left)) >= number(left[0], "spec", "total")
		if s == nil && !complete && !fixed {
			return nil // an event comes with the next Member
		}
		for _, m := range there {
			if !gone(m) || len(m.GetFinalizers()) == 0 {
				continue
			}
			m.SetFinalizers(nil)
			if err := w.update(ctx, members, m); err != nil {
				return err
			}
		}
		switch {
		case s == nil && complete:
			return w.create(ctx, sets, groupSet(key, left))
		case s != nil && (len(left) == 0 || complete && !slices.Equal(ownersOf(s), uids(left))):
			return w.delete(ctx, sets, key.Namespace, s.GetName(), s.GetUID()) // an event comes
		}
		return nil
	}
}

// groupSet is the Set of a group, which goes with the last one of its Members.
func groupSet(key types.NamespacedName, of []*object) *object {
	o := &object{Object: map[string]any{"spec": spec{"count": int64(len(of))}}}
	o.SetGroupVersionKind(group.WithKind(kinds[sets]))
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	o.SetLabels(map[string]string{"cluster": key.Name})
	var owners []metav1.OwnerReference
	for _, m := range of {
		owners = append(owners, metav1.OwnerReference{APIVersion: m.GetAPIVersion(), Kind: m.GetKind(),
			Name: m.GetName(), UID: m.GetUID()})
	}
	o.SetOwnerReferences(owners)
	return o
}

// ownersOf and uids return UIDs in their order.
func ownersOf(o *object) (all []types.UID) {
	for _, owner := range o.GetOwnerReferences() {
		all = append(all, owner.UID)
	}
	return slices.Sorted(slices.Values(all))
}

func uids(of []*object) (all []types.UID) {
	for _, o := range of {
		all = append(all, o.GetUID())
	}
	return slices.Sorted(slices.Values(all))
}
