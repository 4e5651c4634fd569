package objects

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Deleter deletes objects.
type Deleter interface {
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// DeleteOwned deletes an object that the owner controls, and reports whether it is gone. The clean-up of [Finalize]
// calls it for what has to go before the owner does:
//
//	gone, err := objects.DeleteOwned(ctx, owner, cronJobs.In(key.Namespace), seen, metav1.DeletePropagationForeground)
//	if err != nil || !gone {
//		return false, err // its deletion brings the key back
//	}
//
// seen is the object from a cache, nil if there is none. An object that the owner does not control is left alone, and
// counts as gone. One that is being deleted is waited for, and nothing is sent. The request holds only for the object
// that was seen, by its UID: if another one has its name by now, the error is a conflict ([apierrors.IsConflict]);
// retry later. How what the object itself owns is deleted is up to propagation: with
// metav1.DeletePropagationForeground the object goes last.
func DeleteOwned[T informer.Object](ctx context.Context, owner *Owner, client Deleter, seen T,
	propagation metav1.DeletionPropagation) (gone bool, err error) {
	if err := owner.check(); err != nil {
		return false, fmt.Errorf("DeleteOwned: %w", err)
	}
	if client == nil {
		return false, errors.New("DeleteOwned: the client is nil")
	}
	if kube.IsNil(seen) {
		return true, nil
	}
	key := informer.KeyOf(seen)
	if seen.GetUID() == "" {
		return false, fmt.Errorf("DeleteOwned: %w", errNotRead(key.String(), "UID"))
	}
	switch ours, _ := owner.controls(seen); {
	case !ours:
		return true, nil
	case seen.GetDeletionTimestamp() != nil:
		return false, nil
	}
	err = client.Delete(ctx, key.Name, metav1.DeleteOptions{PropagationPolicy: &propagation,
		Preconditions: metav1.NewUIDPreconditions(string(seen.GetUID()))})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("delete %s of %s: %w", key, owner, err)
	}
	return false, nil // the cache will show that it is gone
}
