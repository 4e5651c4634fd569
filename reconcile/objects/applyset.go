package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// ApplySet makes the objects that an owner controls exactly those that are wanted: it applies each of them as
// [ApplyOwned] does, and deletes those that were wanted before and no longer are. It may be called in each Reconcile,
// and sends nothing if everything is as it should be.
//
//	outcomes, err := objects.ApplySet(ctx, owner, metav1.ApplyOptions{FieldManager: "tenants", Force: true},
//		objects.Children(r.quotas.In, r.quotasByOwner.Get(tenant.UID), quota(tenant)).Exactly(".spec.hard"),
//		objects.Children(r.bindings.In, r.bindingsByOwner.Get(tenant.UID), bindings(tenant)...).
//			Replace(metav1.DeletePropagationBackground))
//
// The parts are applied in their order, so name first what the others need, such as their namespace. All are tried,
// even if one fails: the error joins the failures, and the outcomes say what became of each object. What is not wanted
// is deleted only when all that is wanted is there: in the opposite order, and a part at a time, when the objects of
// the parts behind it are gone. So a set that wants nothing takes down what it has built, which is what the clean-up of
// [Finalize] needs: it is done when there is no [Outcome], provided that the cache shows what the calls before it have
// made. The loop of package reconcile waits for that.
//
// What is wanted in a namespace is applied even if that namespace turned out to be another's, since all are tried. So
// want it only when the cache shows the namespace as the owner's. And what should go with its namespace, such as a
// NetworkPolicy that holds pods back to the end, is left out of the objects that were seen while the namespace goes:
// what was not seen is not deleted.
//
// ApplySet deletes only what the owner controls and opts.FieldManager has applied, as the managedFields of an object
// say: that is the record of what was wanted before. Objects that the owner has from [CreateOwned] or [Claim] stay.
// Where a Transform of the informer removes managedFields the record is missing, and ApplySet returns an error. A kind
// that is no longer named as a part is not looked at: name it, and want nothing of it, as long as there may be some.
//
// The labels and annotations of kubectl's ApplySets (KEP-3659) are not written: they tell the owner by its name only,
// and every change of the kinds is one more write of the owner.
func ApplySet(ctx context.Context, owner *Owner, opts metav1.ApplyOptions, parts ...Part) ([]Outcome, error) {
	if err := owner.check(); err != nil {
		return nil, fmt.Errorf("ApplySet: %w", err)
	}
	kinds := map[string]int{}
	for i, part := range parts {
		if part == nil {
			return nil, fmt.Errorf("ApplySet: part %d is nil", i)
		}
		if err := part.check(owner); err != nil {
			return nil, fmt.Errorf("ApplySet: part %d: %w", i, err)
		}
		for _, kind := range part.kinds() {
			if first, ok := kinds[kind]; ok && first != i {
				return nil, fmt.Errorf("ApplySet: parts %d and %d are both of %s: each would delete what the other "+
					"wants", first, i, kind)
			}
			kinds[kind] = i
		}
	}
	var outcomes []Outcome
	for _, part := range parts {
		outcomes = append(outcomes, part.apply(ctx, owner, opts)...)
	}
	settled := !slices.ContainsFunc(outcomes, func(o Outcome) bool {
		return o.Effect == Failed || o.Effect == Replacing
	})
	for _, part := range slices.Backward(parts) {
		if !settled {
			break
		}
		going := part.prune(ctx, owner, opts)
		outcomes, settled = append(outcomes, going...), len(going) == 0
	}
	var failures []error
	for _, o := range outcomes {
		failures = append(failures, o.Err)
	}
	return outcomes, errors.Join(failures...) // leaves out those that are nil
}

// Outcome is what [ApplySet] has done with one object.
type Outcome struct {
	Kind   string
	Key    informer.Key
	Effect Effect
	Err    error // why it failed
}

// Effect is that of an [ApplySet] on one object.
type Effect string

// The effects.
const (
	Kept      Effect = "kept"      // it is as wanted
	Applied   Effect = "applied"   // it was created or changed
	Replacing Effect = "replacing" // it is being deleted, and is made anew when it is gone
	Deleting  Effect = "deleting"  // it is no longer wanted, and is not gone yet
	Failed    Effect = "failed"    // see Err
)

// Part is the objects of one kind in an [ApplySet]: see [Children].
type Part interface {
	check(*Owner) error
	kinds() []string // no two parts have one of them in common
	apply(context.Context, *Owner, metav1.ApplyOptions) []Outcome
	prune(context.Context, *Owner, metav1.ApplyOptions) []Outcome
}

// Children is the part of an [ApplySet] for one kind. client returns the client for a namespace, which is empty for
// cluster-scoped objects: the method In of an [informer.Resource], or a method of a clientset such as
// clientset.CoreV1().ConfigMaps. seen are the objects from a cache: all that the owner controls, and it does not matter
// if there are more. Each of configs is as for [ApplyOwned].
func Children[T informer.Object, C Replacer[T]](client func(namespace string) C, seen iter.Seq[T],
	configs ...any) *ChildrenOf[T] {
	c := &ChildrenOf[T]{seen: seen, configs: configs}
	if client != nil {
		c.client = func(namespace string) Replacer[T] { return client(namespace) }
	}
	return c
}

// ChildrenOf is a [Part], and what holds for its objects.
type ChildrenOf[T informer.Object] struct {
	client  func(namespace string) Replacer[T]
	seen    iter.Seq[T]
	configs []any

	exact       []string
	propagation *metav1.DeletionPropagation // nil: none is replaced
	adopt       func(T) bool

	trees []*unstructured.Unstructured // of configs, in the same order
}

// Exactly makes maps and lists exactly what is configured: see [Exactly].
func (c *ChildrenOf[T]) Exactly(fields ...string) *ChildrenOf[T] {
	c.exact = fields
	return c
}

