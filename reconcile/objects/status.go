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
//	_, err := objects.UpdateStatus(ctx, clientset.AppsV1().ReplicaSets(rs.Namespace), rs, func(rs *appsv1.ReplicaSet) error {
//		rs.Status.Replicas, rs.Status.ObservedGeneration = n, rs.Generation
//		return nil
//	})
//
// seen is the object that was looked at, usually from a cache; it is not changed. set is given a copy, puts in what the
// status should be, and leaves the rest alone, which the server would ignore. What it leaves of the status stays:
// others may have conditions there. If set changes nothing, nothing is sent, and if it returns an error, neither.
//
// The write holds only if the object is still at the version of seen. If it is not, the object is read from the server
// and set is called once more, for the newest version; so set may be called twice, and must depend on nothing but its
// argument and what was observed. The generation that it finds there is in both cases that of seen, because that is the
// one which was acted upon: a status must not claim to be about a spec that nobody has looked at.
//
// If the second write finds another change, the error is a conflict ([apierrors.IsConflict]); coming back after a while
// is the way on. If the object does not exist any more, or another one has its name, the error is [ErrGone]. After a
// timeout nobody knows whether the status was written; the next call compares, and writes it if need be.
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
		return fail(errNotRead("the object", "resourceVersion")) // a write would overwrite whatever is there, unseen
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
