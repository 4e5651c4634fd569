package naming

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

// Key is the namespace and name of an object.
type Key = informer.Key

// Namer is the handler of a source: it names the keys of each change of an object. It allocates nothing for an event
// (BenchmarkNaming of package reconcile): a program starts with one event for each object.
type Namer[T any] struct {
	// Which keys a change names. Not changed once events come, as what follows.
	Subject   bool                  // each object names its own key
	Keys      func(T) []Key         // returns the keys of a state. Nil: there are none but that
	Reads     bool                  // Keys may look at more than the state, so it may return others later
	Referrers func(Key) []Key       // returns the keys that name an object. Nil: there are none
	Wants     func(old, new T) bool // whether an update is worth a look. Nil: each is
	// NameInvalid appends the keys of an object whose state, with this metadata, cannot be taken into the store. Nil:
	// there are none.
	NameInvalid func(*metav1.PartialObjectMetadata, []Key) []Key

	// Who is told.
	Controller string // its name, for the log
	Cause      string // the source, as causes have it
	Table      *keys.Table
	Ledger     *debts.Ledger
	Cache      *debts.Cache
	Add        func(key Key, background bool) // puts a key into the queue
	Invalid    *Invalid                       // has the objects that a function above panics on

	// The following belong to the informer's goroutine: an inline handler is called by one at a time.
	named     []Key // space for the keys of one event
	stays     bool  // see ask
	last      *T    // see ask
	panicking map[Key]*panicking[T]
	gone      []*panicking[T]
	askAt     time.Time // the first of their times
	panics    lifecycle.LogLimit
}

// Handle is told of each change of an object. It adds the keys first and tells the ledger second: so a key that was
// parked is queued once.
func (n *Namer[T]) Handle(e informer.Event[T]) {
	if e.Left {
		n.left(e)
		return
	}
	all, earlier := e, n.panicking[e.Key]
	if earlier != nil {
		all = earlier.with(e)
	}
	worth, err := n.ask(all, earlier)
	switch {
	case err != nil:
		p := &panicking[T]{event: all}
		if earlier != nil {
			p.between = earlier.between
		}
		n.panicked(p, err)
	case earlier != nil:
		n.forget(e.Key, returned)
	case len(n.gone) > 0 && e.Type == informer.Added:
		n.Invalid.remove(e.Key) // that was another object
	}
	if worth {
		v := keys.Sighting{WriteID: keys.WriteID{UID: e.UID, ResourceVersion: e.ResourceVersion},
			Created: e.Type == informer.Added, Updated: e.Type == informer.Updated,
			Stays: n.stays && err == nil && earlier == nil}
		switch {
		case e.Type == informer.Deleted:
			v.ResourceVersion = "" // whoever deletes an object does not learn the version of its end
		case e.Resync:
			v = keys.Sighting{Stays: v.Stays} // no write has named the key
		}
		n.addNamed(e, v)
	}
	if len(n.gone) > 0 && e.Type != informer.Deleted {
		n.askAboutGone(e.Key)
	}
	version := e.ResourceVersion
	if e.FinalStateUnknown {
		version = ""
	}
	n.Ledger.Saw(n.Cache, e.Key, e.UID, version, e.Type == informer.Deleted)
}

// left is told of an object that another replica keeps from now on. Nothing has happened to it, so no key is named.
func (n *Namer[T]) left(e informer.Event[T]) {
	if n.panicking[e.Key] != nil {
		n.forget(e.Key, "An object that makes a function of a source panic is another replica's now")
	}
	n.Ledger.Saw(n.Cache, e.Key, e.UID, "", false)
}

// addNamed adds the keys that an event has named.
func (n *Namer[T]) addNamed(e informer.Event[T], v keys.Sighting) {
	for _, key := range n.named {
		if n.Table.Named(key, n.Cause, e.Key, e.ResourceVersion, v) {
			keys.Compare(n.Table, key, n.Cause, v, e)
		}
		n.Add(key, e.Initial || e.Resync)
	}
	if cap(n.named) > 1024 {
		n.named = nil // this was an uncommon event
	}
}

