package reconcile

import (
	"container/heap"
	"container/list"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// trackedInformer is the part of an informer that the ledger uses; *[informer.SharedIndexInformer] implements it for
// every type of object.
type trackedInformer interface {
	Informer
	Version(Key) (informer.Version, bool)
	Invalid(Key) error
	ResourceVersion(namespace string) string
	HealthIn(namespace string) informer.Health
	Relist(namespace string, doubt error) int
	Keys() []Key
	Len() int
	Fresh(namespace string) error
}

// cache is an informer that a controller depends on, as the controller's ledger sees it. Its debts lie in partitions.
type cache struct {
	// Not changed once the Manager has started.
	trackedInformer
	learner *writes.Learner // set by the Manager before it starts the informer
	subject bool            // it was given to For: its objects are what the keys name
	// object returns the object of a key, which is shared: read-only. A source sets it.
	object func(Key) (any, bool)

	// byName says that the informer follows single objects, each by itself; references say which keys name them.
	byName     bool
	references []reference

	// comes says that the cache comes and goes: see [Dynamic]. Then sources has its sources, which are added while it
	// is opening; givenUp says that it has gone, so that nothing is waited for in it.
	comes            bool
	sources          []source
	failed           error // the first error of those sources
	opening, givenUp atomic.Bool
	// passed says that keys have run without the cache: see mayPass. Then arrived queues them, once the cache may be
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
	// eviction. When that list is complete, noteListed takes the entry away.
	unversioned map[string]int
	// unlisted reports whether unversioned has entries. It is read without a lock.
	unlisted atomic.Bool
}

func newCache(inf trackedInformer) *cache {
	c := &cache{
		trackedInformer: inf, object: func(Key) (any, bool) { return nil, false },
		partitions: make(map[string]*partition),
		written:    make(map[string]mark), shown: make(map[string]mark), unversioned: make(map[string]int),
		byName: followsByName(inf),
	}
	c.byNamespace.Store(c.byName)
	return c
}

// complete reports whether the informer has ever completed a list of all that it follows now.
func (c *cache) complete() bool { return c.HealthIn(metav1.NamespaceAll).Listed > 0 }

// listAfter lets nobody act on a part of the cache before a list is complete that begins from now on. It is for a part
// that cannot show something now, when nobody is to wait for that but the keys that need the part.
func (c *cache) listAfter(place string) {
	c.afterMu.Lock()
	defer c.afterMu.Unlock()
	if c.after == nil {
		c.after = make(map[string]int)
	}
	c.after[place] = c.HealthIn(place).Lists
	c.awaitsLists.Store(true)
}

// ready reports whether the cache may be acted on in a place. If all that is missing is a list for listAfter, it asks
// for one.
func (c *cache) ready(place string) bool {
	if c.Fresh(place) != nil {
		return false
	}
	if !c.awaitsLists.Load() {
		return true
	}
	c.afterMu.Lock()
	defer c.afterMu.Unlock()
	ready := true
	for part, begun := range c.after {
		h := c.HealthIn(part)
		switch {
		case h.State == "" || h.Listed > begun:
			delete(c.after, part)
			continue
		case !overlap(part, place):
			continue
		case h.Lists <= begun:
			c.Relist(part, nil)
		}
		ready = false
	}
	c.awaitsLists.Store(len(c.after) > 0)
	return ready
}

// barred reports whether the cache comes and goes, and the server refuses what it asks for, or does not know it.
func barred(c *cache, place string) bool {
	h := c.HealthIn(place)
	return c.comes && (h.State == informer.Denied || h.State == informer.Missing)
}

// mayPass reports whether a key that needs the cache runs even so: only somebody else can let the server answer, and
// Reconcile can say so. [Dynamic.Get] returns an error until the cache may be acted on, and then the keys run again.
func (c *cache) mayPass() bool {
	if !barred(c, metav1.NamespaceAll) {
		return false
	}
	c.passed.Store(true) // before the key looks at the cache: it sees that the cache is ready, or arrives finds this
	return true
}

// arrives queues the keys that have run without the cache, if it may be acted on now.
func arrives(c *cache) {
	if c.passed.Load() && c.ready(metav1.NamespaceAll) && c.passed.Swap(false) {
		c.arrived()
	}
}

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
func (c *cache) progress(place string) progress {
	h, version := c.HealthIn(place), c.ResourceVersion(place)
	// Live without a list is a cache that has nothing to list.
	nothing := place == metav1.NamespaceAll && version == "" &&
		(c.byName || h.State == informer.Live && h.Listed == 0)
	unfollowed := h.State == "" || nothing || c.givenUp.Load()
	return progress{unfollowed, version, h.Lists, h.Listed}
}

// placeOf returns the part of the cache that has an object, as the informer's methods take it: its namespace, or, if
// the informer follows single objects, its key. Where that needs a name that is not known it is all of the cache.
func (c *cache) placeOf(key Key) string {
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
func (c *cache) scopeName(namespace string) string {
	if s := c.learner.ScopeOf(namespace); s != nil {
		return s.Target.Namespace
	}
	return c.partitionName(namespace) // the informer's requests do not pass TrackWrites
}

// noteWritten records that this process has written a version in a namespace, whose progress it is given. The ledger's
// mu is held.
func (c *cache) noteWritten(namespace, resourceVersion string, at progress) {
	at.mark(c.written, c.scopeName(namespace), resourceVersion)
}

// noteShown records that the cache, as far as it has come, shows something that has no version. The ledger's mu
// is held.
func (c *cache) noteShown(namespace string, at progress) {
	at.mark(c.shown, c.scopeName(namespace), at.resourceVersion)
}

// noteUnversioned records that this process has changed something in a namespace to a version that is not known: the
// next leader's cache lists anew, unless this one lists before. The ledger's mu is held.
func (c *cache) noteUnversioned(namespace string, at progress) {
	c.unversioned[c.scopeName(namespace)] = at.begun + 1
	c.unlisted.Store(true)
}

// noteListed looks for the lists that cover what noteUnversioned has noted. From then on it is enough that the next
// leader's cache has come as far as this one has now. Where each object is followed by itself, the version of one says
// nothing of another: there the entries stay. The ledger's mu is held.
func (c *cache) noteListed() {
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
			c.noteShown(place, c.progress(place))
		}
		delete(c.unversioned, of)
	}
	c.unlisted.Store(len(c.unversioned) > 0)
}

