package debts

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// debt is something that a key waits for in one cache. [debt.settledLocked] is the only judge of whether it is paid,
// and it looks at nothing but the cache: an answer opens a debt, and time makes the informer list anew.
type debt struct {
	// Not changed once the ledger has the debt. openedAt and begun are set by owe: begun is the number of the latest
	// list that the informer had begun by then, so a later one shows the write.
	owner    Key
	kind     status.DebtKind
	object   object // of a status.DebtNotReady, and of a status.DebtUnknown, without a name only the namespace counts
	uid      types.UID
	openedAt time.Time
	begun    int

	// resourceVersion is that of a change. Of a deletion it is a version at which the object still existed; empty if
	// none is known, or if the informer has selectors and the object may have changed since. final says that it is the
	// last one. mayStay says of a deletion that the object may be terminating instead. Only owe changes these.
	resourceVersion string
	final, mayStay  bool
	selective       bool // the informer has selectors for more than names
	// unsure says of a deletion that nothing may have happened. outside says that the informer may not select the
	// object. expected says that an event will tell of the write, since the informer selects the object, or the cache
	// holds it. Only owe changes it.
	unsure, outside, expected bool
	inherited                 int // of handoverOwner: which entry of the handover it is about

	// Guarded by the ledger's mu. onceShown is true of a deletion if the cache has ever shown the object. named says
	// that the log says that the cache cannot take the object. partition is nil once the debt is paid. slot, age and
	// rank say where the debt is in its account, in byAge and in byVersion: a rank of -1 means that it is not there.
	onceShown bool
	named     bool
	partition *partition
	slot      int
	age       *list.Element
	rank      int
}

// recordLocked describes the debt, and its cache as it is now, but not why the cache is in trouble: errors may be the
// user's code.
func (d *debt) recordLocked() status.Debt {
	namespace := d.object.key.Namespace
	if d.kind == status.DebtNotReady {
		namespace = d.object.cache.unreadyNamespace(namespace)
	}
	place := d.object.cache.PlaceOf(Key{Namespace: namespace, Name: d.object.key.Name})
	h := d.object.cache.HealthIn(place)
	if h.State == "" && d.kind == status.DebtNotReady { // the informer is about to follow the object
		h.State, h.Since = informer.Listing, d.openedAt
	}
	return status.Debt{
		Kind:     d.kind,
		Informer: d.object.cache.Name(), Namespace: namespace, Name: d.object.key.Name,
		ResourceVersion: d.resourceVersion, Since: d.openedAt, RelistAt: d.overdueAt(),
		CacheVersion: d.object.cache.ResourceVersion(place), CacheState: string(h.State),
		CacheSince: h.Since, CacheInvalid: d.hidden(d.partition.progress()),
	}
}

// object is a name in a cache.
type object struct {
	cache *Cache
	key   Key
}

// ofObject reports whether it is known what has become of the object.
func (d *debt) ofObject() bool { return d.kind == status.DebtChange || d.kind == status.DebtDeletion }

// byObject reports whether news of the object may settle the debt.
func (d *debt) byObject() bool { return d.ofObject() || d.object.key.Name != "" }

// holds reports whether the cache holds the object itself, and not another one of its name.
func (d *debt) holds() bool {
	has, exists := d.object.cache.Version(d.object.key)
	return exists && has.UID == d.uid
}

// recallLocked finds out what the ledger knows of an object that has been written: whether the cache holds it, or has
// ever held it, and, of a deletion whose answer did not tell, a version at which it still existed.
func (d *debt) recallLocked(l *Ledger) {
	c, holds := d.object.cache, d.holds()
	since := time.Time{}
	if a, ok := l.accounts[d.owner]; ok && a.underWay > 0 {
		since = a.sentAt // what left the cache before may be there again
	}
	d.expected = (d.expected || holds) && !d.unsure
	d.onceShown = d.kind == status.DebtDeletion && (holds || c.gone.has(d.uid, since))
	if d.kind == status.DebtDeletion && !d.final && d.selective {
		d.resourceVersion = "" // others may have changed the object since, so that the informer selects it
	}
	if !holds && d.resourceVersion == "" { // it is a deletion, and no event need come
		d.expected = false
	}
	for _, earlier := range l.objects[d.object] {
		if earlier.uid != d.uid {
			continue
		}
		d.expected = !d.unsure
		if d.kind == status.DebtDeletion && !d.final && !d.selective &&
			(d.resourceVersion == "" || kube.Older(d.resourceVersion, earlier.resourceVersion)) {
			d.resourceVersion = earlier.resourceVersion
		}
	}
}

