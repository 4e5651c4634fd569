package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// run is one call of Reconcile, and the ctx that it is given.
//
// Most runs find in the caches that there is nothing to do, and do not use their ctx. So the context behind it, with a
// deadline and the key in its logger, is made when it is first used. That is worth it: without it a run costs 0.5 µs
// and one allocation, with it 1.7 µs and twelve (BenchmarkReconcile), and a manager whose Reconciler only reads caches
// needs half as much CPU time again (BenchmarkEndToEnd).
//
// Each call has a run of its own, so that a ctx that outlives its call is not the ctx of another one. The run is small
// for that reason: one of 320 bytes was an eighth of all that a manager allocates. What is not needed after the call
// is in the worker's turn.
type run struct {
	keys.Run
	worker *worker // never changed
	// made is nil until the context is first used. Then it never changes.
	made atomic.Pointer[madeContext]
}

// madeContext has what a run needs that uses its ctx.
type madeContext struct {
	ctx    context.Context
	cancel context.CancelFunc
	writer writes.Writer // makes the run's requests
	debtor debts.Debtor  // of that
}

type runKey struct{}

// context returns the context behind the run, and makes it if there is none. It answers all methods of the run as a
// ctx, package context's search for a parent included: so contexts derived from the run need no goroutine to end with
// it.
func (r *run) context() context.Context { return r.make().ctx }

// make returns what the run has made, and makes it if there is nothing. What is made after the run has ended is not
// kept.
func (r *run) make() *madeContext {
	if m := r.made.Load(); m != nil {
		return m
	}
	return r.makeIn(r.worker.runCtx)
}

// makeIn is make with the context that the run is to end with, when nothing has been made.
func (r *run) makeIn(ctx context.Context) *madeContext {
	w := r.worker
	m := &madeContext{ctx: w.endedCtx, debtor: w.ledger.Debtor(r.Key)}
	m.writer = writes.Writer{History: &r.Run, Debtor: &m.debtor, Paths: w.paths, ErrorTexts: w.errorTexts}
	began, goesOn := r.GoesOn()
	if !goesOn {
		return m
	}
	m.ctx, m.cancel = context.WithDeadline(klog.NewContext(ctx, r.Log()), began.Add(w.timeout))
	if !r.made.CompareAndSwap(nil, m) {
		m.cancel()
		return r.made.Load()
	}
	if _, goesOn = r.GoesOn(); !goesOn {
		m.cancel() // end has come between, and has found nothing to cancel
	}
	return m
}

// end ends the run and its context: the call has returned.
func (r *run) end() {
	r.Returned()
	if m := r.made.Load(); m != nil {
		m.cancel()
	}
}

func (r *run) Deadline() (time.Time, bool) { return r.context().Deadline() }
func (r *run) Done() <-chan struct{}       { return r.context().Done() }
func (r *run) Err() error                  { return r.context().Err() }

func (r *run) Value(key any) any {
	switch key {
	case runKey{}:
		return r
	case writes.WriterKey{}:
		return &r.make().writer
	}
	return r.context().Value(key)
}

// Causes reports why the current call was triggered: what has named the key since the call before it. ctx must be the
// one that Reconcile was given. It returns the first four causes that differ in source or object, and how many changes
// there were besides. Several changes of one object are one [status.Cause]. It returns none if only the last run asked
// for this one, and none after the call has returned.
//
// Causes is for logs, to find out why a key is reconciled so often. The loop itself logs causes at verbosity 4, and
// with errors. Do not branch on them: changes are merged and may be missing, and after a restart all causes are new. A
// Reconcile looks at the state.
//
// The cost: a fraction of a microsecond and no allocation for a change that names a key; about 200 bytes for a waiting
// key.
func Causes(ctx context.Context) (causes []status.Cause, more int) {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return nil, 0
	}
	return r.Causes()
}

// Wrote reports to the loop an object that this run has created or changed through a client that [TrackWrites] cannot
// see: one that is not made from a rest.Config. The key is not reconciled again before inf has seen o, which is the
// object as the server returned it. ctx is the one that Reconcile was given.
//
// It returns an error if ctx is another one, if inf is no source of the controller, as after it was given up (see
// [Dynamic]), or if o has no UID or resourceVersion.
func Wrote[T any](ctx context.Context, inf *informer.SharedIndexInformer[T], o metav1.Object) error {
	if err := report(ctx, inf, o, false); err != nil {
		return fmt.Errorf("Wrote: %w", err)
	}
	return nil
}

// Deleted is [Wrote] for an object that this run has deleted: the key waits until inf has seen it going or gone. o
// needs no more than its name and UID.
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
	if kube.IsNil(inf) {
		return errors.New("the informer is nil")
	}
	c := r.worker.ledger.Find(inf)
	switch {
	case c == nil && len(r.worker.needs) > 0:
		return fmt.Errorf("informer %s is no source of controller %s: if it is one of a Dynamic, no object has named "+
			"it since Get returned it; otherwise call DependsOn or one of the others before NewManager", inf.Name(),
			r.worker.name)
	case c == nil:
		return fmt.Errorf("informer %s is no source of controller %s: call DependsOn or one of the others before "+
			"NewManager", inf.Name(), r.worker.name)
	case kube.IsNil(o):
		return errors.New("the object is nil")
	case o.GetUID() == "" || o.GetResourceVersion() == "" && !deleted:
		return fmt.Errorf("%s/%s has no UID or no resourceVersion: give the object that the server has answered (a "+
			"fake client answers without them)", o.GetNamespace(), o.GetName())
	}
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	verb := "wrote"
	if deleted {
		verb = "deleted"
	}
	r.Record(status.Write{At: time.Now(), Verb: verb, Resource: inf.Name(), Namespace: key.Namespace, Name: key.Name,
		ResourceVersion: o.GetResourceVersion()})
	r.Wrote(o.GetUID(), o.GetResourceVersion(), deleted)
	r.worker.ledger.Debtor(r.Key).Report(c, o, deleted)
	return nil
}
