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

// Finalize ties something outside of the cluster to an object, so that it is cleaned up before the object goes. It is
// called at the beginning of every Reconcile:
//
//	bucket, alive, err := objects.Finalize(ctx, client, bucket, "example.com/bucket", func(ctx context.Context) (bool, error) {
//		return true, cloud.Delete(ctx, bucket.Spec.Name)
//	})
//	if err != nil || !alive {
//		return reconcile.Result{}, err
//	}
//	// From here on the finalizer is in place: make the bucket.
//
// While the object lives, Finalize sees to it that it has the finalizer, by a write of its own if need be, and returns
// true with the object as it is then. So whatever is made afterwards cannot outlive the object. Once the object is
// being deleted, Finalize returns false. It calls cleanup, as long as the finalizer is there, and removes the finalizer
// once cleanup has returned true. When cleanup returns false there is more to wait for: the finalizer stays, and the
// next Reconcile calls cleanup again; bring the key back with Result.RequeueAfter, unless an event will.
//
// cleanup must be idempotent, and succeed if there is nothing to clean up: it is called again after an error of its
// own, when the finalizer could not be removed, when the process died before that, and when the cache does not show the
// removal yet.
//
// A write holds only if the object is the one that was seen and its finalizers are those that were seen; the finalizers
// of others are never touched. If somebody was faster the error is 422, Invalid, and the key is to be retried; that
// does not happen when something else in the object has changed. An object that is gone when the finalizer is to be
// removed is a success; when the finalizer is to be added it is [ErrGone]. The same goes for an unknown outcome, such
// as a timeout: the next run sees whether the finalizer is there.
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
		// The one case that is left below.
	case deleting:
		return o, false, nil
	case present:
		return o, true, nil
	default:
		// If a deletion has come meanwhile, the server refuses: an object that is being deleted takes no new
		// finalizers.
		marked, err := replaceList(ctx, client, o, "finalizers", seen, append(slices.Clip(seen), finalizer))
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
	switch released, err := replaceList(ctx, client, o, "finalizers", seen, others); {
	case err == nil:
		return released, false, nil
	case errors.Is(gone(key.Name, err), ErrGone):
		return o, false, nil
	default:
		return fail("remove the finalizer %s from %s: %w", finalizer, key, err)
	}
}
