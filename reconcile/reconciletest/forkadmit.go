package reconciletest

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BaseAnswer is what a [Base] makes of a write.
type BaseAnswer struct {
	// Asked: the base takes the write, by its own defaults, rules, webhooks and quotas. The fork does without its own.
	// If it is not set, the fork goes on by itself, as if there were nobody to ask.
	Asked bool
	// AsNew: the base does not have the object that is updated, and was asked about its creation. Whether the update
	// may change what it changes is left to the fork.
	AsNew bool
	// Object is the object as the base would store it, as JSON. Of its metadata the fork takes what a webhook may
	// change, and keeps its own versions, UID and managers. Nil: as it is, or it is deleted.
	Object []byte
}

// admit asks the base about a write, and puts into a.o what it makes of that. An error is the base's answer.
func (f *fork) admit(a *admission) error {
	if f == nil {
		return nil
	}
	if a.link == nil { // a controller of the server itself
		f.unasked(a)
		return nil
	}
	if a.o != nil && a.old != nil && unchanging(a.o, a.old) {
		return nil
	}
	if a.o != nil && a.old == nil && a.server.lookup(a.resource, keyOf(a.o)) != nil {
		return nil // the name is taken, which the store says
	}
	w := BaseWrite{Request: a.Request, By: a.manager(), Old: a.old}
	if a.old != nil {
		w.Name = a.old.GetName()
	}
	if a.o != nil {
		w.Name = a.o.GetName()
		w.New = copyOf(a.o)
		w.New.GetObjectKind().SetGroupVersionKind(a.resource.gvk())
	}
	answer, err := f.base.Admit(a.ctx, w, a.options)
	if err != nil {
		return err
	}
	a.asked, a.askedAsNew = answer.Asked, answer.AsNew
	if !answer.Asked {
		f.unasked(a)
		return nil
	}
	if answer.Object == nil || a.o == nil {
		return nil
	}
	is, err := f.decode(a.resource, answer.Object)
	if err != nil {
		return fmt.Errorf("the answer of the cluster to a dry run: %w", err)
	}
	keepIdentity(is, a.o)
	if !unchanging(is, a.o) {
		manager := a.resource.fieldManagers[a.Subresource]
		if a.parent != nil || manager == nil { // for a Scale
			manager = a.resource.fieldManagers[""]
		}
		is = manager.UpdateNoErrors(copyOf(a.o), is, a.manager()).(object)
	}
	assign(a.o, is)
	return nil
}

// keepIdentity gives an answer of the base what tells the fork's object from all others.
func keepIdentity(is, o object) {
	is.SetName(o.GetName())
	is.SetGenerateName(o.GetGenerateName())
	is.SetNamespace(o.GetNamespace())
	is.SetUID(o.GetUID())
	is.SetResourceVersion(o.GetResourceVersion())
	is.SetGeneration(o.GetGeneration())
	is.SetCreationTimestamp(o.GetCreationTimestamp())
	is.SetDeletionTimestamp(o.GetDeletionTimestamp())
	is.SetDeletionGracePeriodSeconds(o.GetDeletionGracePeriodSeconds())
	is.SetManagedFields(slices.Clone(o.GetManagedFields()))
	is.SetSelfLink("")
}

// unasked tells that webhooks would be asked about a write.
func (f *fork) unasked(a *admission) {
	for _, configurations := range []schema.GroupVersionResource{mutatingConfigurations, validatingConfigurations} {
		for _, h := range a.configured(configurations) {
			if to, err := a.concerns(h); to != nil || err != nil {
				f.base.Approximate(a.Request, fmt.Sprintf("the webhook %s of %s would be asked", h.Name,
					h.configuration))
			}
		}
	}
}
