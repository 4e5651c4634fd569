package naming

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

// An object on which a function of the user's panics, the one that names keys or a condition, is invalid for its
// source. Nothing says which keys it names now. So each of its changes names the keys that it had when the functions
// last returned, and the functions are called again: when the object changes, and, since they may depend on more than
// the object, after pauses that grow.

const (
	firstAskAgain = time.Second
	lastAskAgain  = 5 * time.Minute
	// mostAskAgain is how often the functions are called again for an object that is gone, also if there is another one
	// of its name.
	mostAskAgain = 10
)

// panicking is an object on which a function of a source has panicked. It belongs to the informer's goroutine.
type panicking[T any] struct {
	event informer.Event[T] // what has changed since the functions last returned
	// between is the latest state between the two of the event on which the functions have returned; nil: on none.
	between *T
	told    bool      // the keys of its new state have been named
	gone    bool      // the event begins with a state of an object that is gone
	tries   int       // since the object changed or, if gone, since it went
	next    time.Time // not before that are they called again
}

// then returns what is kept of an object that has changed further, and on which a function has panicked again. p may be
// nil.
func (p *panicking[T]) then(all, e informer.Event[T]) panicking[T] {
	if p == nil {
		return panicking[T]{event: all, gone: e.Type == informer.Deleted}
	}
	now := panicking[T]{event: all, between: p.between, gone: p.gone || e.Type == informer.Deleted}
	if p.gone {
		now.tries = p.tries + 1
	}
	return now
}

// with returns what has changed since the functions last returned, now that there is a further change.
func (p *panicking[T]) with(e informer.Event[T]) informer.Event[T] {
	earlier := p.event
	e.Resync = false
	switch {
	case earlier.Type == informer.Added && e.Type != informer.Deleted:
		e.Type = informer.Added
	case earlier.Type == informer.Added: // no state of the object has ever named its keys
	case e.Type == informer.Deleted:
		e.Old = earlier.Old
	default:
		e.Type, e.Old = informer.Updated, earlier.Old
	}
	return e
}

// panicked keeps an object for another try, unless it is gone and has had its tries. Then one of the same name counts
// by itself.
func (n *Namer[T]) panicked(p panicking[T], err error) {
	e := p.event
	if p.gone && p.tries > mostAskAgain {
		n.forget(e.Key, "An object that makes a function of a source panic is gone, and its keys are not known")
		switch {
		case e.Type == informer.Deleted:
		case p.between != nil:
			e.Type, e.Old = informer.Updated, *p.between
			n.Handle(e)
		default:
			e.Type, e.Old = informer.Added, *new(T)
			n.Handle(e)
		}
		return
	}
	if n.panicking == nil {
		n.panicking = make(map[Key]*panicking[T])
	}
	if _, known := n.panicking[e.Key]; !known {
		n.log(e.Key, err, "A function of a source panicked on an object: until it returns, each change names the keys "+
			"that the object had before", "stack", lifecycle.StackOf(err))
	}
	if n.last != nil {
		p.between, p.told = n.last, true
	}
	p.next = time.Now().Add(lifecycle.Doubled(firstAskAgain, p.tries, lastAskAgain))
	n.panicking[e.Key] = &p
	if n.askAt.IsZero() || p.next.Before(n.askAt) {
		n.askAt = p.next
	}
	n.Invalid.set(e.Key, &informer.InvalidError{Object: metadataOfEvent(e), Err: err})
}

// forget ends what panicked has begun.
func (n *Namer[T]) forget(key Key, why string) {
	delete(n.panicking, key)
	n.Invalid.remove(key)
	n.log(key, nil, why)
}

func (n *Namer[T]) log(object Key, err error, line string, values ...any) {
	if dropped, ok := n.panics.Allow(5); ok {
		klog.Background().Error(err, line, append(values, "controller", n.Controller, "source", n.Cause, "object",
			object, "notLogged", dropped)...)
	}
}

// AskAgain calls the functions again whose time has come. The informer calls it when it has reached a version.
func (n *Namer[T]) AskAgain() {
	now := time.Now()
	if len(n.panicking) == 0 || now.Before(n.askAt) {
		return
	}
	n.askAt = time.Time{}
	for key, p := range n.panicking {
		if p.next.After(now) {
			if n.askAt.IsZero() || p.next.Before(n.askAt) {
				n.askAt = p.next
			}
			continue
		}
		if _, err := n.ask(p.event, p); err != nil {
			if n.last != nil && !p.told {
				n.addNamed(p.event, keys.Sighting{})
			}
			again := *p
			again.tries++
			n.panicked(again, err)
			continue
		}
		n.forget(key, returned)
		n.addNamed(p.event, keys.Sighting{})
	}
}

const returned = "An object no longer makes a function of a source panic"

// metadataOfEvent returns the metadata of an event's latest state, as far as it has any. The methods of the object may
// panic, too.
func metadataOfEvent[T any](e informer.Event[T]) *metav1.PartialObjectMetadata {
	state := e.New
	if e.Type == informer.Deleted {
		state = e.Old
	}
	found := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: e.Key.Namespace, Name: e.Key.Name,
		UID: e.UID, ResourceVersion: e.ResourceVersion}}
	if o, ok := any(state).(metav1.Object); ok {
		_ = lifecycle.Try(func() { found = meta.AsPartialObjectMetadata(o) })
		found.ManagedFields = nil
	}
	return found
}
