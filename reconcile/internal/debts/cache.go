package debts

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// Informer is the part of an informer that the ledger uses; *[informer.SharedIndexInformer] implements it for every
// type of object.
type Informer interface {
	Name() string
	Health() informer.Health
	Version(Key) (informer.Version, bool)
	Invalid(Key) error
	ResourceVersion(namespace string) string
	HealthIn(namespace string) informer.Health
	Relist(namespace string, doubt error) int
	Keys() []Key
	Len() int
	Fresh(namespace string) error
}

// Cache is an informer that a controller depends on, as the controller's ledger sees it. Its debts lie in partitions.
type Cache struct {
	// Not changed once the informer has been started.
	Informer
	Learner *writes.Learner // of what the informer asks for; see [NewLearner]
	Subject bool            // its objects are what the keys name
	// Object returns the object of a key, which is shared: read-only.
	Object func(Key) (any, bool)

	// byName says that the informer follows single objects, each by itself.
	byName bool
	// scope returns the informer's scope if it keeps a share of the objects only; else it is nil.
	scope func() informer.Scope

	// comes says that the cache comes and goes, and givenUp that it has gone, so that nothing is waited for in it.
	comes   bool
	givenUp atomic.Bool
	// passed says that keys have run without the cache: see MayPass. Then arrived queues them, once the cache may be
	// acted on.
	passed  atomic.Bool
	arrived func()

	// after says which parts may not be acted on before a list is complete that has begun after a list of that number:
	// see listAfter. awaitsLists reports whether it has entries. afterMu guards it, and may be taken with the ledger's
	// mu held.
	afterMu     sync.Mutex
	after       map[string]int
	awaitsLists atomic.Bool

	// byNamespace reports whether the informer lists and watches each namespace, or each object, by itself. It is read
	// without a lock, and written with the ledger's mu held.
	byNamespace atomic.Bool

	// Guarded by the ledger's mu.
	partitions map[string]*partition // those with debts, or with something left for the relister; by partitionName
	gone       recentlyGone
	// Both are for the next leader, and by scopeName. written is the latest version that this process wrote. shown is
	// how far the cache had come when it first showed something that has no version, such as a deletion: the next
	// leader's cache must have come as far, or list anew.
	written, shown map[string]mark
	// unversioned, for the next leader and by scopeName, too, is the number of the first list that covers a write which
	// no key waits for, and which has changed an object to a version that the answer does not tell, such as an
	// eviction. When that list is complete, noteListedLocked takes the entry away.
	unversioned map[string]int
	// unlisted reports whether unversioned has entries. It is read without a lock.
	unlisted atomic.Bool
}

func newCache(inf Informer) *Cache {
	c := &Cache{
		Informer: inf, Object: func(Key) (any, bool) { return nil, false },
		partitions: make(map[string]*partition),
		written:    make(map[string]mark), shown: make(map[string]mark), unversioned: make(map[string]int),
		byName: followsByName(inf),
	}
	if scoped, ok := inf.(interface{ Scope() informer.Scope }); ok && scoped.Scope().Sharded() {
		c.scope = scoped.Scope
	}
	c.byNamespace.Store(c.byName)
	return c
}

// NewLearner makes what finds out what an informer asks for.
func NewLearner(inf any) *writes.Learner { return &writes.Learner{ByName: followsByName(inf)} }

// followsByName reports whether an informer follows single objects.
func followsByName(inf any) bool {
	scoped, ok := inf.(interface{ Scope() informer.Scope })
	return ok && scoped.Scope().ByName
}

// keeps reports whether the cache is to show an object that was written, if it shows all of its scope.
func (c *Cache) keeps(w writes.Write) bool {
	return c.scope == nil || c.scope().Keeps(&metav1.ObjectMeta{Namespace: w.Object.Namespace, Name: w.Object.Name,
		UID: w.UID, ResourceVersion: w.ResourceVersion, Labels: w.Labels, OwnerReferences: w.Owners})
}

// changesShare reports whether a change of an object may take it into the share, or out of it.
func (c *Cache) changesShare() bool { return c.scope != nil && !c.scope().ByKey() }

// MayKeep reports whether an object of that key, which may be without a name, may be in this replica's share. If not,
// the cache never shows it.
func (c *Cache) MayKeep(key Key) bool {
	return c.scope == nil || key.Name == "" || c.scope().MayKeep(key)
}

// complete reports whether the informer has ever completed a list of all that it follows now.
func (c *Cache) complete() bool { return c.HealthIn(metav1.NamespaceAll).Listed > 0 }

// mark is a version of a resource, and the number of the latest list that the informer had begun when it was made, or
// had completed if the cache had that version. So a list with a higher number is from after the version.
type mark struct {
	resourceVersion string
	begun           int
}

// progress says how far a cache has come in one partition. begun is the number of the latest list that the informer has
// begun, and listed that of the latest one that it has completed.
type progress struct {
	unfollowed      bool // the informer does not follow the namespace
	resourceVersion string
	begun, listed   int
}

