package reconcile

import (
	"container/heap"
	"container/list"
	"slices"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place is what one list-watch of a cache brings: the objects of a namespace that is followed by itself, or all of
// them. A key without a namespace, where namespaces are followed by themselves, has its debts in a place of its own,
// which has come as far as the one that has come least far.
//
// The debts of a place are in order, so that a version costs what it settles, however many debts are open:
//
//	by age       all of them. A list settles what was noted before it began; and the oldest are those to ask about
//	by version   writes whose version is a number, until the cache has reached that
//	by name      writes whose version is none: they are settled when the cache is at just that version
//	for a cache  keys that wait until the cache may be acted on
//
// Everything in it is guarded by the ledger's mu.
type partition struct {
	cache     *cache
	namespace string // NamespaceAll: of all that are not followed by themselves

	byAge     list.List
	byVersion versions
	byName    map[string][]*debt
	forCache  map[*debt]struct{}

	// listed and rewinds are those of the cache when the debts were last looked through.
	listed, rewinds int

	probeState
}

// placeName returns which place of a cache the objects of a namespace are in.
func (c *cache) partitionName(namespace string) string {
	if c.apart.Load() {
		return namespace
	}
	return metav1.NamespaceAll
}

// placeOf returns the place of the objects of a namespace, which has come as far as now says.
func (c *cache) partitionOf(namespace string, now progress) *partition {
	name := c.partitionName(namespace)
	p, ok := c.partitions[name]
	if !ok {
		p = &partition{
			cache: c, namespace: name, byName: make(map[string][]*debt), forCache: make(map[*debt]struct{}),
			listed: now.listed, rewinds: now.rewinds,
			probeState: probeState{pace: lifecycle.Backoff{Base: probePause, Cap: maxProbePause, Costly: true},
				logged: make(map[trouble]bool)},
		}
		c.partitions[name] = p
	}
	return p
}

func (p *partition) progress() progress { return p.cache.progress(p.namespace) }

// add takes a debt into the place.
func (p *partition) add(d *debt) {
	d.partition, d.rank = p, -1
	d.age = p.byAge.PushBack(d)
	switch {
	case d.list == freshCache:
		p.forCache[d] = struct{}{}
	case d.list > 0 || d.resourceVersion == "":
	case kube.Ordered(d.resourceVersion, "1"):
		heap.Push(&p.byVersion, d)
	default:
		p.byName[d.resourceVersion] = append(p.byName[d.resourceVersion], d)
	}
}

// remove takes a debt out of the place.
func (p *partition) remove(d *debt) {
	p.byAge.Remove(d.age)
	d.partition, d.age = nil, nil
	delete(p.forCache, d)
	if d.rank >= 0 {
		heap.Remove(&p.byVersion, d.rank)
	}
	if same, ok := p.byName[d.resourceVersion]; ok {
		same = slices.DeleteFunc(same, func(other *debt) bool { return other == d })
		if p.byName[d.resourceVersion] = same; len(same) == 0 {
			delete(p.byName, d.resourceVersion)
		}
	}
}

// oldest returns the debts by age, up to the first that fn does not want.
func (p *partition) oldest(fn func(*debt) bool) (debts []*debt) {
	for e := p.byAge.Front(); e != nil; e = e.Next() {
		d := e.Value.(*debt)
		if !fn(d) {
			break
		}
		debts = append(debts, d)
	}
	return debts
}

func all(*debt) bool { return true }

// reached settles what the cache of an informer shows now that it has reached a version in a namespace, or follows that
// no longer, and wakes the keys that have no debts left. It finds the writes that no event is told of: the object came
// and went between two looks, or cannot be taken into the store.
func (l *ledger) reached(c *cache, namespace string) {
	apart := namespace != metav1.NamespaceAll
	if l.open.Load() == 0 && c.apart.Load() == apart {
		return
	}
	l.mu.Lock()
	// The list of all has given way to those of some, or the other way round.
	apart = apart || c.ResourceVersion(metav1.NamespaceAll) == ""
	regrouped := c.apart.Load() != apart
	if regrouped {
		c.regroup(apart)
	}
	var keys []wokenKey
	if regrouped {
		for _, p := range c.partitions {
			keys = l.payReached(keys, p, true)
		}
	} else {
		if p, ok := c.partitions[namespace]; ok && apart {
			keys = l.payReached(keys, p, false)
		}
		if p, ok := c.partitions[metav1.NamespaceAll]; ok {
			keys = l.payReached(keys, p, false)
		}
	}
	l.mu.Unlock()
	l.wakeUp(keys)
}

// look pays those debts of a place that are settled, and adds the keys that are to go on. Unless anew is true it looks
// at those debts only that may have been settled since the last look. The ledger's mu is held.
func (l *ledger) payReached(keys []wokenKey, p *partition, anew bool) []wokenKey {
	now := p.progress()
	var maybe []*debt
	if anew || now.unfollowed || now.resourceVersion == "" || now.rewinds != p.rewinds {
		maybe = p.oldest(all)
	} else {
		if now.listed != p.listed {
			maybe = p.oldest(func(d *debt) bool { return d.begun < now.listed })
		}
		for len(p.byVersion) > 0 && kube.AtLeast(now.resourceVersion, p.byVersion[0].resourceVersion) {
			maybe = append(maybe, heap.Pop(&p.byVersion).(*debt))
		}
		maybe = append(maybe, p.byName[now.resourceVersion]...)
		if len(p.forCache) > 0 && p.cache.Fresh(p.namespace) == nil {
			for d := range p.forCache {
				maybe = append(maybe, d)
			}
		}
	}
	p.listed, p.rewinds = now.listed, now.rewinds
	return l.paySettled(keys, maybe, now)
}

// judge pays those of the debts, all of one place, that are settled, and adds the keys that are to go on. What the
// cache has reached without being settled, for it could not be taken, or is still to be deleted, an event settles, a
// list, or the prober. The ledger's mu is held.
func (l *ledger) paySettled(keys []wokenKey, debts []*debt, now progress) []wokenKey {
	for _, d := range debts {
		if d.partition == nil || !d.settled(now) {
			continue
		}
		if d.deleted {
			d.object.cache.noteWritten(d.object.key.Namespace, mark{now.resourceVersion, now.rewinds})
		}
		keys = l.pay(keys, d, now, false)
	}
	return keys
}

// regroup puts the debts into other places, now that the informer follows namespaces by themselves, or does so no
// longer. The ledger's mu is held.
func (c *cache) regroup(apart bool) {
	var debts []*debt
	for _, p := range c.partitions {
		debts = append(debts, p.oldest(all)...)
	}
	slices.SortStableFunc(debts, func(a, b *debt) int { return a.openedAt.Compare(b.openedAt) })
	clear(c.partitions)
	c.apart.Store(apart)
	for _, d := range debts {
		d.partition.remove(d)
		p := c.partitionOf(d.object.key.Namespace, progress{})
		p.add(d)
		if d.list > 0 {
			p.listWanted = max(p.listWanted, d.list)
		}
	}
}

// versions is a heap of debts: the one with the lowest version is the first.
type versions []*debt

func (v versions) Len() int { return len(v) }

func (v versions) Less(i, j int) bool {
	return kube.Older(v[i].resourceVersion, v[j].resourceVersion)
}

func (v versions) Swap(i, j int) {
	v[i], v[j] = v[j], v[i]
	v[i].rank, v[j].rank = i, j
}

func (v *versions) Push(d any) {
	d.(*debt).rank = len(*v)
	*v = append(*v, d.(*debt))
}

func (v *versions) Pop() any {
	last := len(*v) - 1
	d := (*v)[last]
	(*v)[last] = nil
	*v = (*v)[:last]
	d.rank = -1
	return d
}
