package informer

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// quarantine holds the objects that exist on the server, in a state that the store could not take: Options.Transform
// failed on it, or it is of the wrong type. They are tried again, less and less often; each new state that the server
// sends is a new try at once. Bytes that could not be decoded stay what they are, so they are not kept here, and not
// tried again.
//
// It belongs to the reflector's goroutine. What the store, and so the user, knows of it is indexer.invalid.
type quarantine struct {
	patients map[Key]*patient
	due      *time.Timer // fires at dueAt, when somebody's time has come
	dueAt    time.Time   // zero: it is not running
}

type patient struct {
	object runtime.Object
	size   int64
	epoch  uint64 // of the list, or the watch that followed it, which saw the object last
	tries  int
	next   time.Time
}

// What failed is tried again after 1 s, 2 s, 4 s ... 5 min.
const firstRetry, lastRetry = time.Second, 5 * time.Minute

func newQuarantine() quarantine {
	due := time.NewTimer(0)
	due.Stop()
	return quarantine{patients: make(map[Key]*patient), due: due}
}

func (q *quarantine) admit(key Key, a wire.Event, epoch uint64) {
	now, p := time.Now(), &patient{object: a.Object, size: a.Size, epoch: epoch}
	q.patients[key] = p
	p.postpone(now)
	q.wake(now, p.next)
}

func (q *quarantine) has(key Key) bool {
	_, ok := q.patients[key]
	return ok
}

func (q *quarantine) release(key Key) { delete(q.patients, key) }

// sweep lets go of those that a complete list of that epoch did not contain.
func (q *quarantine) sweep(epoch uint64) {
	for key, p := range q.patients {
		if p.epoch < epoch {
			q.release(key)
		}
	}
}

func (p *patient) postpone(now time.Time) {
	p.next = now.Add(retryDelay(p.tries))
	p.tries++
}

// retryDelay is how long to wait after that many failures before.
func retryDelay(failures int) time.Duration {
	return lifecycle.Doubled(firstRetry, failures, lastRetry)
}

// wake lets due fire at that time, if not before.
func (q *quarantine) wake(now, at time.Time) {
	if q.dueAt.IsZero() || at.Before(q.dueAt) {
		q.dueAt = at
		q.due.Reset(at.Sub(now))
	}
}

// retry decodes again whatever is due, and what will be within the next second: it looks at everybody, so it is not
// done too often.
func (r *reflector[T]) retry() {
	q := &r.quarantine
	q.dueAt = time.Time{}
	now := time.Now()
	for key, p := range q.patients {
		if p.next.Sub(now) < firstRetry {
			it, err := r.open(wire.Event{Object: p.object, Size: p.size})
			if err == nil {
				q.release(key)
				r.fifo.add(delta[T]{item: it, epoch: p.epoch}, "")
				continue
			}
			p.postpone(now)
		}
		q.wake(now, p.next)
	}
}

// take puts an object that exists into the FIFO, or into quarantine; with reached, everything up to that version has
// then been dealt with. For repeated see delta. The error is that the object belongs to another list-watch.
func (r *reflector[T]) take(a wire.Event, reached string, repeated bool) error {
	it, err := r.open(a)
	if foreign := r.foreign(it.key); foreign != nil {
		return foreign
	}
	switch {
	case err == nil:
		r.quarantine.release(it.key)
	case it.key.Name == "": // nobody can ask for what has no name
		r.health.badObject(err)
		r.nameless = r.nameless || a.Err != nil
		if reached != "" {
			r.fifo.reached(reached)
		}
		return nil
	case a.Err != nil:
		r.health.badObject(err)
		r.quarantine.release(it.key)
	default:
		r.health.badObject(err)
		r.quarantine.admit(it.key, a, r.epoch)
	}
	r.fifo.add(delta[T]{item: it, invalid: err, changed: reached != "", repeated: repeated, epoch: r.epoch}, reached)
	return nil
}

func (r *reflector[T]) takeDeletion(a wire.Event, reached string) {
	// If the value cannot be had, the object is gone all the same: the store tells its last one.
	it, err := r.open(a)
	if r.foreign(it.key) != nil {
		return
	}
	r.quarantine.release(it.key)
	r.fifo.add(delta[T]{item: it, deleted: true, unseen: err != nil, epoch: r.epoch}, reached)
}

// foreign returns an error if an object, unless its key is not known, is another list-watch's: two list-watches that
// write one key would undo each other.
func (r *reflector[T]) foreign(key Key) error {
	if r.namespace == "" || key.Namespace == r.namespace || key.Name == "" {
		return nil
	}
	return fmt.Errorf("%w: an object of namespace %q in the list or watch of namespace %q", wire.ErrViolation,
		kube.Brief(key.Namespace), r.namespace)
}

// open makes an item of what has arrived, or says why it cannot, and fills in what is known.
func (r *reflector[T]) open(a wire.Event) (item[T], error) {
	if a.Err != nil {
		object, _ := meta.Accessor(a.Object)
		return item[T]{key: KeyOf(object), uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}, a.Err
	}
	var it item[T]
	var err error
	if r.exits.Seen() {
		it, err = r.decodeApart(a.Object)
	} else {
		it, err = r.decode(a.Object)
	}
	it.size = a.Size
	return it, err
}

// decodeApart is decode where the user's code may end its goroutine.
func (r *reflector[T]) decodeApart(raw runtime.Object) (it item[T], err error) {
	if exited := lifecycle.Apart(func() { it, err = r.decode(raw) }); exited != nil {
		object, lost := meta.Accessor(raw)
		if lost != nil || kube.IsNil(object) {
			return item[T]{}, exited
		}
		it = item[T]{key: KeyOf(object), uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}
		return it, fmt.Errorf("Options.Transform or projection of %s: %w", briefKey(it.key), exited)
	}
	return it, err
}