// progress asks the informer. The caller may hold the ledger's mu. A cache that knows no object shows none. The version
// is read last: the informer reaches the version of a list before it says that the list is complete, so this one is not
// from before the list.
func (c *Cache) progress(place string) progress {
	h, version := c.HealthIn(place), c.ResourceVersion(place)
	// Live without a list is a cache that has nothing to list.
	nothing := place == metav1.NamespaceAll && version == "" &&
		(c.byName || h.State == informer.Live && h.Listed == 0)
	unfollowed := h.State == "" || nothing || c.givenUp.Load()
	return progress{unfollowed, version, h.Lists, h.Listed}
}

// PlaceOf returns the part of the cache that has an object, as the informer's methods take it: its namespace, or, if
// the informer follows single objects, its key. Where that needs a name that is not known it is all of the cache.
func (c *Cache) PlaceOf(key Key) string {
	switch {
	case !c.byName:
		return key.Namespace
	case key.Name == "":
		return metav1.NamespaceAll
	default:
		return key.String()
	}
}

// scopeName returns the namespace that the informer asks for to see the objects of this one: itself, or all of them.
func (c *Cache) scopeName(namespace string) string {
	if s := c.Learner.ScopeOf(namespace); s != nil {
		return s.Target.Namespace
	}
	return c.partitionName(namespace) // the informer's requests do not pass TrackWrites
}

// noteWrittenLocked records that this process has written a version in a namespace, whose progress it is given.
func (c *Cache) noteWrittenLocked(namespace, resourceVersion string, at progress) {
	at.mark(c.written, c.scopeName(namespace), resourceVersion)
}

// noteShownLocked records that the cache, as far as it has come, shows something that has no version.
func (c *Cache) noteShownLocked(namespace string, at progress) {
	at.mark(c.shown, c.scopeName(namespace), at.resourceVersion)
}

// noteUnversionedLocked records that this process has changed something in a namespace to a version that is not known:
// the next leader's cache lists anew, unless this one lists before.
func (c *Cache) noteUnversionedLocked(namespace string, at progress) {
	c.unversioned[c.scopeName(namespace)] = at.begun + 1
	c.unlisted.Store(true)
}

// noteListedLocked looks for the lists that cover what noteUnversionedLocked has noted. From then on it is enough that
// the next leader's cache has come as far as this one has now. Where each object is followed by itself, the version of
// one says nothing of another: there the entries stay.
func (c *Cache) noteListedLocked() {
	for of, begun := range c.unversioned {
		if c.byName {
			break
		}
		var places []string
		for _, s := range c.followedScopes() {
			if overlap(of, s.Namespace) && !c.progress(s.Namespace).unfollowed {
				places = append(places, s.Namespace)
			}
		}
		if slices.ContainsFunc(places, func(place string) bool { return c.progress(place).listed < begun }) {
			continue
		}
		for _, place := range places {
			c.noteShownLocked(place, c.progress(place))
		}
		delete(c.unversioned, of)
	}
	c.unlisted.Store(len(c.unversioned) > 0)
}

// overlap reports whether two scopes have objects in common: each is a namespace, or all of them.
func overlap(a, b string) bool {
	return a == b || a == metav1.NamespaceAll || b == metav1.NamespaceAll
}

// noteUnknownLocked is noteUnversionedLocked for each place where the cache may show what a request is about.
func (c *Cache) noteUnknownLocked(t writes.Target) {
	for _, namespace := range c.Learner.MayHold(t) {
		c.noteUnversionedLocked(namespace, c.progress(namespace))
	}
}

// mark puts a version in the place of an earlier one, or of one that the cluster has gone back from.
func (at progress) mark(marks map[string]mark, scope, resourceVersion string) {
	last := marks[scope]
	if resourceVersion == at.resourceVersion {
		at.begun = at.listed // the cache had it: a later list that is older is that of a cluster that has gone back
	}
	if resourceVersion != "" && (at.rewound(last) || !kube.AtLeast(last.resourceVersion, resourceVersion)) {
		marks[scope] = mark{resourceVersion, at.begun}
	}
}

// rewound reports whether the cluster has gone back to a state from before a mark: a list that began after it shows an
// older version. That holds whatever the informer followed at that time.
func (at progress) rewound(m mark) bool {
	return at.listed > m.begun && kube.Older(at.resourceVersion, m.resourceVersion)
}

// maxGone is how many UIDs recentlyGone keeps. They bridge the time from the event of a deletion to the answer.
const maxGone = 1024

// recentlyGone has the UIDs of the objects that have left a cache last.
type recentlyGone struct {
	left []left
	next int // where the next one is put once there are maxGone
}

type left struct {
	uid types.UID
	at  time.Time
}

func (g *recentlyGone) add(uid types.UID, at time.Time) {
	if len(g.left) < maxGone {
		g.left = append(g.left, left{uid, at})
		return
	}
	g.left[g.next] = left{uid, at}
	g.next = (g.next + 1) % maxGone
}

// has reports whether the object has left the cache since that time.
func (g *recentlyGone) has(uid types.UID, since time.Time) bool {
	return slices.ContainsFunc(g.left, func(l left) bool { return l.uid == uid && !l.at.Before(since) })
}
