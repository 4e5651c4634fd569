package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// A chronicle is all that was seen of Deployments and ReplicaSets, by watches of its own. It is judged in the order of
// the resource versions, which the API server gives to all resources in one sequence.
type chronicle struct {
	client    kubernetes.Interface
	namespace string

	mu      sync.Mutex
	entries []entry // guarded by mu
}

// entry is a change of one object, or a list in place of changes: an API server that was restarted does not tell what
// happened just before.
type entry struct {
	version int64
	at      time.Time
	gone    bool // the object was deleted

	// One of these is set.
	d           *appsv1.Deployment
	set         *appsv1.ReplicaSet
	deployments *appsv1.DeploymentList
	sets        *appsv1.ReplicaSetList
	lost        bool // from this version on something was not seen, up to the version of the next list
}

// keepChronicle follows a namespace until stop, which returns when nothing is written any more.
func keepChronicle(t *testing.T, client kubernetes.Interface, namespace string) (c *chronicle, stop func()) {
	t.Helper()
	c = &chronicle{client: client, namespace: namespace}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	apps := client.AppsV1()
	following.Go(func() {
		c.follow(ctx, func() (runtime.Object, error) {
			return apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
		}, func(o metav1.ListOptions) (watch.Interface, error) {
			return apps.Deployments(namespace).Watch(ctx, o)
		})
	})
	following.Go(func() {
		c.follow(ctx, func() (runtime.Object, error) {
			return apps.ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		}, func(o metav1.ListOptions) (watch.Interface, error) {
			return apps.ReplicaSets(namespace).Watch(ctx, o)
		})
	})
	stop = sync.OnceFunc(func() {
		time.Sleep(time.Second) // what has happened is told by then
		cancel()
		following.Wait()
	})
	t.Cleanup(stop)
	return c, stop
}

// follow lists, and watches from there on, as often as needed.
func (c *chronicle) follow(ctx context.Context, list func() (runtime.Object, error),
	open func(metav1.ListOptions) (watch.Interface, error)) {
	version, lost := "", true
	c.add(entry{lost: true}, nil)
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // the API server may be away
		if lost {
			found, err := list()
			if err != nil {
				continue
			}
			c.add(entry{}, found)
			version, lost = found.(metav1.ListInterface).GetResourceVersion(), false
		}
		w, err := open(metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if status, failed := e.Object.(*metav1.Status); failed {
				if lost = status.Code == http.StatusGone; lost {
					c.add(entry{lost: true, version: number(version)}, nil)
				}
				break
			}
			version = e.Object.(metav1.Object).GetResourceVersion()
			if e.Type != watch.Bookmark {
				c.add(entry{gone: e.Type == watch.Deleted}, e.Object)
			}
		}
		w.Stop()
	}
}

// number returns a resource version as a number.
func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

func (c *chronicle) add(e entry, o runtime.Object) {
	e.at = time.Now()
	switch o := o.(type) {
	case *appsv1.Deployment:
		e.d, e.version = o, number(o.ResourceVersion)
	case *appsv1.ReplicaSet:
		e.set, e.version = o, number(o.ResourceVersion)
	case *appsv1.DeploymentList:
		e.deployments, e.version = o, number(o.ResourceVersion)
	case *appsv1.ReplicaSetList:
		e.sets, e.version = o, number(o.ResourceVersion)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, e)
}

// sorted returns all entries in the order in which they happened.
func (c *chronicle) sorted() []entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := slices.Clone(c.entries)
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.version, b.version) })
	return entries
}

// past is what was known of a Deployment at some time.
type past struct {
	specs    map[int64]*appsv1.Deployment // by generation
	observed int64                        // the last generation that a status was about
	current  int64
	unknown  int64 // a generation before which some were not seen
	sets     map[types.UID]*appsv1.ReplicaSet
	history  []string // what has happened, to judge a violation by
}

// pasts are those of all Deployments, by their UIDs.
type pasts map[types.UID]*past

func (all pasts) of(uid types.UID) *past {
	if all[uid] == nil {
		all[uid] = &past{specs: map[int64]*appsv1.Deployment{}, sets: map[types.UID]*appsv1.ReplicaSet{}}
	}
	return all[uid]
}

