package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// ApplyOwned makes a server-side apply of an object that the owner controls: it creates the object under the name in
// config, with an owner reference, and later gives its fields the values in config. It may be called in each Reconcile,
// since it sends nothing if the object is as it was applied.
//
//	config := batchv1ac.CronJob(backup.Name, backup.Namespace).WithSpec(...)
//	seen, _ := cronJobs.Get(key)
//	job, err := objects.ApplyOwned(ctx, owner, clientset.BatchV1().CronJobs(backup.Namespace), seen, config,
//		metav1.ApplyOptions{FieldManager: "cronbackup", Force: true}, nil)
//
// seen is the object from a cache, nil if there is none. config is an apply configuration of client-go or an
// *unstructured.Unstructured, with its kind and apiVersion. A plain struct is refused: all of its zero fields would be
// applied. opts are those of [Apply]. With opts.Force the owner has the last word on the fields in config: what other
// managers have set there is undone.
//
// What ApplyOwned does depends on who controls the object of that name:
//
//	no object       created
//	the owner       applied; returned as it is while it is being deleted
//	nothing         adopted and applied if adopt(object) is true; otherwise nothing is sent: *[TakenError]
//	another owner   nothing is sent: *[TakenError]
//
// adopt may be nil: then no object is adopted. As with [Claim], an owner that is being deleted adopts nothing, and the
// server is asked for the owner before an adoption.
//
// The cache lags, so each write has a condition that the server checks: to create, that there is no object of that
// name; to apply, that the object has the UID that was seen; to adopt, that it is at the version that was seen. An
// object that is not as expected is never changed. If there is a namesake that the cache has not shown, ApplyOwned
// reads it, once, and goes on by the table above. If the object is another one by now, the error is a conflict
// ([apierrors.IsConflict]) or 422 Invalid; retry later.
func ApplyOwned[T informer.Object](ctx context.Context, owner *Owner, client Applier[T], seen T, config any,
	opts metav1.ApplyOptions, adopt func(T) bool) (T, error) {
	var none T
	if err := owner.check(); err != nil {
		return none, fmt.Errorf("ApplyOwned: %w", err)
	}
	if client == nil {
		return none, errors.New("ApplyOwned: the client is nil")
	}
	tree, err := ownedTree(owner, config)
	if err != nil {
		return none, fmt.Errorf("ApplyOwned: %w", err)
	}
	a := &ownedApply[T]{owner: owner, client: client, tree: tree, opts: opts, adopt: adopt}
	return a.run(ctx, seen)
}

// ownedTree returns the configuration as a tree, with the owner reference, in the owner's namespace if it names none.
func ownedTree(owner *Owner, config any) (*unstructured.Unstructured, error) {
	if kube.IsNil(config) {
		return nil, errors.New("the configuration is nil")
	}
	if _, plain := config.(informer.Object); plain {
		if _, ok := config.(*unstructured.Unstructured); !ok {
			return nil, fmt.Errorf("the configuration is a %T, whose zero fields would be applied as well: use an "+
				"apply configuration, such as those of k8s.io/client-go/applyconfigurations", config)
		}
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("the configuration: %w", err)
	}
	tree := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &tree.Object); err != nil { // keeps integers
		return nil, fmt.Errorf("the configuration: %w", err)
	}
	if namespace := owner.defaultNamespace(); tree.GetNamespace() == "" && namespace != "" {
		tree.SetNamespace(namespace)
	}
	switch ours, taken := owner.controls(tree); {
	case tree.GetName() == "":
		return nil, errors.New("the configuration has no name")
	case tree.GetKind() == "" || tree.GetAPIVersion() == "":
		return nil, fmt.Errorf("the configuration of %s has no kind or no apiVersion", tree.GetName())
	case !owner.reaches(tree.GetNamespace()):
		return nil, fmt.Errorf("%s is in another namespace than its owner %s, where the garbage collector does not "+
			"find the owner: it would delete the object", informer.KeyOf(tree), owner)
	case taken && !ours:
		return nil, fmt.Errorf("the configuration of %s has another owner", informer.KeyOf(tree))
	}
	owner.mark(tree)
	return tree, nil
}

// ownedApply is one call of ApplyOwned.
type ownedApply[T informer.Object] struct {
	owner  *Owner
	client Applier[T]
	tree   *unstructured.Unstructured // what is applied
	opts   metav1.ApplyOptions
	adopt  func(T) bool
}

func (a *ownedApply[T]) run(ctx context.Context, seen T) (T, error) {
	if !kube.IsNil(seen) {
		return a.change(ctx, seen)
	}
	made, err := a.create(ctx)
	if !apierrors.IsConflict(err) { // in a field that another manager has set, too
		return made, err
	}
	existing, err := a.client.Get(ctx, a.tree.GetName(), metav1.GetOptions{})
	if err != nil {
		// NotFound: it has just been deleted, so the next call succeeds.
		var none T
		return none, fmt.Errorf("apply %s for %s: it exists already, but: %w", informer.KeyOf(a.tree), a.owner, err)
	}
	return a.change(ctx, existing)
}

