package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// run is one call of Reconcile, and the ctx that it is given.
//
// Most runs find everything as it should be, in caches, and have no use for their ctx. So the context that it stands
// for, with the key in its logger, a deadline and a place among all that ends with acting, is made when somebody first
// asks for one of these. BenchmarkReconcile has what that spares: a run costs 0.45 µs and one allocation without it,
// 1.4 µs and thirteen with it; a manager whose Reconciler reads caches gets a fifth more done.
//
// It is small, as there is a new one for each call: who keeps the ctx must not find himself in another call. What
// nobody asks for after the call is the worker's. One of 320 bytes was an eighth of all that a manager allocates.
type run struct {
	worker *worker
	key    Key

	// mu may be taken with the trail's held, and nothing is called with it held.
	mu sync.Mutex
	// Guarded by mu. more is made when it is first needed; nothing in it changes once ended is true, which is when the
	// call has returned.
	details *runDetails
	ended   bool
}

// more is what most runs have no use for. It is guarded by the run's mu until the run has ended.
type runDetails struct {
	// Both are set when somebody first asks for the context, and not changed again.
	ctx    context.Context
	cancel context.CancelFunc
	// What the run has written, and the first few acts of it as a person would name them.
	writes     map[writeID]bool // true for those whose object is seen to be new
	writeNames []writeName
}

type runKey struct{}

// context returns the context that the run stands for. It answers all that a run is asked as a ctx, the question by
// which package context finds a parent among them, so that the run's children are its children, and need no goroutine
// to learn of its end.
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
		began = r.worker.began // while the run goes on it is this one's
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

// needed makes the rest of the run. mu is held.
func (r *run) needDetails() *runDetails {
	if r.details == nil {
		r.details = &runDetails{}
	}
	return r.details
}

// end is the end of the call.
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
	if key == (runKey{}) {
		return r
	}
	return r.context().Value(key)
}

// String keeps those who print a ctx from walking through what changes.
func (r *run) String() string { return fmt.Sprintf("reconcile %s", r.key) }

// log is the worker's logger with the key. It is made for each line: most runs have none.
func (r *run) log() klog.Logger { return r.worker.log.WithValues("key", r.key) }

func (r *run) targetOf(ctx context.Context, address string) (t target, followed bool) {
	return r.worker.ledger.targetOf(klog.FromContext(ctx), address)
}

func (r *run) wrote(ctx context.Context, verb string, w write) {
	r.remember(writeName{verb, w.target}, w.uid, w.resourceVersion, w.deleted)
	r.worker.ledger.wrote(klog.FromContext(ctx), r.key, w)
}

// remember keeps what the events of a write are recognised by.
func (r *run) remember(a writeName, uid types.UID, resourceVersion string, deleted bool) {
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
	if len(m.writeNames) < maxCauses {
		m.writeNames = append(m.writeNames, a)
	}
}

// has reports whether the run is known to have written this version, or to have deleted the object.
func (r *run) hasWritten(v writeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.details == nil {
		return false
	}
	_, own := r.details.writes[v]
	return own
}

// isNew takes note that a write of the run has made its object.
func (r *run) markCreated(v writeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.details.writes[v] = true // has has found it
}

// written returns what the run, which has ended, has written, and the beginning of it as a person would name it.
func (r *run) written() (map[writeID]bool, []writeName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.details == nil {
		return nil, nil
	}
	return r.details.writes, r.details.writeNames
}

// causes returns what has named the key for this run, while it goes on.
func (r *run) causes() (list []Cause, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, 0 // the worker has those of another run
	}
	return r.worker.causes.list(), r.worker.causes.more
}

func (r *run) lostAnswer(ctx context.Context, t target) {
	r.worker.ledger.lostAnswer(klog.FromContext(ctx), r.key, t)
}

// Wrote tells the loop of an object that this run has created or changed, where [TrackWrites] cannot see it: a client
// that is not made from a rest.Config. The key is then not reconciled again before inf has seen o, which is the object
// as the server has answered it. ctx is that of the call of Reconcile.
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
	verb := "Wrote"
	if deleted {
		verb = "Deleted"
	}
	r.remember(writeName{verb, target{resource: inf.Name(), namespace: key.Namespace, name: key.Name}}, o.GetUID(),
		o.GetResourceVersion(), deleted)
	r.worker.ledger.owe(&debt{owner: r.key, kind: unseen(deleted), object: object{c, key}, uid: o.GetUID(),
		resourceVersion: o.GetResourceVersion()})
	return nil
}

// act is a write as a person would name it.
type writeName struct {
	verb string
	target
}

func (a writeName) String() string {
	s := a.verb + " " + a.resource
	if a.subresource != "" {
		s += "/" + a.subresource
	}
	return fmt.Sprintf("%s %s", s, strings.TrimPrefix(a.namespace+"/"+a.name, "/"))
}
