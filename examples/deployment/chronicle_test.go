package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
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

// entry is one change of one object. An API server that was restarted does not tell what happened just before: then
// there is a list in its place, and what led to it is not judged.
type entry struct {
	version int64
	gone    bool
	listed  bool
	d       *appsv1.Deployment // one of the two is set
	set     *appsv1.ReplicaSet
	all     map[types.UID]bool // or this: the ReplicaSets that are in a list
}

// keepChronicle follows a namespace until stop, which returns when nothing is written any more.
func keepChronicle(t *testing.T, client kubernetes.Interface, namespace string) (c *chronicle, stop func()) {
	t.Helper()
	c = &chronicle{client: client, namespace: namespace}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	apps := client.AppsV1()
	following.Go(func() {
		c.follow(ctx, c.listDeployments, func(o metav1.ListOptions) (watch.Interface, error) {
			return apps.Deployments(namespace).Watch(ctx, o)
		})
	})
	following.Go(func() {
		c.follow(ctx, c.listReplicaSets, func(o metav1.ListOptions) (watch.Interface, error) {
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
func (c *chronicle) follow(ctx context.Context, list func(context.Context) (version string, err error),
	open func(metav1.ListOptions) (watch.Interface, error)) {
	version := ""
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // the API server may be away
		if version == "" {
			version, _ = list(ctx)
			continue
		}
		w, err := open(metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			status, failed := e.Object.(*metav1.Status)
			if failed {
				if status.Code == http.StatusGone {
					version = ""
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

func (c *chronicle) listDeployments(ctx context.Context) (string, error) {
	list, err := c.client.AppsV1().Deployments(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		c.add(entry{listed: true}, &list.Items[i])
	}
	return list.ResourceVersion, nil
}

func (c *chronicle) listReplicaSets(ctx context.Context) (string, error) {
	list, err := c.client.AppsV1().ReplicaSets(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	e := entry{all: map[types.UID]bool{}}
	for i := range list.Items {
		e.all[list.Items[i].UID] = true
		c.add(entry{listed: true}, &list.Items[i])
	}
	c.add(e, list)
	return list.ResourceVersion, nil
}

func (c *chronicle) add(e entry, o runtime.Object) {
	version := ""
	switch o := o.(type) {
	case *appsv1.Deployment:
		e.d, version = o, o.ResourceVersion
	case *appsv1.ReplicaSet:
		e.set, version = o, o.ResourceVersion
	case *appsv1.ReplicaSetList:
		version = o.ResourceVersion
	}
	e.version, _ = strconv.ParseInt(version, 10, 64)
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
}

// judge returns what must not have happened:
//   - a ReplicaSet grows, and together they want more than maxSurge allows. The controller may have acted on any
//     version of the Deployment since the one that it has reported on last.
//   - two ReplicaSets of a Deployment have the same template, or the same revision.
func (c *chronicle) judge() (violations []string) {
	known := map[types.UID]*past{} // by the UID of the Deployment
	of := func(uid types.UID) *past {
		if known[uid] == nil {
			known[uid] = &past{specs: map[int64]*appsv1.Deployment{}, sets: map[types.UID]*appsv1.ReplicaSet{}}
		}
		return known[uid]
	}
	for _, e := range c.sorted() {
		switch {
		case e.d != nil:
			of(e.d.UID).see(e)
		case e.set != nil && metav1.GetControllerOf(e.set) != nil:
			violations = append(violations, of(metav1.GetControllerOf(e.set).UID).change(e)...)
		case e.all != nil:
			for _, p := range known {
				maps.DeleteFunc(p.sets, func(uid types.UID, _ *appsv1.ReplicaSet) bool { return !e.all[uid] })
			}
		}
	}
	return violations
}

// see takes note of a Deployment.
func (p *past) see(e entry) {
	if e.listed && p.specs[e.d.Generation] == nil {
		p.unknown = e.d.Generation
	}
	p.specs[e.d.Generation], p.current = e.d, e.d.Generation
	p.observed = max(p.observed, e.d.Status.ObservedGeneration)
}

// change takes note of a ReplicaSet, and judges what has changed.
func (p *past) change(e entry) (violations []string) {
	before := p.sets[e.set.UID]
	if e.gone {
		delete(p.sets, e.set.UID)
		return nil
	}
	p.sets[e.set.UID] = e.set
	if e.listed {
		return nil
	}
	return p.judge(before, e.set)
}

// judge looks at a change of one ReplicaSet; before is nil if it was created.
func (p *past) judge(before, after *appsv1.ReplicaSet) (violations []string) {
	violation := func(format string, args ...any) {
		violations = append(violations, fmt.Sprintf("at version %s: %s: ", after.ResourceVersion, after.Name)+
			fmt.Sprintf(format, args...))
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
		if total > allowed && len(p.specs) > 0 && p.observed >= p.unknown {
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
	twin := set("twin", 0, "2")
	twin.Spec.Template.Spec.Containers[0].Image = "a"
	require.Len(t, judged(set("a", 4, "1"), twin), 1, "one template twice")
}