// overlap reports whether two scopes have objects in common: each is a namespace, or all of them.
func overlap(a, b string) bool {
	return a == b || a == metav1.NamespaceAll || b == metav1.NamespaceAll
}

// noteUnknown is noteUnversioned for each place where the cache may show what a request is about. The ledger's mu is
// held.
func (c *cache) noteUnknown(t writes.Target) {
	for _, namespace := range c.learner.MayHold(t) {
		c.noteUnversioned(namespace, c.progress(namespace))
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

// partition is the part of a cache that one list and watch fill: all objects, or those of one namespace where the
// informer follows namespaces by themselves. There, keys without a namespace have their debts in a partition of their
// own, whose progress is that of the partition that has come least far.
//
// The debts of a partition are in order, so that a new version costs as much as the debts that it settles, however many
// are open:
//
//	byAge       all debts. A list settles those that are older than the list
//	byVersion   writes whose version is a number, which the cache reaches in order
//	byName      writes whose version is no number: the cache settles them when it is at exactly that version
//	unready     keys that wait until the cache may be acted on
//
// The ledger's mu guards all of it.
type partition struct {
	cache     *cache
	namespace string // NamespaceAll: all objects, or keys without a namespace

	byAge     list.List
	byVersion versionHeap
	byName    map[string][]*debt
	unready   map[*debt]struct{}

	// listed is from the progress at which payReached last looked at the debts.
	listed int

	overdueState
}

// partitionName returns the name of the partition that has the objects of a namespace.
func (c *cache) partitionName(namespace string) string {
	if c.byNamespace.Load() {
		return namespace
	}
	return metav1.NamespaceAll
}

// partitionOf returns the partition that has the objects of a namespace. One that is new begins at this progress. The
// ledger's mu is held.
func (c *cache) partitionOf(namespace string, at progress) *partition {
	name := c.partitionName(namespace)
	p, ok := c.partitions[name]
	if !ok {
		p = &partition{
			cache: c, namespace: name, byName: make(map[string][]*debt), unready: make(map[*debt]struct{}),
			listed: at.listed,
			overdueState: overdueState{
				pace:   lifecycle.Backoff{Base: minPause, Cap: maxPause, Costly: true, Purpose: c.Name()},
				logged: make(map[trouble]bool),
			},
		}
		c.partitions[name] = p
	}
	return p
}

func (p *partition) progress() progress { return p.cache.progress(p.namespace) }

// add puts a debt into the partition. The ledger's mu is held.
func (p *partition) add(d *debt) {
	d.partition, d.rank = p, -1
	d.age = p.byAge.PushBack(d)
	p.lookFrom(d.overdueAt())
	switch {
	case d.kind == status.DebtNotReady:
		p.unready[d] = struct{}{}
	case d.kind == status.DebtUnknown || d.resourceVersion == "":
	case kube.Ordered(d.resourceVersion, "1"):
		heap.Push(&p.byVersion, d)
	default:
		p.byName[d.resourceVersion] = append(p.byName[d.resourceVersion], d)
	}
}

// remove takes a debt out of the partition. The ledger's mu is held.
func (p *partition) remove(d *debt) {
	p.byAge.Remove(d.age)
	d.partition, d.age = nil, nil
	delete(p.unready, d)
	if d.rank >= 0 {
		heap.Remove(&p.byVersion, d.rank)
	}
	if same, ok := p.byName[d.resourceVersion]; ok {
		same = slices.DeleteFunc(same, func(other *debt) bool { return other == d })
		p.byName[d.resourceVersion] = same
		if len(same) == 0 {
			delete(p.byName, d.resourceVersion)
		}
	}
}

// oldest returns the debts by age, up to the first that include does not accept. The ledger's mu is held.
func (p *partition) oldest(include func(*debt) bool) (debts []*debt) {
	for e := p.byAge.Front(); e != nil; e = e.Next() {
		d := e.Value.(*debt)
		if !include(d) {
			break
		}
		debts = append(debts, d)
	}
	return debts
}

func all(*debt) bool { return true }

// perhapsSettled appends the debts that the progress since the last call may have settled. The ledger's mu is held.
func (p *partition) perhapsSettled(debts []*debt, at progress) []*debt {
	listed := at.listed != p.listed
	p.listed = at.listed
	if at.unfollowed || at.resourceVersion == "" {
		return append(debts, p.oldest(all)...)
	}
	if listed {
		debts = append(debts, p.oldest(func(d *debt) bool { return d.begun < at.listed })...)
	}
	for len(p.byVersion) > 0 && kube.AtLeast(at.resourceVersion, p.byVersion[0].resourceVersion) {
		debts = append(debts, heap.Pop(&p.byVersion).(*debt))
	}
	debts = append(debts, p.byName[at.resourceVersion]...)
	if len(p.unready) > 0 && p.cache.ready(p.namespace) {
		for d := range p.unready {
			debts = append(debts, d)
		}
	}
	return debts
}

// noteReached records, for the next leader, how far the cache has come when it shows a deletion or a write of unknown
// outcome. The ledger's mu is held.
func (p *partition) noteReached(d *debt, at progress) {
	c, namespace := p.cache, p.cache.placeOf(d.object.key)
	if d.kind == status.DebtDeletion {
		c.noteWritten(namespace, at.resourceVersion, at)
	} else {
		c.noteShown(namespace, at)
	}
}

// repartition moves the debts into other partitions after the informer has begun to follow namespaces by themselves, or
// has stopped to. What has been logged stays known. The ledger's mu is held.
func (c *cache) repartition(byNamespace bool) {
	var debts []*debt
	var lastTrouble time.Time
	logged := make(map[trouble]bool)
	for _, p := range c.partitions {
		debts = append(debts, p.oldest(all)...)
		maps.Copy(logged, p.logged)
		if p.lastTrouble.After(lastTrouble) {
			lastTrouble = p.lastTrouble
		}
	}
	slices.SortStableFunc(debts, func(a, b *debt) int { return a.openedAt.Compare(b.openedAt) })
	clear(c.partitions)
	c.byNamespace.Store(byNamespace)
	for _, d := range debts {
		d.partition.remove(d)
		p := c.partitionOf(c.placeOf(d.object.key), progress{})
		p.add(d)
	}
	if len(debts) == 0 && len(logged) > 0 {
		c.partitionOf(metav1.NamespaceAll, progress{}) // for the line that says that all is quiet
	}
	for _, p := range c.partitions {
		p.lastTrouble, p.logged = lastTrouble, maps.Clone(logged)
	}
}

// versionHeap is a heap of debts: the one with the lowest version is the first.
type versionHeap []*debt

func (v versionHeap) Len() int { return len(v) }

func (v versionHeap) Less(i, j int) bool {
	return kube.Older(v[i].resourceVersion, v[j].resourceVersion)
}

func (v versionHeap) Swap(i, j int) {
	v[i], v[j] = v[j], v[i]
	v[i].rank, v[j].rank = i, j
}

func (v *versionHeap) Push(d any) {
	d.(*debt).rank = len(*v)
	*v = append(*v, d.(*debt))
}

func (v *versionHeap) Pop() any {
	last := len(*v) - 1
	d := (*v)[last]
	(*v)[last] = nil
	*v = (*v)[:last]
	d.rank = -1
	return d
}
