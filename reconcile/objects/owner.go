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
// foreground deletion asks for that, before it (blockOwnerDeletion is set). Where that would do harm, an owner marks
// its objects with a label: see [Owner.ByLabel].
//
// Make one with [NewOwner] in each Reconcile: it holds the object as it was seen then. Safe for concurrent use.
type Owner struct {
	key       informer.Key
	deleting  bool
	reference metav1.OwnerReference
	label     string // of what it owns, in place of an owner reference, if not empty
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
	if o.label != "" {
		uid, labelled := child.GetLabels()[o.label]
		return uid == string(o.uid()) && ref == nil, labelled || ref != nil // a controller copies labels to its own
	}
	return ref != nil && ref.UID == o.uid(), ref != nil
}

// reaches reports whether the owner can own objects in that namespace: its own, or any if it is cluster-scoped, or
// owns by a label.
func (o *Owner) reaches(namespace string) bool {
	return o.label != "" || o.key.Namespace == "" || o.key.Namespace == namespace
}

// defaultNamespace is that of an object which names none.
func (o *Owner) defaultNamespace() string {
	if o.label != "" {
		return "" // the object may be cluster-scoped
	}
	return o.key.Namespace
}

// mark makes an object that is about to be created, or applied, the owner's.
func (o *Owner) mark(child metav1.Object) {
	if o.label == "" {
		child.SetOwnerReferences(o.added(child.GetOwnerReferences()))
		return
	}
	child.SetLabels(with(child.GetLabels(), o.label, string(o.uid())))
	child.SetAnnotations(with(child.GetAnnotations(), o.label, o.key.String()))
}

// adopting and releasing are the changes that make an object the owner's, and that end this.
func (o *Owner) adopting(child metav1.Object) []change {
	refs := child.GetOwnerReferences()
	if o.label == "" {
		return []change{{"ownerReferences", refs, o.added(refs)}}
	}
	labels, annotations := child.GetLabels(), child.GetAnnotations()
	return []change{{"labels", labels, with(labels, o.label, string(o.uid()))},
		{"annotations", annotations, with(annotations, o.label, o.key.String())},
		{"ownerReferences", refs, refs}} // it still has no controller
}

func (o *Owner) releasing(child metav1.Object) []change {
	if o.label == "" {
		refs := child.GetOwnerReferences()
		return []change{{"ownerReferences", refs, o.removed(refs)}}
	}
	labels, annotations := child.GetLabels(), child.GetAnnotations()
	return []change{{"labels", labels, without(labels, o.label)},
		{"annotations", annotations, without(annotations, o.label)}}
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