// judge returns what must not have happened, each with the history of its Deployment:
//   - a ReplicaSet grows, and together they want more than maxSurge allows. The controller may have acted on any
//     version of the Deployment since the one that it has reported on last. It is not judged while some version of the
//     Deployment may not have been seen.
//   - two ReplicaSets of a Deployment have the same template, or the same revision.
func (c *chronicle) judge() (violations []string) {
	known, lost := pasts{}, 0
	for _, e := range c.sorted() {
		switch {
		case e.lost:
			lost++
		case e.deployments != nil:
			lost--
			for i := range e.deployments.Items {
				d := &e.deployments.Items[i]
				p := known.of(d.UID)
				if p.specs[d.Generation] == nil {
					p.unknown = d.Generation
				}
				p.see(e, d)
			}
		case e.sets != nil:
			lost--
			for _, p := range known {
				clear(p.sets)
			}
			for i := range e.sets.Items {
				if owner := metav1.GetControllerOf(&e.sets.Items[i]); owner != nil {
					known.of(owner.UID).change(e, &e.sets.Items[i])
				}
			}
		case e.d != nil:
			known.of(e.d.UID).see(e, e.d)
		case metav1.GetControllerOf(e.set) != nil:
			p := known.of(metav1.GetControllerOf(e.set).UID)
			if before := p.change(e, e.set); !e.gone {
				violations = append(violations, p.judge(before, e.set, lost == 0)...)
			}
		}
	}
	return violations
}

// see takes note of a Deployment.
func (p *past) see(e entry, d *appsv1.Deployment) {
	p.specs[d.Generation], p.current = d, d.Generation
	p.observed = max(p.observed, d.Status.ObservedGeneration)
	surge, unavailable := bounds(d)
	p.tell(e, "%s: generation %d, observed %d: wants %d, maxSurge %d, maxUnavailable %d, %s, paused %t, %s, deleted %t",
		d.Name, d.Generation, d.Status.ObservedGeneration, wanted(d), surge, unavailable, d.Spec.Strategy.Type,
		d.Spec.Paused, imageOfTemplate(d), e.gone || d.DeletionTimestamp != nil)
}

// change takes note of a ReplicaSet, and returns what it was before.
func (p *past) change(e entry, set *appsv1.ReplicaSet) (before *appsv1.ReplicaSet) {
	before = p.sets[set.UID]
	p.sets[set.UID] = set
	if e.gone {
		delete(p.sets, set.UID)
	}
	p.tell(e, "%s: generation %d, observed %d: size %d for %s replicas, at most %s, revision %d, %d available, %s, "+
		"deleted %t", set.Name, set.Generation, set.Status.ObservedGeneration, size(set),
		set.Annotations[desiredAnnotation], set.Annotations[maxAnnotation], revisionOf(set),
		set.Status.AvailableReplicas, imageOf(set), e.gone || set.DeletionTimestamp != nil)
	return before
}

func (p *past) tell(e entry, format string, args ...any) {
	seen := "seen"
	if e.deployments != nil || e.sets != nil {
		seen = "listed"
	}
	p.history = append(p.history, fmt.Sprintf("%d, %s at %s: ", e.version, seen, e.at.Format("15:04:05.000"))+
		fmt.Sprintf(format, args...))
}

