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
	"github.com/thermostat-go/thermostat/internal/kube"
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
// is in the worker.
type run struct {
	// Never changed.
	worker *worker
	key    Key

	// mu may be taken with the keyHistory's held. No function is called with mu held.
	mu sync.Mutex
	// Guarded by mu. ended is true when the call has returned. details is nil until it is needed, and no longer
	// changes when ended is true.
	details *runDetails
	ended   bool
}

// runDetails is what most runs do not need. The run's mu guards it until the run has ended.
type runDetails struct {
	// Set when the context is first used, and never changed.
	ctx    context.Context
	cancel context.CancelFunc
	writes map[writeID]bool // what the run has written; true for those that created their object
	// Its requests to write: the first of them in their order, and how many came after these. A record does not change
	// once it is here.
	requests     []status.Write
	moreRequests int
	pace         pace // of all of its requests
}

// describe adds to a record what is known of the run's requests. d may be nil. The run has ended, or its mu is held.
func (d *runDetails) describe(r *status.Run) {
	if d == nil {
		return
	}
	r.Writes, r.MoreWrites = slices.Clone(d.requests), d.moreRequests
	r.Requests, r.BeforeRequests = d.pace.requests, d.pace.idle
}

type runKey struct{}

// context returns the context behind the run, and makes it if there is none. It answers all methods of the run as a
// ctx, package context's search for a parent included: so contexts derived from the run need no goroutine to end with
// it.
func (r *run) context() context.Context {
	ctx, began := r.made()
	if ctx != nil {
		return ctx
	}
	w := r.worker
	ctx, cancel := context.WithDeadline(klog.NewContext(w.runCtx, r.log()), began.Add(w.timeout))
	r.mu.Lock()
	if first := r.known(); first != nil {
		r.mu.Unlock()
		cancel()
		return first
	}
	m := r.needDetails()
	m.ctx, m.cancel = ctx, cancel
	r.mu.Unlock()
	return ctx
}

// made returns the context if there is one, and if not, when the run began.
func (r *run) made() (ctx context.Context, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx = r.known(); ctx == nil {
		began = r.worker.began // of this run, which has not ended
	}
	return ctx, began
}

// known returns the context if there is one, and after the call one that has ended. mu is held.
func (r *run) known() context.Context {
	switch {
	case r.details != nil && r.details.ctx != nil:
		return r.details.ctx
	case r.ended:
		return r.worker.endedCtx
	default:
		return nil
	}
}

// needDetails returns the details, and makes them if there are none. mu is held.
func (r *run) needDetails() *runDetails {
	if r.details == nil {
		r.details = &runDetails{}
	}
	return r.details
}

// end ends the run and its context: the call has returned.
func (r *run) end() {
	r.mu.Lock()
	r.ended = true
	m := r.details
	r.mu.Unlock()
	if m != nil && m.cancel != nil {
		m.cancel()
	}
}

func (r *run) Deadline() (time.Time, bool) { return r.context().Deadline() }
func (r *run) Done() <-chan struct{}       { return r.context().Done() }
func (r *run) Err() error                  { return r.context().Err() }

func (r *run) Value(key any) any {
	if key == (runKey{}) || key == (writerKey{}) {
		return r
	}
	return r.context().Value(key)
}

// String is what fmt prints for a ctx. Without it fmt would read fields that change.
func (r *run) String() string { return fmt.Sprintf("reconcile %s", r.key) }

// log is the worker's logger with the key. It is made for each line: most runs have none.
func (r *run) log() klog.Logger { return r.worker.log.WithValues("key", r.key) }

// debtor is the key: what the run writes is waited for.
func (r *run) debtor() debtor { return debtor{r.key, r.worker.ledger, r.worker.ledger.all} }

// remembers keeps a write, to recognise its events by.
func (r *run) remembers(uid types.UID, resourceVersion string, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" || r.ended {
		return
	}
	m := r.needDetails()
	if m.writes == nil {
		m.writes = make(map[writeID]bool)
	}
	if resourceVersion != "" {
		m.writes[writeID{uid, resourceVersion}] = false
	}
	if deleted {
		m.writes[writeID{uid, ""}] = false
	}
}

// hasWritten reports whether the run is known to have written this version, or to have deleted the object.
func (r *run) hasWritten(v writeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.details == nil {
		return false
	}
	_, own := r.details.writes[v]
	return own
}

// markCreated records that a write of the run created its object.
func (r *run) markCreated(v writeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.details.writes[v] = true // hasWritten has found it
}

// written returns what a run that has ended has written, and the first of its requests to write. d may be nil.
func (d *runDetails) written() (map[writeID]bool, []status.Write) {
	if d == nil {
		return nil, nil
	}
	return d.writes, d.requests[:min(len(d.requests), maxCauses)]
}

// seen returns the details of a run that has ended, or nil.
func (r *run) seen() *runDetails {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.details
}

// causes returns what has named the key for this run, while it goes on.
func (r *run) causes() (list []status.Cause, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, 0 // the worker has those of another run
	}
	return r.worker.causes.list(), r.worker.causes.more
}

// Wrote reports to the loop an object that this run has created or changed through a client that [TrackWrites] cannot
// see: one that is not made from a rest.Config. The key is not reconciled again before inf has seen o, which is the
// object as the server returned it. ctx is the one that Reconcile was given.
//
// It returns an error if ctx is another one, if inf is no source of the controller, or if o has no UID or
// resourceVersion.
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
	c := r.worker.ledger.find(inf)
	switch {
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
	gone := isGone(o)
	r.keep(status.Write{At: time.Now(), Verb: verb, Resource: inf.Name(), Namespace: key.Namespace, Name: key.Name,
		ResourceVersion: o.GetResourceVersion()})
	r.remembers(o.GetUID(), o.GetResourceVersion(), deleted)
	d := &debt{owner: r.key, kind: status.DebtChange, object: object{c, key}, uid: o.GetUID(),
		resourceVersion: o.GetResourceVersion(), expected: true}
	if deleted || gone {
		d.kind, d.mayStay = status.DebtDeletion, !gone
	}
	r.worker.ledger.owe(d)
	return nil
}