// Replace replaces an object that cannot be changed: see [ReplaceOwned].
func (c *ChildrenOf[T]) Replace(propagation metav1.DeletionPropagation) *ChildrenOf[T] {
	c.propagation = &propagation
	return c
}

// Adopt takes over an object that nobody controls, if the function says so: see [ApplyOwned].
func (c *ChildrenOf[T]) Adopt(adopt func(T) bool) *ChildrenOf[T] {
	c.adopt = adopt
	return c
}

func (c *ChildrenOf[T]) check(owner *Owner) error {
	switch {
	case c == nil:
		return errors.New("it is nil")
	case c.client == nil:
		return errors.New("the function that returns the client is nil")
	case c.seen == nil:
		return errors.New("the objects that were seen are nil")
	}
	names := map[informer.Key]bool{}
	c.trees = nil
	for _, config := range c.configs {
		tree, err := ownedTree(owner, config)
		if err != nil {
			return err
		}
		if names[informer.KeyOf(tree)] {
			return fmt.Errorf("there are two configurations of %s", informer.KeyOf(tree))
		}
		names[informer.KeyOf(tree)] = true
		c.trees = append(c.trees, tree)
	}
	for _, field := range c.exact {
		if _, err := pathOf(field); err != nil {
			return err
		}
	}
	return nil
}

func (c *ChildrenOf[T]) kinds() (kinds []string) {
	t := reflect.TypeFor[T]()
	if t != reflect.TypeFor[*unstructured.Unstructured]() {
		return []string{t.String()}
	}
	for _, tree := range c.trees {
		kinds = append(kinds, tree.GroupVersionKind().GroupKind().String())
	}
	for o := range c.seen {
		kinds = append(kinds, o.GetObjectKind().GroupVersionKind().GroupKind().String())
	}
	return kinds
}

func (c *ChildrenOf[T]) apply(ctx context.Context, owner *Owner, opts metav1.ApplyOptions) (outcomes []Outcome) {
	seen := map[informer.Key]T{}
	for o := range c.seen {
		seen[informer.KeyOf(o)] = o
	}
	for _, tree := range c.trees {
		key := informer.KeyOf(tree)
		a := &ownedApply[T]{owner: owner, client: c.client(key.Namespace), tree: tree, opts: opts, adopt: c.adopt}
		effect, err := c.applyOne(ctx, a, seen[key])
		outcomes = append(outcomes, Outcome{tree.GetKind(), key, effect, err})
	}
	return outcomes
}

func (c *ChildrenOf[T]) applyOne(ctx context.Context, a *ownedApply[T], seen T) (Effect, error) {
	client := c.client(a.tree.GetNamespace())
	now, err := a.run(ctx, seen)
	refused := apierrors.IsInvalid(err)
	if err == nil && len(a.opts.DryRun) == 0 { // a dry run has added nothing that could be removed
		now, err = exactly(ctx, client, now, a.tree.Object, c.exact)
	}
	switch {
	case err == nil && now.GetDeletionTimestamp() != nil:
		return Replacing, nil
	case err == nil && !kube.IsNil(seen) && now.GetResourceVersion() == seen.GetResourceVersion():
		return Kept, nil
	case err == nil:
		return Applied, nil
	case kube.IsNil(seen) || c.propagation == nil || !refused:
		return Failed, err
	}
	if ours, _ := a.owner.controls(seen); !ours {
		return Failed, err
	}
	if err = replaceOwned(ctx, a, client, seen, *c.propagation, err); err != nil {
		return Failed, err
	}
	return Replacing, nil
}

// prune deletes what was wanted before. It returns an outcome for each object that is not gone.
func (c *ChildrenOf[T]) prune(ctx context.Context, owner *Owner, opts metav1.ApplyOptions) (outcomes []Outcome) {
	wanted := map[informer.Key]bool{}
	for _, tree := range c.trees {
		wanted[informer.KeyOf(tree)] = true
	}
	for _, o := range slices.SortedFunc(c.seen, byKey[T]) {
		key := informer.KeyOf(o)
		if ours, _ := owner.controls(o); !ours || wanted[key] {
			continue
		}
		outcome := Outcome{Kind: kindOf(o), Key: key, Effect: Deleting}
		switch applied, err := appliedBy(o, opts.FieldManager); {
		case err != nil:
			outcome.Effect, outcome.Err = Failed, err
		case !applied:
			continue
		case o.GetDeletionTimestamp() == nil:
			err := c.client(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{DryRun: opts.DryRun,
				PropagationPolicy: new(metav1.DeletePropagationBackground),
				Preconditions:     asSeen(o)})
			if err != nil && !apierrors.IsNotFound(err) {
				outcome.Effect, outcome.Err = Failed, fmt.Errorf("delete %s of %s: %w", key, owner, err)
			}
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes
}

// byKey orders objects, so that a set does the same each time: caches have no order.
func byKey[T informer.Object](a, b T) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// asSeen is the precondition that an object is as it was seen: it may have another owner by now.
func asSeen(o metav1.Object) *metav1.Preconditions {
	return &metav1.Preconditions{UID: new(o.GetUID()), ResourceVersion: new(o.GetResourceVersion())}
}

// kindOf is the kind that an object carries or, as objects from a typed client carry none, the name of its type.
func kindOf(o informer.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(o).Elem().Name()
}

// appliedBy reports whether a manager has applied an object.
func appliedBy(o metav1.Object, manager string) (bool, error) {
	entries := o.GetManagedFields()
	if len(entries) == 0 {
		return false, fmt.Errorf("%s has no managedFields, so it cannot be told whether it was wanted before: keep "+
			"them in the cache", informer.KeyOf(o))
	}
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	}), nil
}
