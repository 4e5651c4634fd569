package reconcile

import (
	"container/list"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// debt is something that a key waits for in one cache. The package's doc has the life of a debt as a picture, and says
// what settles each kind; [debt.settled] decides it.
type debt struct {
	// Not changed once the ledger has the debt. openedAt, begun, rewinds and, of an unknown outcome, list are set by
	// owe: begun is the number of the latest list that the informer had begun by then, so a later one shows the write,
	// and rewinds is from the progress at that time.
	owner           Key
	kind            debtKind
	object          object // of an unreadyCache, and of an unknownOutcome that has no name, only the namespace counts
	uid             types.UID
	resourceVersion string // of a deletion: a version at which the object still existed; empty if none is known
	list            int    // of an unknownOutcome: the number of the list that settles it
	openedAt        time.Time
	begun           int
	rewinds         int

	// Guarded by the ledger's mu. onceHeld is true of a deletion if the cache has ever held the object: if it does not
	// hold it now, it has seen the deletion. partition is nil once the debt is paid. slot, age and rank say where the
	// debt is in its account, in byAge and in byVersion: a rank of -1 means that it is not there.
	onceHeld  bool
	partition *partition
	slot      int
	age       *list.Element
	rank      int
}

type debtKind uint8

const (
	unseenChange   debtKind = iota // the object has been created or changed
	unseenDeletion                 // the object has been deleted, or is being deleted
	unknownOutcome                 // the answer to a write was lost: it may have happened
	unreadyCache                   // no write: the cache is incomplete, or older than its informer's MaxStaleness
)

// debtKinds are the kinds as records have them.
var debtKinds = [...]DebtKind{unseenChange: DebtChange, unseenDeletion: DebtDeletion, unknownOutcome: DebtUnknown,
	unreadyCache: DebtNotReady}

// unseen returns the kind of a write whose answer is known.
func unseen(deleted bool) debtKind {
	if deleted {
		return unseenDeletion
	}
	return unseenChange
}

// record describes the debt, and its cache as it is now, but not why the cache is in trouble: errors may be the user's
// code, and the ledger's mu is held.
func (d *debt) record() DebtRecord {
	h := d.object.cache.HealthIn(d.object.key.Namespace)
	return DebtRecord{
		Kind:     debtKinds[d.kind],
		Informer: d.object.cache.Name(), Namespace: d.object.key.Namespace, Name: d.object.key.Name,
		ResourceVersion: d.resourceVersion, Since: d.openedAt,
		CacheVersion: d.object.cache.ResourceVersion(d.object.key.Namespace), CacheState: string(h.State),
		CacheSince: h.Since, CacheInvalid: d.ofObject() && d.hidden(),
	}
}

// object is a name in a cache.
type object struct {
	cache *cache
	key   Key
}

// ofObject reports whether an event of the object may settle the debt.
func (d *debt) ofObject() bool { return d.kind == unseenChange || d.kind == unseenDeletion }

// settled reports whether the key need not wait for the debt any more, now that the cache has come this far. The
// ledger's mu is held.
func (d *debt) settled(at progress) bool {
	switch {
	case at.unfollowed:
		return true // the informer will never see the write
	case at.rewinds != d.rewinds:
		return true // the cluster has gone back to a state from before the write
	case d.kind == unreadyCache:
		return d.object.cache.Fresh(d.object.key.Namespace) == nil
	case d.kind == unknownOutcome:
		return at.listed >= d.list
	}
	has, held := d.object.cache.Version(d.object.key)
	switch same := held && has.UID == d.uid; {
	case same && d.kind == unseenDeletion:
		return has.Deleting
	case same && kube.AtLeast(has.ResourceVersion, d.resourceVersion):
		return true
	case d.onceHeld:
		return true // and the cache does not hold it any more
	}
	// The cache does not show the write. Either it has gone past it, or it has not come as far.
	passed := at.listed > d.begun && (d.kind == unseenDeletion || !kube.Ordered(at.resourceVersion, d.resourceVersion))
	if d.resourceVersion != "" {
		passed = passed || kube.AtLeast(at.resourceVersion, d.resourceVersion) ||
			held && kube.AtLeast(has.ResourceVersion, d.resourceVersion)
	}
	return passed && !d.hidden()
}

// hidden reports whether the store could not take the present state of an object of that name. Then the cache may have
// gone past the write, and still no call of Reconcile would see what was written. The key's own object is different:
// Options.Invalid is called for it, not Reconcile, and is given the metadata of that state.
func (d *debt) hidden() bool {
	why := d.object.cache.Invalid(d.object.key)
	if why == nil {
		return false
	}
	var invalid *informer.InvalidError
	if !d.object.cache.subject || d.object.key != d.owner || !errors.As(why, &invalid) {
		return true
	}
	switch o := invalid.Object; {
	case d.uid != "" && o.UID != d.uid:
		return false // the object that was written is gone
	case d.kind == unseenDeletion:
		return o.DeletionTimestamp == nil
	default:
		return !kube.AtLeast(o.ResourceVersion, d.resourceVersion)
	}
}