// wants reports whether an update is worth a look. The error is the panic of Wants.
func (n *Namer[T]) wants(e informer.Event[T]) (holds bool, err error) {
	err = lifecycle.Try(func() { holds = n.Wants(e.Old, e.New) })
	return holds, err
}

// ask reports whether an event is worth a look, and puts its keys into named if it is: those of the object's old state
// and of its new one. Nearly always they are the same, in the same order. If a function has panicked on the object
// earlier, the event is worth a look whatever Wants says, and has the keys of the state between, too. The error is the
// panic of a function of the user's; then named has the keys of the other states, and last is the new one, if it is one
// of them. Without a panic stays says that Each would find all of them.
func (n *Namer[T]) ask(e informer.Event[T], earlier *panicking[T]) (worth bool, err error) {
	n.named, n.last, n.stays = n.named[:0], nil, n.Referrers == nil && !n.Reads && e.Type != informer.Deleted
	if e.Type == informer.Updated && n.Wants != nil && !e.Resync {
		worth, err = n.wants(e)
		if err == nil && !worth && earlier == nil {
			return false, nil
		}
	}
	if n.Subject {
		n.named = append(n.named, e.Key)
	}
	if n.Referrers != nil {
		n.named = append(n.named, n.Referrers(e.Key)...)
	}
	if n.Keys == nil {
		return true, err
	}
	var old, now []Key
	var failed error
	if e.Type != informer.Added {
		old, failed = n.keysOf(e.Old)
		err = cmp.Or(err, failed)
		n.named = append(n.named, old...)
	}
	if e.Type != informer.Deleted {
		now, failed = n.keysOf(e.New)
		for i, k := range now {
			if i >= len(old) || k != old[i] {
				n.named = append(n.named, k)
			}
		}
		n.stays = n.stays && !slices.ContainsFunc(old, func(k Key) bool { return !slices.Contains(now, k) })
		if err != nil && failed == nil {
			last := e.New
			n.last = &last
		}
		err = cmp.Or(err, failed)
	}
	if earlier != nil && earlier.between != nil {
		between, failed := n.keysOf(*earlier.between)
		n.named = append(n.named, between...)
		err = cmp.Or(err, failed)
	}
	return true, err
}

// Each calls name with each key that the objects of an informer name now, on any goroutine. Keys that name other
// objects by a reference are those of objects.
func (n *Namer[T]) Each(inf *informer.SharedIndexInformer[T], name func(Key)) {
	if n.Subject {
		for _, key := range inf.Keys() {
			name(key)
		}
	}
	if n.Keys == nil {
		return
	}
	for o := range inf.All() {
		named, _ := n.keysOf(o) // if it panics, the informer's goroutine has the object among those to ask again
		for _, key := range named {
			name(key)
		}
	}
}

func (n *Namer[T]) keysOf(state T) (keys []Key, err error) {
	err = lifecycle.Try(func() { keys = n.Keys(state) })
	return keys, err
}

// HandleInvalid names the keys of an object that cannot be taken, or can be again: those of both of its states, if it
// has two. A key that is parked because the cache could not take what it wrote may go on.
func (n *Namer[T]) HandleInvalid(key Key, before, now *informer.InvalidError) {
	defer n.Ledger.Saw(n.Cache, key, "", "", false)
	var named []Key
	for _, state := range []*informer.InvalidError{before, now} {
		if state == nil || n.NameInvalid == nil {
			continue
		}
		o, from := state.Object, len(named)
		named = n.NameInvalid(o, named)
		for i := from; i < len(named); i++ {
			if !slices.Contains(named[:i], named[i]) {
				n.Table.Named(named[i], n.Cause, informer.KeyOf(o), o.ResourceVersion,
					keys.Sighting{WriteID: keys.WriteID{UID: o.UID, ResourceVersion: o.ResourceVersion}})
				n.Add(named[i], false)
			}
		}
	}
}
