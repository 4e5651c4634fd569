package debts

import (
	"container/heap"
	"container/list"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

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
	cache     *Cache
	namespace string // NamespaceAll: all objects, or keys without a namespace

	byAge     list.List
	byVersion versionHeap
	byName    map[string][]*debt
	unready   map[*debt]struct{}

	// listed is from the progress at which payReachedLocked last looked at the debts.
	listed int

	overdueState
}

// partitionName returns the name of the partition that has the objects of a namespace.
func (c *Cache) partitionName(namespace string) string {
	if c.byNamespace.Load() {
		return namespace
	}
	return metav1.NamespaceAll
}

// partitionOfLocked returns the partition that has the objects of a namespace. One that is new begins at this progress.
func (c *Cache) partitionOfLocked(namespace string, at progress) *partition {
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

// addLocked puts a debt into the partition.
func (p *partition) addLocked(d *debt) {
	d.partition, d.rank = p, -1
	d.age = p.byAge.PushBack(d)
	p.lookFromLocked(d.overdueAt())
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

// removeLocked takes a debt out of the partition.
func (p *partition) removeLocked(d *debt) {
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

// oldestLocked returns the debts by age, up to the first that include does not accept.
func (p *partition) oldestLocked(include func(*debt) bool) (debts []*debt) {
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

// perhapsSettledLocked appends the debts that the progress since the last call may have settled.
func (p *partition) perhapsSettledLocked(debts []*debt, at progress) []*debt {
	listed := at.listed != p.listed
	p.listed = at.listed
	if at.unfollowed || at.resourceVersion == "" {
		return append(debts, p.oldestLocked(all)...)
	}
	if listed {
		debts = append(debts, p.oldestLocked(func(d *debt) bool { return d.begun < at.listed })...)
	}
	for len(p.byVersion) > 0 && kube.AtLeast(at.resourceVersion, p.byVersion[0].resourceVersion) {
		debts = append(debts, heap.Pop(&p.byVersion).(*debt))
	}
	debts = append(debts, p.byName[at.resourceVersion]...)
	if len(p.unready) > 0 && p.cache.Ready(p.namespace) {
		for d := range p.unready {
			debts = append(debts, d)
		}
	}
	return debts
}

// noteReachedLocked records, for the next leader, how far the cache has come when it shows a deletion or a write of
// unknown outcome.
func (p *partition) noteReachedLocked(d *debt, at progress) {
	c, namespace := p.cache, p.cache.PlaceOf(d.object.key)
	if d.kind == status.DebtDeletion {
		c.noteWrittenLocked(namespace, at.resourceVersion, at)
	} else {
		c.noteShownLocked(namespace, at)
	}
}

// repartitionLocked moves the debts into other partitions after the informer has begun to follow namespaces by
// themselves, or has stopped to. What has been logged stays known.
func (c *Cache) repartitionLocked(byNamespace bool) {
	var debts []*debt
	var lastTrouble time.Time
	logged := make(map[trouble]bool)
	for _, p := range c.partitions {
		debts = append(debts, p.oldestLocked(all)...)
		maps.Copy(logged, p.logged)
		if p.lastTrouble.After(lastTrouble) {
			lastTrouble = p.lastTrouble
		}
	}
	slices.SortStableFunc(debts, func(a, b *debt) int { return a.openedAt.Compare(b.openedAt) })
	clear(c.partitions)
	c.byNamespace.Store(byNamespace)
	for _, d := range debts {
		d.partition.removeLocked(d)
		p := c.partitionOfLocked(c.PlaceOf(d.object.key), progress{})
		p.addLocked(d)
	}
	if len(debts) == 0 && len(logged) > 0 {
		c.partitionOfLocked(metav1.NamespaceAll, progress{}) // for the line that says that all is quiet
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
