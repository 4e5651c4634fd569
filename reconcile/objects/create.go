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

// CreateOwned creates an object under a name of its own choice, controlled by the owner, and may be repeated: if the
// object is there already, and is the owner's, that is a success.
//
// That makes it safe to create something although nobody knows whether it has been created: after a timeout, after a
// restart, or when the cache does not show it yet. It needs a name that the next attempt will arrive at again, such as
// the owner's with a suffix; what is created under a GenerateName is created twice.
//
// It returns the object as the server has it: what was created now, or what was created before, which may differ from
// what is wanted by now, or be on its way out. If the name belongs to an object that the owner does not control, the
// error is a [*TakenError]. child is not changed.
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
		return none, fmt.Errorf("CreateOwned: the object for %s has no name (GenerateName %q): it would not be "+
			"known again", owner, child.GetGenerateName())
	}
	child = copyOf(child)
	if child.GetNamespace() == "" {
		child.SetNamespace(owner.key.Namespace)
	}
	key := informer.KeyOf(child)
	fail := func(err error) (T, error) { return none, fmt.Errorf("create %s for %s: %w", key, owner, err) }
	switch ours, taken := owner.controls(child); {
	case !owner.reaches(key.Namespace):
		return fail(errors.New("an owner in another namespace is not found by the garbage collector, which would " +
			"delete the object"))
	case taken && !ours:
		return fail(fmt.Errorf("it has a controller: %s", metav1.GetControllerOfNoCopy(child).Name))
	}
	child.SetOwnerReferences(owner.added(child.GetOwnerReferences()))

	created, err := client.Create(ctx, child, metav1.CreateOptions{})
	switch {
	case err == nil:
		return created, nil
	case !apierrors.IsAlreadyExists(err):
		return fail(err)
	}
	existing, getErr := client.Get(ctx, key.Name, metav1.GetOptions{})
	if getErr != nil {
		// a NotFound says that it has just gone, so the next attempt will do
		return fail(fmt.Errorf("it exists already, but: %w", getErr))
	}
	if ours, _ := owner.controls(existing); !ours {
		return none, &TakenError{Key: key, Owner: owner.String(), Controller: metav1.GetControllerOf(existing),
			Err: err}
	}
	return existing, nil
}

// TakenError says that an object could not be created because one that is not the owner's has its name. Trying again is
// useless until somebody removes the object, or, if it has no controller, adopts it (see [Claim]).
type TakenError struct {
	Key        informer.Key
	Owner      string
	Controller *metav1.OwnerReference // of the object that is there; nil if it has none
	Err        error                  // of the server: AlreadyExists
}

func (e *TakenError) Error() string {
	by := "an object that has no controller"
	if c := e.Controller; c != nil {
		by = fmt.Sprintf("an object that %s %s (UID %s) controls", c.Kind, c.Name, c.UID)
	}
	return fmt.Sprintf("create %s for %s: the name is taken by %s", e.Key, e.Owner, by)
}

// Unwrap returns the server's error.
func (e *TakenError) Unwrap() error { return e.Err }
