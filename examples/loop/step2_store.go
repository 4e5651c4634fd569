package main

import (
	"context"
	"log"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Step 2: a store. An event only changes a copy of the cluster, and says which ConfigMap to look at: its key. What to
// do follows from the copy.
func step2(ctx context.Context, c cluster) error {
	keys, cache := make(chan string), newCache()
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { cache.follow(ctx, c, func(key string) { send(ctx, keys, key) }) })
	cache.waitUntilComplete(ctx)
	for {
		select {
		case key := <-keys:
			if _, err := reconcile(ctx, c, cache, key); err != nil {
				log.Printf("%s: %v", key, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reconcile makes the pods of a ConfigMap as many as it asks for, whatever has happened before. It returns the version
// of the last pod that it has created; step 5 is the first to use that.
func reconcile(ctx context.Context, c cluster, cache clusterCache, key string) (written uint64, err error) {
	want, err := cache.wantedPods(key)
	if err != nil {
		return 0, err
	}
	return c.adjust(ctx, key, want, cache.pods.of(key))
}

// adjust creates the pods that are missing, or deletes those that are too many.
func (c cluster) adjust(ctx context.Context, key string, want int, have []*corev1.Pod) (written uint64, err error) {
	have = slices.DeleteFunc(have, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }) // it is about to go
	for range want - len(have) {
		pod, err := c.createPod(ctx, key)
		if err != nil {
			return written, err
		}
		written = parse(pod.ResourceVersion)
	}
	for _, pod := range have[min(want, len(have)):] {
		if err := c.deletePod(ctx, pod.Name); err != nil {
			return written, err
		}
	}
	return written, nil
}

// clusterCache is a copy of the cluster, as far as this program needs it.
type clusterCache struct {
	configMaps *store[*corev1.ConfigMap]
	pods       *store[*corev1.Pod]
}

func newCache() clusterCache {
	return clusterCache{newStore[*corev1.ConfigMap](), newStore[*corev1.Pod]()}
}

// follow keeps the cache up to date until ctx ends. It calls changed with the key of each ConfigMap that may need a
// look. After a list these are all: what happened before the list has had no event.
func (k clusterCache) follow(ctx context.Context, c cluster, changed func(key string)) {
	all := func() {
		for _, key := range slices.Concat(k.configMaps.keys(), k.pods.keys()) {
			changed(key)
		}
	}
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() {
		follow(ctx, c.configMaps,
			func(objects []runtime.Object, version string) { k.configMaps.replace(objects, version); all() },
			func(e watch.Event) { k.configMaps.apply(e); changed(keyOf(e.Object)) })
	})
	g.Go(func() {
		follow(ctx, c.pods,
			func(objects []runtime.Object, version string) { k.pods.replace(objects, version); all() },
			func(e watch.Event) { k.pods.apply(e); changed(keyOf(e.Object)) })
	})
}

// waitUntilComplete waits for the first list of each kind. Until then, what the cache does not have may exist.
func (k clusterCache) waitUntilComplete(ctx context.Context) {
	for _, complete := range []chan struct{}{k.configMaps.complete, k.pods.complete} {
		select {
		case <-complete:
		case <-ctx.Done():
		}
	}
}

// wantedPods is how many pods a ConfigMap asks for: none if it does not exist.
func (k clusterCache) wantedPods(key string) (int, error) {
	found := k.configMaps.of(key)
	if len(found) == 0 {
		return 0, nil
	}
	return numberOfPods(found[0])
}

// store is a copy of the objects of one kind.
type store[T metav1.Object] struct {
	complete chan struct{} // closed when the first list has arrived

	mu      sync.Mutex
	objects map[string]T // by name; nil before the first list
	version uint64       // objects has all changes up to this version of the cluster
}

func newStore[T metav1.Object]() *store[T] { return &store[T]{complete: make(chan struct{})} }

// replace makes the store equal to a list.
func (s *store[T]) replace(listed []runtime.Object, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		close(s.complete)
	}
	s.objects, s.version = map[string]T{}, parse(version)
	for _, o := range listed {
		s.objects[o.(T).GetName()] = o.(T)
	}
}

// apply changes the store as an event says.
func (s *store[T]) apply(e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := e.Object.(T)
	s.objects[o.GetName()] = o
	if e.Type == watch.Deleted {
		delete(s.objects, o.GetName())
	}
	s.version = parse(o.GetResourceVersion())
}

// of returns the objects with a key, ordered by name.
func (s *store[T]) of(key string) (found []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if keyOf(o) == key {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

func (s *store[T]) keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		keys = append(keys, keyOf(o))
	}
	return keys
}

// parse reads a version. The server numbers all changes, so that the higher of two versions is the later one.
func parse(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}
