package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Finalize ties something outside of the cluster to an object: it is cleaned up before the object goes. Call it at the
// beginning of every Reconcile:
//
//	bucket, alive, err := objects.Finalize(ctx, client, bucket, "example.com/bucket",
//		func(ctx context.Context) (bool, error) { return true, cloud.Delete(ctx, bucket.Spec.Name) })
//	if err != nil || !alive {
//		return reconcile.Result{}, err
//	}
//	// From here on the finalizer is in place: create the bucket.
//
// While the object is not being deleted, Finalize adds the finalizer if it is missing, and returns true and the object
// as it is then. So nothing that is made afterwards can outlive the object. Once the object is being deleted, Finalize
// returns false. As long as the finalizer is there it calls cleanup, and removes the finalizer when cleanup returns
// true. If cleanup returns false, the finalizer stays, and the next Reconcile calls cleanup again: return
// Result.RequeueAfter, unless an event will bring the key back.
//
// cleanup must be idempotent, and succeed if there is nothing to clean up. It is called again after an error of its
// own, when the finalizer could not be removed, when the process ended before that, and until the cache shows the
// removal.
//
// A write holds only if the object and its finalizers are those that were seen; finalizers of others are never touched.
// If they have changed the error is 422 Invalid, and the key should be retried; changes of anything else do not matter.
// If the object is gone when the finalizer is to be removed, that is a success; when it is to be added, the error is
// [ErrGone]. After a timeout the next call sees whether the finalizer is there.
func Finalize[T informer.Object](ctx context.Context, client Patcher[T], o T, finalizer string,
	cleanup func(context.Context) (done bool, err error)) (T, bool, error) {
	fail := func(format string, args ...any) (T, bool, error) {
		var none T
		return none, false, fmt.Errorf(format, args...)
	}
	switch problems := validation.IsQualifiedName(finalizer); {
	case client == nil:
		return fail("Finalize: the client is nil")
	case kube.IsNil(o):
		return fail("Finalize: the object is nil")
	case cleanup == nil:
		return fail("Finalize: the function is nil")
	case len(problems) > 0:
		return fail("Finalize: the finalizer %q: %s", finalizer, strings.Join(problems, "; "))
	case !strings.Contains(finalizer, "/"):
		return fail("Finalize: the finalizer %q has no domain in front, as in example.com/%s", finalizer, finalizer)
	case o.GetUID() == "":
		return fail("Finalize: %w", errNotRead(informer.KeyOf(o).String(), "UID"))
	}
	key, seen := informer.KeyOf(o), o.GetFinalizers()
	present := slices.Contains(seen, finalizer)
	switch deleting := o.GetDeletionTimestamp() != nil; {
	case deleting && present:
		// clean up, below
	case deleting:
		return o, false, nil
	case present:
		return o, true, nil
	default:
		// The server refuses if the object is being deleted by now: then it takes no new finalizers.
		marked, err := changeMetadata(ctx, client, o,
			[]change{{"finalizers", seen, append(slices.Clip(seen), finalizer)}})
		if err != nil {
			return fail("add the finalizer %s to %s: %w", finalizer, key, gone(key.Name, err))
		}
		return marked, true, nil
	}

	switch done, err := cleanup(ctx); {
	case err != nil:
		return fail("clean up for the finalizer %s of %s: %w", finalizer, key, err)
	case !done:
		return o, false, nil
	}
	others := slices.DeleteFunc(slices.Clone(seen), func(f string) bool { return f == finalizer })
	switch released, err := changeMetadata(ctx, client, o, []change{{"finalizers", seen, others}}); {
	case err == nil:
		return released, false, nil
	case errors.Is(gone(key.Name, err), ErrGone):
		return o, false, nil
	default:
		return fail("remove the finalizer %s from %s: %w", finalizer, key, err)
	}
}