// notThere is a version that makes an apply one that can only create: no object has it, and the server looks at it only
// if there is an object. A new object gets one of its own.
const notThere = "1"

// create applies the object if the server has none of its name.
func (a *ownedApply[T]) create(ctx context.Context) (T, error) {
	opts := a.opts
	opts.Force = false // a namesake has nothing of ours to be overruled
	return a.send(ctx, opts, func(o *unstructured.Unstructured) { o.SetResourceVersion(notThere) })
}

// change applies to an object that was seen, if it is the owner's, or to be.
func (a *ownedApply[T]) change(ctx context.Context, seen T) (T, error) {
	var none T
	if seen.GetUID() == "" {
		return none, fmt.Errorf("ApplyOwned: %w", errNotRead(informer.KeyOf(seen).String(), "UID"))
	}
	deleting := seen.GetDeletionTimestamp() != nil
	switch ours, taken := a.owner.controls(seen); {
	case ours && deleting, ours && hasApplied(a.tree, seen, a.opts.FieldManager):
		return seen, nil
	case ours:
		return a.send(ctx, a.opts, func(o *unstructured.Unstructured) {
			o.SetUID(seen.GetUID())
			if a.owner.label != "" { // others may have taken it; of two controllers the server takes one only
				o.SetResourceVersion(seen.GetResourceVersion())
			}
		})
	case taken || deleting || a.owner.deleting || a.adopt == nil || !a.adopt(seen):
		return none, a.owner.takenBy(seen, nil)
	}
	if err := a.owner.confirmAlive(ctx); err != nil {
		return none, fmt.Errorf("adopt %s for %s: %w", informer.KeyOf(seen), a.owner, err)
	}
	return a.send(ctx, a.opts, func(o *unstructured.Unstructured) {
		o.SetUID(seen.GetUID())
		o.SetResourceVersion(seen.GetResourceVersion())
	})
}

// send applies the tree under a condition.
func (a *ownedApply[T]) send(ctx context.Context, opts metav1.ApplyOptions,
	condition func(*unstructured.Unstructured)) (T, error) {
	o := a.tree.DeepCopy()
	condition(o)
	patch := func(ctx context.Context, o *unstructured.Unstructured, opts metav1.ApplyOptions) (T, error) {
		data, err := o.MarshalJSON()
		if err != nil {
			var none T
			return none, err
		}
		return a.client.Patch(ctx, o.GetName(), types.ApplyPatchType, data, opts.ToPatchOptions())
	}
	applied, err := Apply(ctx, patch, o, opts)
	if err != nil {
		err = fmt.Errorf("for %s: %w", a.owner, err)
	}
	return applied, err
}

// hasApplied reports whether the manager has applied to an object exactly the fields of a configuration, and they still
// have these values. When in doubt, such as about a quantity that the server writes in another way, it says no.
func hasApplied[T informer.Object](config *unstructured.Unstructured, seen T, name string) bool {
	is, _, err := treeOf(seen, nil)
	if err != nil {
		return false
	}
	want, _, err := treeOf(config, nil)
	if err != nil {
		return false
	}
	for _, entry := range seen.GetManagedFields() {
		if entry.Manager != name || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" ||
			entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if raw, err := entry.FieldsV1.MarshalJSON(); err != nil || json.Unmarshal(raw, &fields) != nil {
			return false
		}
		// The server does not list these.
		delete(want, "apiVersion")
		delete(want, "kind")
		if metadata, ok := want["metadata"].(map[string]any); ok {
			delete(metadata, "name")
			delete(metadata, "namespace")
		}
		return sameFields(want, is, fields)
	}
	return false
}

// sameFields reports whether the fields of a manager are those of a value, and an object has them with these values.
func sameFields(want, is any, fields map[string]any) bool {
	delete(fields, ".")
	if len(fields) == 0 {
		return reflect.DeepEqual(want, is)
	}
	switch want := want.(type) {
	case map[string]any:
		values, _ := is.(map[string]any)
		if len(want) != len(fields) {
			return false
		}
		for name, value := range want {
			below, ok := fields["f:"+name].(map[string]any)
			if !ok || !sameFields(value, values[name], below) {
				return false
			}
		}
		return true
	case []any:
		values, _ := is.([]any)
		if len(want) != len(fields) {
			return false
		}
		for key, below := range fields {
			i := slices.IndexFunc(want, func(element any) bool { return mayHave(element, key) })
			j := slices.IndexFunc(values, func(element any) bool { return matches(element)(key) })
			below, ok := below.(map[string]any)
			if i < 0 || j < 0 || !ok || !sameFields(want[i], values[j], below) {
				return false
			}
		}
		return true
	}
	return false
}

// mayHave reports whether an element of a configuration can be the one with the key, of which it may leave fields to
// the server's defaults.
func mayHave(element any, key string) bool {
	fields, ok := element.(map[string]any)
	text, keyed := strings.CutPrefix(key, "k:")
	var keys map[string]any
	if !ok || !keyed || utiljson.Unmarshal([]byte(text), &keys) != nil {
		return matches(element)(key)
	}
	for name, value := range keys {
		if fields[name] != nil && !reflect.DeepEqual(fields[name], value) {
			return false
		}
	}
	return true
}
