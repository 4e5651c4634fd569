package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// A chronicle is all that was seen of pods and ReplicaSets, by watches of its own. It is judged afterwards, in the
// order in which it happened: the API server numbers the changes of all resources in one sequence, so it does not
// matter which of the two watches told first.
type chronicle struct {
	mu      sync.Mutex
	entries []entry // guarded by mu
}

// entry is one change, or, if there is a list, all that there was of one resource when a watch began: what happened
// just before may be missing.
type entry struct {
	version int64 // what entries are ordered by
	gone    bool
	pod     *corev1.Pod        // of this and
	set     *appsv1.ReplicaSet // this one at most one is set
	list    runtime.Object
}

// keepChronicle follows one namespace, or with "" all of them, until stop, which returns when nothing is written any
// more.
func keepChronicle(t *testing.T, client kubernetes.Interface, namespace string) (r *chronicle, stop func()) {
	r = &chronicle{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		r.follow(ctx, func(o metav1.ListOptions) (runtime.Object, string, error) {
			list, err := client.CoreV1().Pods(namespace).List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return list, list.ResourceVersion, nil
		}, func(o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(namespace).Watch(ctx, o)
		})
	})
	done.Go(func() {
		r.follow(ctx, func(o metav1.ListOptions) (runtime.Object, string, error) {
			list, err := client.AppsV1().ReplicaSets(namespace).List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return list, list.ResourceVersion, nil
		}, func(o metav1.ListOptions) (watch.Interface, error) {
			return client.AppsV1().ReplicaSets(namespace).Watch(ctx, o)
		})
	})
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	t.Cleanup(stop)
	return r, stop
}

// follow watches one resource. A watch that breaks goes on where it was, if the API server still knows what came then;
// else there is a new list.
func (r *chronicle) follow(ctx context.Context, list func(metav1.ListOptions) (runtime.Object, string, error),
	begin func(metav1.ListOptions) (watch.Interface, error)) {
	last := ""
	for ctx.Err() == nil {
		if last == "" {
			all, version, err := list(metav1.ListOptions{})
			if err == nil {
				r.add(entry{version: number(version), list: all})
				last = version
			}
		}
		if last != "" {
			if w, err := begin(metav1.ListOptions{ResourceVersion: last}); err == nil {
				last = r.take(w, last)
				w.Stop()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // the API server is away
		}
	}
}

// take notes what a watch tells, and returns where the next one has to begin: "" is with a list.
func (r *chronicle) take(w watch.Interface, last string) string {
	for event := range w.ResultChan() {
		switch object := event.Object.(type) {
		case *corev1.Pod:
			last = object.ResourceVersion
			r.add(entry{version: number(last), gone: event.Type == watch.Deleted, pod: object})
		case *appsv1.ReplicaSet:
			last = object.ResourceVersion
			r.add(entry{version: number(last), gone: event.Type == watch.Deleted, set: object})
		default: // an error: too old, most likely
			return ""
		}
	}
	return last
}

func (r *chronicle) add(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
}

func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(err) // the API server promises it
	}
	return n
}

// reign is what a replay knows of one ReplicaSet.
type reign struct {
	name     string
	replicas map[int64]int // by generation, from the one that the status tells of
	unknown  int64         // up to this generation something may have been missed
	pods     map[types.UID]bool
}

// limit is the highest number of pods that the controller may make. One run at a time works on a ReplicaSet, and at its
// end the run writes into the status which generation it saw: so the run that makes a pod now has seen that generation
// or a newer one.
func (g *reign) limit() int {
	if g.unknown > 0 {
		return math.MaxInt
	}
	most := 0
	for _, n := range g.replicas {
		most = max(most, n)
	}
	return most
}

// judge replays it all and returns each pod that was made for a ReplicaSet that had enough. A pod that is adopted may
// be one too many, as the controller did not make it.
func (r *chronicle) judge() (violations []string) {
	r.mu.Lock()
	entries := slices.Clone(r.entries)
	r.mu.Unlock()
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.version, b.version) })

	reigns := map[types.UID]*reign{}
	of := func(uid types.UID) *reign {
		if reigns[uid] == nil {
			// Pods may come before their ReplicaSet is listed.
			reigns[uid] = &reign{replicas: map[int64]int{}, pods: map[types.UID]bool{}, unknown: math.MaxInt64}
		}
		return reigns[uid]
	}
	known := map[types.UID]bool{} // pods that were there before
	hold := func(pod *corev1.Pod, gone bool) *reign {
		for _, g := range reigns {
			delete(g.pods, pod.UID)
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if gone || owner == nil || !active(pod) {
			return nil
		}
		g := of(owner.UID)
		g.pods[pod.UID] = true
		return g
	}
	rule := func(set *appsv1.ReplicaSet, missed bool) {
		fresh := reigns[set.UID] == nil
		g := of(set.UID)
		g.name = set.Namespace + "/" + set.Name
		switch {
		case missed:
			g.unknown = set.Generation
		case fresh:
			g.unknown = 0
		}
		if set.Status.ObservedGeneration >= g.unknown {
			g.unknown = 0
		}
		g.replicas[set.Generation] = int(*set.Spec.Replicas)
		for generation := range g.replicas {
			if generation < set.Status.ObservedGeneration {
				delete(g.replicas, generation)
			}
		}
	}
	for _, e := range entries {
		switch {
		case e.pod != nil:
			g := hold(e.pod, e.gone)
			if made := !known[e.pod.UID]; g != nil && made && len(g.pods) > g.limit() {
				violations = append(violations, fmt.Sprintf(
					"version %d: %s was made, and %s has %d pods then, %d are allowed", e.version, e.pod.Name, g.name,
					len(g.pods), g.limit()))
			}
			known[e.pod.UID] = true
		case e.set != nil:
			rule(e.set, false)
		default:
			switch list := e.list.(type) {
			case *corev1.PodList:
				for _, g := range reigns {
					clear(g.pods)
				}
				for i := range list.Items {
					hold(&list.Items[i], false)
					known[list.Items[i].UID] = true
				}
			case *appsv1.ReplicaSetList:
				for i := range list.Items {
					rule(&list.Items[i], true)
				}
			}
		}
	}
	return violations
}

// made counts the pods that ReplicaSets have been given.
func (r *chronicle) made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := map[types.UID]bool{}
	for _, e := range r.entries {
		if e.pod != nil && strings.HasPrefix(e.pod.Name, e.pod.GenerateName) && e.pod.GenerateName != "" {
			pods[e.pod.UID] = true
		}
	}
	return len(pods)
}
