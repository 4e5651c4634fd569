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

// CreateOwned creates an object under a fixed name, controlled by the owner, and may be repeated: if the object exists
// already, and the owner controls it, that is a success.
//
// So it is safe to call when it is unknown whether the object was created: after a timeout, after a restart, or before
// the cache shows it. It needs a name that the next call uses again, such as the owner's with a suffix; with a
// GenerateName the object would be created twice.
//
// It returns the object as the server has it: the one just created, or the existing one, which may differ from child or
// be in deletion. If the name belongs to an object that the owner does not control, the error is a [*TakenError]. child
// is not changed.
func CreateOwned[T informer.Object](ctx context.Context, owner *Owner, client Creator[T], child T) (T, error) {
	var none T
	switch err := owner.check(); {
	case err != nil:
		return none, fmt.Errorf("CreateOwned: %w", err)
	case client == nil:
		return none, errors.New("CreateOwned: the client is nil")
	case kube.IsNil(child):
		return none, errors.New("CreateOwned: the object is nil")
	case child.GetName() == "":
		return none, fmt.Errorf("CreateOwned: the object for %s has no name (GenerateName %q), so the "+
			"next call could not find it again", owner, child.GetGenerateName())
	}
	child = copyOf(child)
	if child.GetNamespace() == "" {
		child.SetNamespace(owner.defaultNamespace())
	}
	key := informer.KeyOf(child)
	fail := func(err error) (T, error) { return none, fmt.Errorf("create %s for %s: %w", key, owner, err) }
	switch ours, taken := owner.controls(child); {
	case !owner.reaches(key.Namespace):
		return fail(errors.New("its owner is in another namespace, where the garbage collector does not find it: it " +
			"would delete the object"))
	case taken && !ours:
		return fail(fmt.Errorf("it has a controller: %s", metav1.GetControllerOfNoCopy(child).Name))
	}
	owner.mark(child)

	created, err := client.Create(ctx, child, metav1.CreateOptions{})
	switch {
	case err == nil:
		return created, nil
	case !apierrors.IsAlreadyExists(err):
		return fail(err)
	}
	existing, getErr := client.Get(ctx, key.Name, metav1.GetOptions{})
	if getErr != nil {
		// NotFound: it has just been deleted, so the next call succeeds.
		return fail(fmt.Errorf("it exists already, but: %w", getErr))
	}
	if ours, _ := owner.controls(existing); !ours {
		return none, owner.takenBy(existing, err)
	}
	return existing, nil
}

// TakenError says that an object could not be created because another one, which the owner does not control, has its
// name. A retry is useless until that object is removed or, if it has no controller, adopted (see [Claim] and
// [ApplyOwned]).
type TakenError struct {
	Key        informer.Key
	Owner      string
	Controller *metav1.OwnerReference // of the object with that name; nil if it has none
	Label      string                 // another owner's mark on it, if Owner owns by that label: see [Owner.ByLabel]
	Err        error                  // the server's: AlreadyExists; nil if the object was seen before the request
}

// takenBy is the error for a name that the owner cannot have.
func (o *Owner) takenBy(existing metav1.Object, err error) error {
	taken := &TakenError{Key: informer.KeyOf(existing), Owner: o.String(),
		Controller: metav1.GetControllerOf(existing), Err: err}
	if o.label != "" {
		taken.Label = existing.GetAnnotations()[o.label]
	}
	return taken
}

func (e *TakenError) Error() string {
	by := "an object that has no controller"
	switch c := e.Controller; {
	case c != nil:
		by = fmt.Sprintf("an object that %s %s (UID %s) controls", c.Kind, c.Name, c.UID)
	case e.Label != "":
		by = "an object that " + e.Label + " owns by its label"
	}
	return fmt.Sprintf("create %s for %s: the name is taken by %s", e.Key, e.Owner, by)
}

// Unwrap returns the server's error.
func (e *TakenError) Unwrap() error { return e.Err }
