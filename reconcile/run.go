package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// run is one call of Reconcile, and the ctx that it is given.
//
// Most runs find everything as it should be, in caches, and have no use for their ctx. So the context that it stands for, with the key in its logger, a deadline
// and a place among all that ends with acting, is made when somebody first asks for one of these. BenchmarkReconcile has what that spares: a run costs 0.7 µs
// and one allocation without it, 1.7 µs and twelve with it; a manager whose Reconciler reads caches gets a fifth more done.
type run struct {
	worker *worker
	key    Key
	began  time.Time
	causes causes // not changed once the run has begun
	bySelf bool   // it was brought about by nobody but the run before it
	step   *step  // of the key, in the trail; set when the run begins

	// made is done when somebody first asks for the context, or when the call has returned without that; ctx and cancel are set by it, and not changed again.
	made   sync.Once
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// Guarded by mu. writes is what the run has written, and told the first few acts of it; it is nil while there is none, and given away at the end.
	writes map[echo]struct{}
	told   []act
	ended  bool
}

type runKey struct{}

// context returns the context that the run stands for. It answers all that a run is asked as a ctx, the question by which package context finds a parent
// among them, so that the run's children are its children, and need no goroutine to learn of its end.
func (r *run) context() context.Context {
	r.made.Do(func() {
		r.ctx, r.cancel = context.WithDeadline(klog.NewContext(r.worker.acting, r.log()), r.began.Add(r.worker.timeout))
	})
	return r.ctx
}

// end ends the context. Who asks for it later, for the first time, gets one that has ended.
func (r *run) end() {
	r.made.Do(func() { r.ctx, r.cancel = r.worker.over, func() {} })
	r.cancel()
}

func (r *run) Deadline() (time.Time, bool) { return r.context().Deadline() }
func (r *run) Done() <-chan struct{}       { return r.context().Done() }
func (r *run) Err() error                  { return r.context().Err() }

func (r *run) Value(key any) any {
	if key == (runKey{}) {
		return r
	}
	return r.context().Value(key)
}

// String keeps those who print a ctx from walking through what changes.
func (r *run) String() string { return fmt.Sprintf("reconcile %s", r.key) }

// log is the worker's logger with the key. It is made for each line: most runs have none.
func (r *run) log() klog.Logger { return r.worker.log.WithValues("key", r.key) }

func (r *run) wrote(ctx context.Context, verb string, w write) {
	r.remember(act{verb, w.target}, w.uid, w.resourceVersion, w.deleted)
	r.worker.ledger.wrote(klog.FromContext(ctx), r.key, w)
}

// remember keeps what the events of a write are recognised by.
func (r *run) remember(a act, uid types.UID, resourceVersion string, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" || r.ended {
		return
	}
	if r.writes == nil {
		r.writes = make(map[echo]struct{})
	}
	if resourceVersion != "" {
		r.writes[echo{uid, resourceVersion}] = struct{}{}
	}
	if deleted {
		r.writes[echo{uid, ""}] = struct{}{}
	}
	if len(r.told) < maxCauses {
		r.told = append(r.told, a)
	}
}

// has reports whether the run is known to have written this version, or to have deleted the object.
func (r *run) has(v echo) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, own := r.writes[v]
	return own
}

// finish ends the run, and gives away what it has written.
func (r *run) finish() map[echo]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return r.writes
}

// acts returns what the run has written, or the beginning of it.
func (r *run) acts() []act {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

func (r *run) lost(ctx context.Context, t target) {
	r.worker.ledger.lost(klog.FromContext(ctx), r.key, t)
}

// Wrote tells the loop of an object that this run has created or changed, where [TrackWrites] cannot see it: a client that is not made from a rest.Config. The key
// is then not reconciled again before inf has seen o, which is the object as the server has answered it. ctx is that of the call of Reconcile.
//
// It returns an error if ctx is another one, if inf is no source of the controller, or if o has no UID or resourceVersion.
func Wrote[T any](ctx context.Context, inf *informer.SharedIndexInformer[T], o metav1.Object) error {
	if err := report(ctx, inf, o, false); err != nil {
		return fmt.Errorf("Wrote: %w", err)
	}
	return nil
}

// Deleted is [Wrote] for an object that this run has deleted: the key waits until inf has seen it going or gone. o needs no more than its name and UID.
func Deleted[T any](ctx context.Context, inf *informer.SharedIndexInformer[T], o metav1.Object) error {
	if err := report(ctx, inf, o, true); err != nil {
		return fmt.Errorf("Deleted: %w", err)
	}
	return nil
}

func report(ctx context.Context, inf Informer, o metav1.Object, deleted bool) error {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return errors.New("the ctx is not that of a call of Reconcile")
	}
	if isNil(inf) {
		return errors.New("the informer is nil")
	}
	c := r.worker.ledger.find(inf)
	switch {
	case c == nil:
		return fmt.Errorf("informer %s is no source of controller %s: call Reads or one of the others before NewManager", inf.Name(), r.worker.name)
	case isNil(o):
		return errors.New("the object is nil")
	case o.GetUID() == "" || o.GetResourceVersion() == "" && !deleted:
		return fmt.Errorf("%s/%s has no UID or no resourceVersion: give the object that the server has answered (a fake client answers without them)", o.GetNamespace(), o.GetName())
	}
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	verb := "Wrote"
	if deleted {
		verb = "Deleted"
	}
	r.remember(act{verb, target{resource: inf.Name(), namespace: key.Namespace, name: key.Name}}, o.GetUID(), o.GetResourceVersion(), deleted)
	r.worker.ledger.owe(&debt{owner: r.key, object: object{c, key}, uid: o.GetUID(), resourceVersion: o.GetResourceVersion(), deleted: deleted})
	return nil
}
