package zoo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const hotLoopClass = "hot loop"

// hotLoop are bugs of operators that write what wakes them.
var hotLoop = []bug{
	{
		published:  "operator-framework/operator-lifecycle-manager#1816",
		class:      hotLoopClass,
		mistake:    "the status lists components in the order of a Go map, another one each time",
		reconciler: listing("components", 40),
		scenario:   scenario(spec{"replicas": 1}),
	}, {
		published:  "IBM/operand-deployment-lifecycle-manager#436",
		class:      hotLoopClass,
		mistake:    "a new status is made in each run, with the requests in any order",
		reconciler: listing("requests", 30),
		scenario:   scenario(spec{"replicas": 1}),
		rightOf:    "operator-framework/operator-lifecycle-manager#1816",
	}, {
		published:  "RedHatInsights/clowder#148",
		class:      hotLoopClass,
		mistake:    "lists in the status are not ordered",
		reconciler: listing("deployments", 50),
		scenario:   scenario(spec{"replicas": 1}),
		rightOf:    "operator-framework/operator-lifecycle-manager#1816",
	}, {
		published:  "maistra/istio-operator#261",
		class:      hotLoopClass,
		mistake:    "the members of a mesh change their order in the status, and each update of it wakes the operator",
		reconciler: listing("configuredMembers", 35),
		scenario:   scenario(spec{"replicas": 1}),
		rightOf:    "operator-framework/operator-lifecycle-manager#1816",
	}, {
		published:  "infrawatch/service-telemetry-operator#141",
		class:      hotLoopClass,
		mistake:    "the time of the last transition is set in each run, and not when something has changed",
		reconciler: stamping,
		scenario:   scenario(spec{"replicas": 1}),
	}, {
		published:  "rajsinghtech/homer-operator#114",
		class:      hotLoopClass,
		mistake:    "fields that the server fills in or writes in another way count as drift",
		reconciler: comparing,
		scenario:   defaulted(),
	}, {
		published: "konflux-ci/konflux-ci#4442",
		class:     hotLoopClass,
		mistake: "conditions are removed and added again, with the time of now: another one whenever a second has " +
			"passed",
		reconciler: copying,
		scenario:   copied(),
		heldBack:   true,
	},
}

// listing writes a list of what there is into the status.
func listing(what string, n int) func(fixed bool) reconciler {
	return func(fixed bool) reconciler {
		return func(ctx context.Context, w *world, key types.NamespacedName) error {
			c, err := w.live(ctx, clusters, key.Namespace, key.Name)
			if c == nil || err != nil {
				return err
			}
			there := map[string]bool{}
			for i := range n {
				there[fmt.Sprintf("%s-%d", what, i)] = true
			}
			var list []any
			for name := range there {
				list = append(list, name)
			}
			if fixed {
				slices.SortFunc(list, func(a, b any) int {
					return slices.Compare([]byte(a.(string)),
						[]byte(b.(string)))
				})
			}
			before := c.DeepCopy()
			set(c, map[string]any{what: list}, "status")
			if equal(before, c) {
				return nil
			}
			return w.updateStatus(ctx, clusters, c)
		}
	}
}

// stamping writes a condition with the time.
func stamping(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		if fixed && text(c, "status", "ready") == "True" {
			return nil
		}
		set(c, map[string]any{"ready": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}, "status")
		return w.updateStatus(ctx, clusters, c)
	}
}

// defaulted is a Cluster whose Sets another controller gives a field.
func defaulted() reconciletest.Scenario {
	s := scenario(spec{"replicas": 1})
	s.Beside = append(s.Beside, sizing)
	return s
}

// comparing makes the Set equal to what it wants: with every field, or only with those that it sets.
func comparing(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		want := spec{"count": number(c, "spec", "replicas")}
		if fixed {
			return w.ensureSet(ctx, c, want)
		}
		s, err := w.live(ctx, sets, key.Namespace, key.Name)
		switch {
		case err != nil:
			return err
		case s == nil:
			return w.create(ctx, sets, child(c, sets, c.GetName(), want))
		}
		before := s.DeepCopy()
		s.Object["spec"] = want
		if equal(before, s) {
			return nil
		}
		return w.update(ctx, sets, s)
	}
}

// copied is a Cluster that is scaled down, and has a condition for each Member.
func copied() reconciletest.Scenario {
	s := scenario(spec{"replicas": 2}, spec{"replicas": 1})
	s.Beside = append(s.Beside, beside)
	s.Settled = func(s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
		for _, condition := range conditions {
			if condition.(map[string]any)["status"] != "True" {
				return fmt.Errorf("a condition is %v", condition)
			}
		}
		want := int(number(c, "spec", "replicas"))
		if len(conditions) != want || len(all(s, members)) != want {
			return fmt.Errorf("there are %d conditions and %d members", len(conditions), len(all(s, members)))
		}
		return nil
	}
	return s
}

// copying makes the Members of a Cluster, and copies into conditions of its status which of them are ready.
func copying(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		before := c.DeepCopy()
		conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
		if !fixed {
			conditions = nil
		}
		wanted := map[any]bool{}
		for i := range number(c, "spec", "replicas") {
			name := ordinal(c.GetName(), i)
			m, err := w.live(ctx, members, key.Namespace, name)
			if err != nil {
				return err
			}
			if m == nil {
				if err := w.create(ctx, members, child(c, members, name, spec{"image": "good"})); err != nil {
					return err
				}
			}
			wanted[name] = true
			conditions = setCondition(conditions, name, m != nil && isReady(m))
		}
		conditions = slices.DeleteFunc(conditions, func(c any) bool { return !wanted[c.(map[string]any)["type"]] })
		set(c, conditions, "status", "conditions")
		if !equal(before, c) {
			if err := w.updateStatus(ctx, clusters, c); err != nil {
				return err
			}
		}
		there, err := w.listLive(ctx, members, key.Namespace, key.Name)
		if err != nil {
			return err
		}
		for _, m := range there {
			if !wanted[m.GetName()] {
				if err := w.delete(ctx, members, key.Namespace, m.GetName(), m.GetUID()); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// setCondition gives a condition its status, and the time of now if that is another one than before.
func setCondition(all []any, name string, is bool) []any {
	condition := map[string]any{"type": name, "status": map[bool]string{true: "True", false: "False"}[is],
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
	i := slices.IndexFunc(all, func(c any) bool { return c.(map[string]any)["type"] == name })
	switch {
	case i < 0:
		return append(all, condition)
	case all[i].(map[string]any)["status"] != condition["status"]:
		all[i] = condition
	}
	return all
}
