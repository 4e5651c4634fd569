package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Owner is an object that controls others: each of these has an owner reference to it with controller: true. An object
// can have only one such reference. The garbage collector deletes the controlled objects after their owner or, if a
// foreground deletion asks for that, before it (blockOwnerDeletion is set).
//
// Make one with [NewOwner] in each Reconcile: it holds the object as it was seen then. Safe for concurrent use.
type Owner struct {
	key       informer.Key
	deleting  bool
	reference metav1.OwnerReference
	live      func(context.Context) (metav1.Object, error)
	mistake   error // what NewOwner found; the helpers return it
}

// NewOwner makes the Owner for an object and its kind. Objects from a typed client do not carry their kind.
//
//	owner := objects.NewOwner(clientset.AppsV1().ReplicaSets(rs.Namespace), rs,
//		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
//
// [Claim] and [ApplyOwned] use the client to ask the server whether the object still exists, before they adopt.
// NewOwner returns no error: the helpers report a mistake, such as an object without a UID.
func NewOwner[T informer.Object](client Getter[T], seen T, kind schema.GroupVersionKind) *Owner {
	switch {
	case kube.IsNil(seen):
		return &Owner{mistake: errors.New("the owner is nil")}
	case client == nil:
		return &Owner{mistake: errors.New("the client of the owner is nil")}
	case kind.Version == "" || kind.Kind == "":
		return &Owner{mistake: fmt.Errorf("the owner's kind %q is incomplete", kind)}
	case seen.GetName() == "":
		return &Owner{mistake: errors.New("the owner has no name")}
	case seen.GetUID() == "":
		return &Owner{mistake: errNotRead("the owner "+informer.KeyOf(seen).String(), "UID")}
	}
	return &Owner{
		key:       informer.KeyOf(seen),
		deleting:  seen.GetDeletionTimestamp() != nil,
		reference: *metav1.NewControllerRef(seen, kind),
		live: func(ctx context.Context) (metav1.Object, error) {
			return client.Get(ctx, seen.GetName(), metav1.GetOptions{})
		},
	}
}

// Reference returns the owner reference for an object that is about to be created.
func (o *Owner) Reference() metav1.OwnerReference { return *o.reference.DeepCopy() }

func (o *Owner) String() string { return fmt.Sprintf("%s %s", o.reference.Kind, o.key) }

func (o *Owner) uid() types.UID { return o.reference.UID }

// check returns the mistake that NewOwner has found.
func (o *Owner) check() error {
	if o == nil {
		return errors.New("the owner is nil")
	}
	return o.mistake
}

// controls reports whether the owner controls the object (ours), and whether any owner does (taken).
func (o *Owner) controls(child metav1.Object) (ours, taken bool) {
	ref := metav1.GetControllerOfNoCopy(child)
	return ref != nil && ref.UID == o.uid(), ref != nil
}

// reaches reports whether the owner can own objects in that namespace: its own, or any if it is cluster-scoped.
func (o *Owner) reaches(namespace string) bool {
	return o.key.Namespace == "" || o.key.Namespace == namespace
}

// added returns the references with the owner's: instead of one to it without controller: true, or at the end. Other
// references stay.
func (o *Owner) added(refs []metav1.OwnerReference) []metav1.OwnerReference {
	refs = slices.Clone(refs)
	if i := slices.IndexFunc(refs, o.isReference); i >= 0 {
		refs[i] = o.Reference()
		return refs
	}
	return append(refs, o.Reference())
}

// removed returns the references without the owner's.
func (o *Owner) removed(refs []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), o.isReference)
}

func (o *Owner) isReference(ref metav1.OwnerReference) bool { return ref.UID == o.uid() }

// confirmAlive returns nil if the server has the owner, and it is not being deleted.
func (o *Owner) confirmAlive(ctx context.Context) error {
	live, err := o.live(ctx)
	switch {
	case err != nil:
		err = gone(o.key.Name, err)
	case live.GetUID() != o.uid():
		err = replaced(o.uid(), live.GetUID())
	case live.GetDeletionTimestamp() != nil:
		err = errors.New("it is being deleted")
	default:
		return nil
	}
	return fmt.Errorf("check that the owner %s still exists: %w", o, err)
}
