package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// This file is the seam for kinds of Kubernetes that are not modelled here, but served by Kubernetes' own code:
// package reconciletest/builtin. The server keeps what it does for every kind: the store and its versions, watches,
// patches, managed fields, webhooks, deletion, garbage collection and faults. A [Registry] says what becomes of one
// object in one write.

// Kind is one version of a kind of Kubernetes, for [Options.Kinds].
type Kind struct {
	// Resource says how the kind is called. Its hooks, Scale and Status are not looked at.
	Resource
	Registry Registry
	// Scheme has the types of the objects, and Types says how their fields are managed. Nil: client-go has both.
	Scheme *runtime.Scheme
	Types  managedfields.TypeConverter
	// Discovery is what the discovery documents say of the kind and its subresources.
	Discovery []metav1.APIResource
	// ResetFields leave out the fields that no write can change, and so nobody owns, for each subresource that takes
	// updates and patches; "" stands for the object itself.
	ResetFields map[string]map[fieldpath.APIVersion]fieldpath.Filter
	// Deprecated is the warning that comes with each answer. Empty: there is none.
	Deprecated string
	// CreateOnUpdate: an update creates the object if there is none.
	CreateOnUpdate bool
	// ReturnDeleted: a deletion that is complete answers with the object, and not with a Status.
	ReturnDeleted bool
	// Orphans: a deletion that names no policy leaves the dependents alone. OwnsNothing: policies mean nothing.
	Orphans, OwnsNothing bool
	// Grace puts into the options how long a deletion takes. Nil: no time.
	Grace func(o runtime.Object, options *metav1.DeleteOptions)
}

// Registry is what Kubernetes does with the objects of a kind when they are written. It holds none of them: the server
// gives it what is stored, and stores what it returns. Objects are those of the scheme, in the version of the [Kind].
// It changes none that it is given but to default it, and keeps none. Safe for concurrent use.
type Registry interface {
	// Default fills in what an object leaves open, in place.
	Default(o runtime.Object)
	// Create returns a new object as it is to be stored, or the error to answer with.
	Create(w Attempt, o runtime.Object) (runtime.Object, error)
	// Update returns what o makes of the object live. gone: nothing keeps it any more, and it is deleted; it is then
	// the last that is seen of it.
	Update(w Attempt, o, live runtime.Object) (is runtime.Object, gone bool, err error)
	// Fields are those that field selectors may name.
	Fields(o runtime.Object) fields.Set
}

// Attempt is a creation or an update that a [Registry] judges.
type Attempt struct {
	context.Context
	Request
	// User, with the groups, makes the request.
	User   string
	Groups []string
	// Warn adds a warning to the answer.
	Warn func(text string)
	// Admit asks validating webhooks about the object as it is to be, once it is valid. live is nil for a creation.
	Admit func(o, live runtime.Object) error
}

// resource returns the resource by which the server serves the kind.
func (k Kind) resource() Resource {
	r := k.Resource
	_, r.Status = k.ResetFields["status"]
	r.deprecated = k.Deprecated
	r.builtin = &rules{
		kind: &k,
		new: func() object {
			o, err := k.scheme().New(k.gvk())
			if err != nil {
				panic(err) // Start has made one
			}
			return o.(object)
		},
		defaults:       func(o object) { k.Registry.Default(o) },
		fields:         func(o object) fields.Set { return k.Registry.Fields(o) },
		createOnUpdate: k.CreateOnUpdate, returnDeleted: k.ReturnDeleted, orphans: k.Orphans,
		ownsNothing: k.OwnsNothing,
	}
	if k.Scheme != nil {
		r.builtin.codecs = serializer.NewCodecFactory(k.Scheme)
	}
	if gvr := k.GroupVersionResource; gvr == mutatingConfigurations || gvr == validatingConfigurations {
		r.builtin.beyond = hooksBeyond // it is this server that asks the webhooks
	}
	if k.Grace != nil {
		r.builtin.grace = func(o object, options *metav1.DeleteOptions) { k.Grace(o, options) }
	}
	return r
}

// scheme has the types of the kind.
func (k *Kind) scheme() *runtime.Scheme { return cmp.Or(k.Scheme, scheme.Scheme) }

// withKinds returns the built-in kinds of a server, with those that Kubernetes' own code serves in place of models.
func withKinds(o Options) ([]Resource, error) {
	if len(o.Kinds) > 0 && o.Base != nil {
		return nil, errors.New("Options.Kinds: a fork serves the kinds of its base")
	}
	var all []Resource
	given := make(map[schema.GroupVersionResource]bool)
	for _, k := range o.Kinds {
		if _, err := k.scheme().New(k.gvk()); err != nil {
			return nil, fmt.Errorf("Options.Kinds: %w", err)
		}
		given[k.GroupVersionResource] = true
		all = append(all, k.resource())
	}
	for _, r := range builtins() {
		if !given[r.GroupVersionResource] {
			all = append(all, r)
		}
	}
	return all, nil
}

// registered returns the kind whose registry judges writes to a resource, or nil.
func registered(r *Resource) *Kind {
	if r.custom() {
		return nil
	}
	return r.builtin.kind
}

// updates reports whether a subresource can be read, updated and patched by the kind's registry.
func (k *Kind) updates(subresource, verb string) bool {
	_, ok := k.ResetFields[subresource]
	return ok && (verb == "get" || verb == "update" || verb == "patch")
}

// attemptOf is a call as a registry is told of it.
func attemptOf(s *Server, c *call) Attempt {
	user := userOf(c)
	w := Attempt{Context: c.ctx, Request: c.Request, User: user.Username, Groups: user.Groups,
		Warn: func(text string) { c.warnings = append(c.warnings, text) }}
	if c.ctx == nil { // such as of the garbage collector
		w.Context = context.Background()
	}
	w.Admit = func(o, live runtime.Object) error {
		if live == nil {
			return c.admitCreation(s, o.(object))
		}
		return newAdmission(s, c, o.(object), live.(object)).validate()
	}
	return w
}

// register puts a new object into the store as the registry of its kind has it. It has its name and UID.
func (k *Kind) register(s *Server, c *call, o object) error {
	protect(c.resource.GroupResource(), o)
	taintNew(o)
	made, err := k.Registry.Create(attemptOf(s, c), o)
	if err != nil {
		return err
	}
	assign(o, made.(object))
	lent, err := k.settle(c, o, nil)
	if err != nil {
		return err
	}
	return storeNew(s, c, o, lent)
}

// update puts what the registry of a kind makes of an update in place of live.
func (k *Kind) update(s *Server, c *call, live, o object) (object, error) {
	made, gone, err := k.Registry.Update(attemptOf(s, c), o, live)
	if err != nil {
		return nil, err
	}
	is := made.(object)
	if gone {
		if !c.DryRun {
			_, err = c.remove(s, live)
		}
		return is, err
	}
	lent, err := k.settle(c, is, live)
	if err != nil {
		return nil, err
	}
	is.SetResourceVersion(live.GetResourceVersion())
	if same(is, live) && !s.store.lent(c.resource.GroupResource(), live) { // else what was filled in is stored now
		return live, nil
	}
	if c.DryRun {
		return is, nil
	}
	return c.write(s, c.key(), live, is, lent)
}

// settle makes an object what it is once it has been stored and read, and reports whether reading fills in something
// that is not stored.
func (k *Kind) settle(c *call, o, live object) (lent bool, err error) {
	if err := c.settle(o, live); err != nil {
		return false, err
	}
	stored := copyOf(o)
	k.Registry.Default(o)
	return !apiequality.Semantic.DeepEqual(stored, o), nil
}