// judge looks at a change of one ReplicaSet; before is nil if it was created.
func (p *past) judge(before, after *appsv1.ReplicaSet, allSeen bool) (violations []string) {
	violation := func(format string, args ...any) {
		history := p.history[max(0, len(p.history)-60):]
		violations = append(violations, fmt.Sprintf("at version %s: %s: ", after.ResourceVersion, after.Name)+
			fmt.Sprintf(format, args...)+"\n\t"+strings.Join(history, "\n\t"))
	}
	if before == nil && size(after) > 0 || before != nil && size(after) > size(before) {
		allowed, total := 0, 0
		for generation := max(1, p.observed); generation <= p.current; generation++ {
			if d := p.specs[generation]; d != nil {
				allowed = max(allowed, maxPods(d))
			}
		}
		for _, set := range p.sets {
			total += size(set)
		}
		if total > allowed && allSeen && len(p.specs) > 0 && p.observed >= p.unknown {
			violation("it grew to %d, and all want %d, where %d are allowed", size(after), total, allowed)
		}
	}
	for uid, set := range p.sets {
		if uid == after.UID || set.DeletionTimestamp != nil || after.DeletionTimestamp != nil {
			continue
		}
		if before == nil && sameTemplate(&set.Spec.Template, &after.Spec.Template) {
			violation("%s has the same template", set.Name)
		}
		if revisionOf(set) == revisionOf(after) && (before == nil || revisionOf(before) != revisionOf(after)) {
			violation("%s has the same revision, %d", set.Name, revisionOf(after))
		}
	}
	return violations
}

// created counts the ReplicaSets.
func (c *chronicle) created() int {
	seen := map[types.UID]bool{}
	for _, e := range c.sorted() {
		if e.set != nil {
			seen[e.set.UID] = true
		}
	}
	return len(seen)
}

// resized counts the changes of their sizes.
func (c *chronicle) resized() (n int) {
	sizes := map[types.UID]int{}
	for _, e := range c.sorted() {
		if e.set == nil {
			continue
		}
		if before, ok := sizes[e.set.UID]; ok && before != size(e.set) {
			n++
		}
		sizes[e.set.UID] = size(e.set)
	}
	return n
}

// The judge sees what must not happen, and nothing else.
func TestTheChronicleJudges(t *testing.T) {
	d := deployment("web", 4, "a", rolling("1", "0"))
	d.UID, d.Generation, d.ResourceVersion = "web", 1, "1"
	version := 1
	set := func(name string, n int, revision string) *appsv1.ReplicaSet {
		version++
		set := anySet(name, n, 0)
		set.UID, set.ResourceVersion = types.UID(name), strconv.Itoa(version)
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)}
		set.Annotations = map[string]string{revisionAnnotation: revision}
		set.Spec.Template = *d.Spec.Template.DeepCopy()
		set.Spec.Template.Spec.Containers[0].Image = name
		return set
	}
	judged := func(sets ...*appsv1.ReplicaSet) []string {
		c := &chronicle{}
		c.add(entry{}, d)
		for _, set := range sets {
			c.add(entry{}, set)
		}
		return c.judge()
	}
	require.Empty(t, judged(set("a", 4, "1"), set("b", 1, "2"), set("a", 3, "1"), set("b", 2, "2")))
	require.Empty(t, judged(set("a", 4, "1"), set("b", 1, "2"), set("c", 0, "3")), "one without pods does not grow")
	require.Len(t, judged(set("a", 4, "1"), set("b", 2, "2")), 1, "one too many")
	require.Len(t, judged(set("a", 4, "1"), set("b", 0, "2"), set("b", 2, "2")), 1, "one too many, later")
	require.Len(t, judged(set("a", 4, "1"), set("b", 0, "1")), 1, "one revision twice")
	require.Contains(t, judged(set("a", 4, "1"), set("b", 2, "2"))[0], "b: generation 1, observed 1: size 2 for")

	// An API server was restarted: until the next list, the Deployment may have got a spec that was not seen.
	c := &chronicle{}
	for _, o := range []runtime.Object{d, set("a", 4, "1"), set("b", 0, "2")} {
		c.add(entry{}, o)
	}
	c.add(entry{lost: true, version: int64(version)}, nil)
	c.add(entry{}, set("b", 2, "2"))
	require.Empty(t, c.judge())
	version++
	c.add(entry{}, &appsv1.DeploymentList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)},
		Items: []appsv1.Deployment{*d}})
	require.Empty(t, c.judge())
	c.add(entry{}, set("b", 3, "2"))
	require.Len(t, c.judge(), 1, "all is seen again")

	twin := set("twin", 0, "2")
	twin.Spec.Template.Spec.Containers[0].Image = "a"
	require.Len(t, judged(set("a", 4, "1"), twin), 1, "one template twice")
}
