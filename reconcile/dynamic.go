package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/family"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Dynamic is a family of informers that come and go while a Manager runs: one for each kind that a spec names, or for
// each namespace of a tenant. Each has a name, which may be of any type that can be compared, such as a namespace, a
// GroupVersionResource, or a struct of both. An informer is made and run when an object first names it, and ended when
// no object names it any more: then its goroutines end, and its memory is free. Make a family with [NewDynamic], and
// say with [Needs] what names its informers.
//
// The family as a whole is an [Informer], which the Manager runs and shows. Its Health is Live as long as one of the
// informers is, and Health.Unknown counts those that are not complete. A kind that is missing or refused affects the
// keys that name it, and neither other keys nor /readyz: see [Needs].
type Dynamic[N comparable, T any] struct {
	// Never changed after NewManager.
	family  *family.Family[N, T]
	users   []*Controller
	manager *Manager
}

// NewDynamic makes a family. Its name stands in logs, errors and metrics. of makes the informer of a name: a new one in
// each call, because a name may come back that was given up. The informer should have a name of its own, as logs and
// Why tell informers apart by it. of sends no request, and is called by several goroutines at once, on standbys, too.
// Its error, as for a name that can be no resource, is that of [Dynamic.Get], so that Reconcile can report it. So is
// one for an informer with Options.Shard, which a family does not take. The keys do not wait for such an informer, and
// of is called again when they run again.
//
// A handler of an informer that does not return when its informer is given up is logged, and Run tells of it at its
// end.
//
// An informer sends its first list at once. If the server refuses it, or does not know the resource yet, the informer
// keeps asking, so a Role or a CustomResourceDefinition that arrives later is enough.
func NewDynamic[N comparable, T any](name string, of func(N) (*informer.SharedIndexInformer[T], error)) (*Dynamic[N, T],
	error) {
	var errs []error
	if name == "" {
		errs = append(errs, errors.New("the name is empty"))
	}
	if of == nil {
		errs = append(errs, errors.New("the function that makes the informers is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("NewDynamic %q: %w", name, err)
	}
	d := &Dynamic[N, T]{}
	d.family = family.New(name, func(name N) (*informer.SharedIndexInformer[T], error) {
		inf, err := of(name)
		if err == nil && d.manager != nil && d.manager.runs(inf) {
			return nil, fmt.Errorf("the function given to NewDynamic has returned informer %s, which the Manager runs",
				inf.Name())
		}
		if err == nil && inf != nil && inf.Scope().Sharded() {
			return nil, fmt.Errorf("the function given to NewDynamic has returned informer %s, which has "+
				"Options.Shard: slices would have to wait for a kind that may never come", inf.Name())
		}
		return inf, err
	})
	return d, nil
}

// Get returns the informer of a name, whose cache is complete. The informer is good for this call of Reconcile. In the
// next one it may be given up, so call Get again. In a call for a key whose object names the informer, there is an
// error only if
//
//   - the server refuses what the informer asks for, or does not know its kind: the error wraps
//     [informer.ErrNotKnown] and the server's answer, so apierrors.IsForbidden and apierrors.IsNotFound tell which;
//   - the informer cannot be made: it wraps the error of the function given to [NewDynamic];
//   - the object has changed since the call began: it wraps [informer.ErrNotNamed] or [informer.ErrNotKnown].
//
// The first two Reconcile may report in the object's status. Return the error otherwise. After the end of the Manager
// it wraps [informer.ErrStopped].
func (d *Dynamic[N, T]) Get(name N) (*informer.SharedIndexInformer[T], error) {
	return d.family.Get(name)
}

// Name returns the name of the family.
func (d *Dynamic[N, T]) Name() string { return d.family.Name() }

// Run makes and ends informers as they are named, until ctx ends and all have ended. The Manager calls it. An informer
// that ends by itself ends Run with its error.
func (d *Dynamic[N, T]) Run(ctx context.Context) error { return d.family.Run(ctx) }

// WaitForSync waits until Run has begun: a family has no first list. The keys wait for the informers that they need.
func (d *Dynamic[N, T]) WaitForSync(ctx context.Context) error { return d.family.WaitForSync(ctx) }

// ResourceVersion returns the empty string: the informers of a family have no common version.
func (d *Dynamic[N, T]) ResourceVersion(string) string { return "" }

// Len returns how many objects the informers hold together.
func (d *Dynamic[N, T]) Len() int { return d.family.Len() }

// Health sums up the health of the informers. State is Live unless some of those that are complete are Stale or Failed,
// and none is Live: then it is that of one of these. Unknown counts those that are not complete. Numbers are sums,
// those of Lists and of its like with the informers that were given up.
func (d *Dynamic[N, T]) Health() informer.Health { return d.family.Health() }

// anyDynamic is a [Dynamic], whatever its types.
type anyDynamic interface {
	Informer
	parts(withText bool) []status.Namespace
	belongTo(*Manager) *Manager
	controllers() []*Controller
}

func (d *Dynamic[N, T]) parts(withText bool) []status.Namespace { return d.family.Parts(withText) }

// belongTo returns the Manager that the family belongs to: from now on this one, unless it had one before, or this one
// is nil.
func (d *Dynamic[N, T]) belongTo(m *Manager) *Manager {
	if d.manager == nil {
		d.manager = m
	}
	return d.manager
}

// controllers returns those that use the family.
func (d *Dynamic[N, T]) controllers() []*Controller { return d.users }