// settledLocked reports whether the cache, which has come this far, shows the write, or never will.
//
// The cache shows a write if it shows no state of the object from before it, now or later. That is so once a list is
// complete that began after the write, also if the cluster has gone back to an older state; and once the cache has come
// to the write's version, if it does not still hold an older state of the object. What it does not hold then does not
// exist, or is not selected.
func (d *debt) settledLocked(at progress) bool {
	switch {
	case d.kind == status.DebtNotReady:
		c := d.object.cache
		return c.givenUp.Load() || c.Ready(c.PlaceOf(d.object.key)) || c.MayPass()
	case at.unfollowed || !d.object.cache.MayKeep(d.object.key):
		return true // the informer will never see the write
	case d.kind == status.DebtUnknown:
		return at.listed > d.begun && !d.hidden(at)
	case d.listed(at):
		return !d.hidden(at)
	}
	has, exists := d.object.cache.Version(d.object.key)
	switch same := exists && has.UID == d.uid; {
	case same && d.kind == status.DebtChange:
		return kube.AtLeast(has.ResourceVersion, d.resourceVersion)
	case same:
		return d.mayStay && has.Deleting
	}
	passed := d.resourceVersion != "" && (kube.AtLeast(at.resourceVersion, d.resourceVersion) ||
		exists && kube.AtLeast(has.ResourceVersion, d.resourceVersion))
	// If its last version is not known, or cannot be compared, the object has gone when it leaves the cache.
	left := d.onceShown && !(d.final && kube.Ordered(at.resourceVersion, d.resourceVersion))
	return (passed || left) && !d.hidden(at)
}

// undone reports of a debt that is settled whether the cache shows the opposite of what was written: the object came
// and went before the cache could show it, or the cluster has gone back. What the informer may not select says nothing.
func (d *debt) undone(at progress) bool {
	if c := d.object.cache; at.unfollowed || !c.MayKeep(d.object.key) || c.Invalid(d.object.key) != nil {
		return false
	}
	has, exists := d.object.cache.Version(d.object.key)
	switch same := exists && has.UID == d.uid; d.kind {
	case status.DebtChange:
		return !d.outside && !(same && kube.AtLeast(has.ResourceVersion, d.resourceVersion))
	case status.DebtDeletion:
		return same && !has.Deleting && !d.unsure
	default:
		return false
	}
}

// listed reports whether a list that began after the write is complete. While a list had objects without a name the
// cache keeps what it has, and is not fresh: then it may hold the object although the list did not contain it.
func (d *debt) listed(at progress) bool {
	return at.listed > d.begun && !(d.holds() && d.object.cache.Fresh(d.object.cache.PlaceOf(d.object.key)) != nil)
}

// hidden reports whether the store could not take the present state of an object of that name. Then the cache may have
// gone past the write, and still no call of Reconcile would see what was written. The key's own object is different:
// Options.Invalid is called for it, not Reconcile, and is given the metadata of that state.
func (d *debt) hidden(at progress) bool {
	why := d.object.cache.Invalid(d.object.key)
	if why == nil {
		return false
	}
	var invalid *informer.InvalidError
	if !d.object.cache.Subject || d.object.key != d.owner || !errors.As(why, &invalid) {
		return true
	}
	switch o := invalid.Object; {
	case d.listed(at):
		return false // the state is from after the write
	case d.uid != "" && o.UID != d.uid:
		return false // the object that was written is gone
	case d.kind == status.DebtDeletion:
		return o.DeletionTimestamp == nil
	default:
		return !kube.AtLeast(o.ResourceVersion, d.resourceVersion)
	}
}

// DoubtAfter is how long an event may take that tells of a write, and how long a new leader's cache may be behind the
// last leader's writes, before the informer lists anew.
const DoubtAfter = 10 * time.Second

// unexpectedAfter is how long the informer is given to reach the version of a write that no event tells of, because the
// object is not selected. Events of other objects, and bookmarks, bring the version.
const unexpectedAfter = time.Second

// overdueAt returns when the informer is to list anew, if the debt is still open then. A write of unknown outcome needs
// that list in any case. No event tells that the server refuses a cache that comes, so it is looked at earlier.
func (d *debt) overdueAt() time.Time {
	switch {
	case d.kind == status.DebtUnknown:
		return d.openedAt
	case d.ofObject() && !d.expected, d.kind == status.DebtNotReady && d.object.cache.comes:
		return d.openedAt.Add(unexpectedAfter)
	default:
		return d.openedAt.Add(DoubtAfter)
	}
}

// behindLocked returns an error if the debt, which is overdue, shows that the cache lags or has lost an event.
func (d *debt) behindLocked() error {
	if !d.ofObject() || !d.expected {
		return nil
	}
	return fmt.Errorf("for %s the cache has not shown the latest write to %s", DoubtAfter, d.object.key)
}
