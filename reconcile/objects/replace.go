package objects

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Replacer applies and deletes objects.
type Replacer[T informer.Object] interface {
	Applier[T]
	Deleter
}

// ReplaceOwned deletes an object that the owner controls because the server refuses to change it to what was applied,
// such as the roleRef of a RoleBinding or the template of a Job. When it is gone, the key comes back, and [ApplyOwned]
// makes it anew. Call it with the arguments of an ApplyOwned that failed, and its error:
//
//	_, err := objects.ApplyOwned(ctx, owner, bindings.In(namespace), seen, config, lastWord, nil)
//	if apierrors.IsInvalid(err) {
//		err = objects.ReplaceOwned(ctx, owner, bindings.In(namespace), seen, config, lastWord,
//			metav1.DeletePropagationBackground, err)
//	}
//
// A nil error says that the deletion was asked for. refused is returned, with the reason, if nothing was deleted:
//
//   - It is another error than 422 Invalid, or the object is not the owner's.
//   - It names no field, as that of a policy or a webhook does that protects the object.
//   - The server would not take a new object either. It is asked with a dry run of the same configuration under another
//     name, so the right to create is needed. A webhook or a quota that does not allow the dry run ends it as well.
//   - The new object would be as the present one in what is configured and cannot be changed: a webhook sets it. To
//     replace it would go round in a circle.
//
// Where the dry run has no answer, as from a server that is busy, the error tells that instead of refused, which is
// final: retry later. The deletion holds only for the object as it was seen: if it has changed since, the error is a
// conflict ([apierrors.IsConflict]); retry later, too. What the object holds is lost, and what it owns goes as
// propagation says: do not replace what holds data.
func ReplaceOwned[T informer.Object](ctx context.Context, owner *Owner, client Replacer[T], seen T, config any,
	opts metav1.ApplyOptions, propagation metav1.DeletionPropagation, refused error) error {
	if err := owner.check(); err != nil {
		return fmt.Errorf("ReplaceOwned: %w", err)
	}
	switch {
	case client == nil:
		return errors.New("ReplaceOwned: the client is nil")
	case kube.IsNil(seen) || seen.GetDeletionTimestamp() != nil || !apierrors.IsInvalid(refused):
		return refused
	}
	if ours, _ := owner.controls(seen); !ours {
		return refused
	}
	tree, err := ownedTree(owner, config)
	if err != nil {
		return fmt.Errorf("ReplaceOwned: %w", err)
	}
	return replaceOwned(ctx, &ownedApply[T]{owner: owner, client: client, tree: tree, opts: opts}, client, seen,
		propagation, refused)
}

func replaceOwned[T informer.Object](ctx context.Context, a *ownedApply[T], client Deleter, seen T,
	propagation metav1.DeletionPropagation, refused error) error {
	key := informer.KeyOf(seen)
	stays := func(reason string, args ...any) error {
		return fmt.Errorf("%w; %s is not replaced: %w", refused, key, fmt.Errorf(reason, args...))
	}
	fields := fieldsOf(refused)
	if len(fields) == 0 {
		return stays("the refusal names no field that a new one could have in another way")
	}
	trial := *a
	trial.tree = a.tree.DeepCopy()
	trial.tree.SetName(otherName(seen))
	trial.opts.DryRun = []string{metav1.DryRunAll}
	anew, err := trial.create(ctx)
	switch {
	case err != nil && !answersTheObject(err):
		return fmt.Errorf("ask whether a new %s of %s would be taken: %w", key, a.owner, err)
	case err != nil:
		return stays("a new one would be refused, too: %w", err)
	}
	switch same, err := sameWhere(fields, a.tree, seen, anew); {
	case err != nil:
		return stays("compare it with a new one: %w", err)
	case same:
		return stays("a new one would be the same where it cannot be changed")
	}
	err = client.Delete(ctx, key.Name, metav1.DeleteOptions{PropagationPolicy: &propagation, DryRun: a.opts.DryRun,
		Preconditions: asSeen(seen)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s of %s, to make it anew: %w", key, a.owner, err)
	}
	return nil
}

// answersTheObject reports whether an error is the server's last word about an object. Any other one says nothing about
// it: the server is busy, cannot be reached, or its webhook fails.
func answersTheObject(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// otherName is a name like that of an object, which no object has: the same each time, so that a program does the same.
func otherName(o metav1.Object) string {
	const longest = 49 // of a name that all kinds take is 63
	name, h := o.GetName(), fnv.New64a()
	if len(name) > longest {
		name = name[:longest]
	}
	_, _ = h.Write([]byte(o.GetUID())) // never fails
	return strings.TrimRight(name, "-.") + "-" + strconv.FormatUint(h.Sum64(), 36)
}

// sameWhere reports whether two objects have the same values where the server refuses a change: in the fields that its
// error names, as far as they are configured. What the server fills in differs in each object.
func sameWhere[T informer.Object](fields [][]string, config *unstructured.Unstructured, seen, anew T) (bool, error) {
	is, _, err := treeOf(seen, nil)
	if err != nil {
		return false, err
	}
	would, _, err := treeOf(anew, nil)
	if err != nil {
		return false, err
	}
	for _, path := range fields {
		if !sameBelow(config.Object, is, would, path) {
			return false, nil
		}
	}
	return true, nil
}

// sameBelow compares two values below a path, as far as the configuration has it.
func sameBelow(config, is, would any, path []string) bool {
	for _, name := range path {
		name, _, element := strings.Cut(name, "[")
		fields, ok := config.(map[string]any)
		if !ok || fields[name] == nil {
			break
		}
		config, is, would = fields[name], valueAt(is, []string{name}), valueAt(would, []string{name})
		if element {
			break // in a list, whose elements need not be in one order
		}
	}
	return sameAsFarAs(config, is, would)
}

// sameAsFarAs reports whether two values are the same in all that is configured.
func sameAsFarAs(config, is, would any) bool {
	switch config := config.(type) {
	case map[string]any:
		for name, value := range config {
			if !sameAsFarAs(value, valueAt(is, []string{name}), valueAt(would, []string{name})) {
				return false
			}
		}
		return true
	case []any:
		a, _ := is.([]any)
		b, _ := would.([]any)
		if len(a) != len(b) || len(a) != len(config) {
			return reflect.DeepEqual(is, would)
		}
		for i, value := range config {
			if !sameAsFarAs(value, a[i], b[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(is, would)
}

// fieldsOf returns the paths of the fields that a refusal names. There are none if it names one of the metadata, such
// as an owner reference: that is no field which a new object would have in another way.
func fieldsOf(refused error) (paths [][]string) {
	var status apierrors.APIStatus
	if !errors.As(refused, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		path := strings.Split(cause.Field, ".")
		switch first, _, _ := strings.Cut(path[0], "["); first {
		case "metadata":
			return nil
		case "", "<nil>":
		default:
			paths = append(paths, path)
		}
	}
	return paths
}
