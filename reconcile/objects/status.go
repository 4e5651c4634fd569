package objects

import (
	"context"
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// UpdateStatus writes the status of an object if it has to change, and returns the object as it is then.
//
//	_, err := objects.UpdateStatus(ctx, clientset.AppsV1().ReplicaSets(rs.Namespace), rs,
//		func(rs *appsv1.ReplicaSet) error {
//			rs.Status.Replicas, rs.Status.ObservedGeneration = n, rs.Generation
//			return nil
//		})
//
// seen is the object that was reconciled, usually from a cache; it is not changed. set is given a copy and changes its
// status; the server ignores changes of anything else. Parts of the status that set leaves alone stay, such as the
// conditions of others. If set changes nothing or returns an error, nothing is sent.
//
// The write holds only if the object is still at the version of seen. After a conflict UpdateStatus reads the object
// and calls set again for the newest version. So set may be called twice, and must depend only on its argument and on
// what was observed. In both calls the argument has the generation of seen, because that is the spec which was
// reconciled: a status must not claim to be about a spec that was not.
//
// If the second write conflicts, too, the error is a conflict ([apierrors.IsConflict]); retry later. If the object does
// not exist any more, or another one has its name, the error wraps [ErrGone]. After a timeout it is unknown whether the
// status was written; the next call compares, and writes it if needed.
func UpdateStatus[T informer.Object](ctx context.Context, client StatusUpdater[T], seen T, set func(T) error) (T,
	error) {
	var none T
	switch {
	case client == nil:
		return none, errors.New("UpdateStatus: the client is nil")
	case kube.IsNil(seen):
		return none, errors.New("UpdateStatus: the object is nil")
	case set == nil:
		return none, errors.New("UpdateStatus: the function is nil")
	}
	fail := func(err error) (T, error) {
		return none, fmt.Errorf("update the status of %s: %w", informer.KeyOf(seen), err)
	}
	if seen.GetResourceVersion() == "" {
		// A write would overwrite a status that was not seen.
		return fail(errNotRead("the object", "resourceVersion"))
	}

	newest := seen
	for attempt := 1; ; attempt++ {
		want := copyOf(newest)
		want.SetGeneration(seen.GetGeneration())
		if err := set(want); err != nil {
			return fail(err)
		}
		want.SetGeneration(newest.GetGeneration())
		if apiequality.Semantic.DeepEqual(newest, want) {
			return newest, nil
		}
		written, err := client.UpdateStatus(ctx, want, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return written, nil
		case attempt == 2 || !apierrors.IsConflict(err):
			return fail(gone(seen.GetName(), err))
		}
		newest, err = client.Get(ctx, seen.GetName(), metav1.GetOptions{})
		switch {
		case err != nil:
			return fail(gone(seen.GetName(), err))
		case newest.GetUID() != seen.GetUID():
			return fail(replaced(seen.GetUID(), newest.GetUID()))
		}
	}
}
