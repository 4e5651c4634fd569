package naming

import (
	"slices"
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
// the object, after pauses that grow. When they return, those of its new state are named as well. For an object that is
// gone they are called again a few times, whether there is another one of its name or not.

const (
	firstAskAgain = time.Second
	lastAskAgain  = 5 * time.Minute
	// mostAskAgain is how often the functions are called again for an object that is gone.
	mostAskAgain = 10
	// mostGone is of how many objects of one name that are gone the functions are called again.
	mostGone = 10
)

// panicking is an object on which a function of a source has panicked. It belongs to the informer's goroutine.
type panicking[T any] struct {
	event informer.Event[T] // what has changed since the functions last returned
	// between is the latest state between the two of the event on which the functions have returned; nil: on none.
	between *T
	told    []Key     // what has been named of the event
	tries   int       // since the object changed
	next    time.Time // not before that are they called again
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

// panicked keeps an object for another try.
func (n *Namer[T]) panicked(p *panicking[T], err error) {
	key := p.event.Key
	if _, known := n.panicking[key]; !known && p.tries == 0 {
		n.log(key, err, "A function of a source panicked on an object: until it returns, each change names the keys "+
			"that the object had before", "stack", lifecycle.StackOf(err))
	}
	n.postpone(p)
	if p.event.Type == informer.Deleted {
		delete(n.panicking, key)
		n.gone = withoutOldest(n.gone, key)
		n.gone = append(n.gone, p)
	} else {
		if n.panicking == nil {
			n.panicking = make(map[Key]*panicking[T])
		}
		n.panicking[key] = p
	}
	n.Invalid.set(key, &informer.InvalidError{Object: metadataOfEvent(p.event), Err: err})
}

// withoutOldest makes room for one more object of a name that is gone.
func withoutOldest[T any](gone []*panicking[T], key Key) []*panicking[T] {
	n, oldest := 0, -1
	for i, g := range gone {
		if g.event.Key == key {
			if n++; oldest < 0 {
				oldest = i
			}
		}
	}
	if n < mostGone {
		return gone
	}
	return slices.Delete(gone, oldest, oldest+1)
}

// postpone notes what the latest look at an object, which has failed, has found, and when the next one is due.
func (n *Namer[T]) postpone(p *panicking[T]) {
	if n.last != nil {
		p.between = n.last
	}
	p.told = slices.Clone(n.named)
	p.next = time.Now().Add(lifecycle.Doubled(firstAskAgain, p.tries, lastAskAgain))
	n.due(p)
}

// due lets AskAgain look at an object in time.
func (n *Namer[T]) due(p *panicking[T]) {
	if n.askAt.IsZero() || p.next.Before(n.askAt) {
		n.askAt = p.next
	}
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
	if len(n.panicking)+len(n.gone) == 0 || now.Before(n.askAt) {
		return
	}
	n.askAt = time.Time{}
	for key, p := range n.panicking {
		if n.askedAgain(p, now) {
			n.forget(key, returned)
		}
	}
	n.gone = slices.DeleteFunc(n.gone, func(p *panicking[T]) bool {
		key, answered := p.event.Key, n.askedAgain(p, now)
		if !answered && p.tries <= mostAskAgain {
			return false
		}
		why := returned
		if !answered {
			why = "An object that makes a function of a source panic is gone, and its keys are not known"
		}
		if n.panicking[key] == nil {
			n.forget(key, why)
		}
		return true
	})
}

// askAboutGone calls the functions again for the objects of a name that are gone, now that there is another one. If
// they do not return, that is none of the tries.
func (n *Namer[T]) askAboutGone(key Key) {
	n.gone = slices.DeleteFunc(n.gone, func(p *panicking[T]) bool {
		if p.event.Key != key {
			return false
		}
		if _, err := n.ask(p.event, p); err != nil {
			return false
		}
		n.addNamed(p.event, keys.Sighting{})
		return true
	})
}

// askedAgain calls the functions again for an object, if its time has come, and reports whether they have returned. It
// names the keys that are new.
func (n *Namer[T]) askedAgain(p *panicking[T], now time.Time) (returned bool) {
	if p.next.After(now) {
		n.due(p)
		return false
	}
	_, err := n.ask(p.event, p)
	if err == nil || !slices.Equal(p.told, n.named) {
		n.addNamed(p.event, keys.Sighting{})
	}
	if err != nil {
		p.tries++
		n.postpone(p)
	}
	return err == nil
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
