package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Keys lets an informer keep the objects of this replica's slices only: it is for [informer.Options].Shard. An object
// is in the slice of its own key. So it is for the objects that the keys are of and, with [ByNamespace], for all that
// live in the namespace of theirs, unless Options.ByKeyIn has some. With [ByKey] or ByKeyIn a Manager refuses them for
// sources that name keys of other objects, such as reconcile.Owns: use [Owned] or [Of].
//
//	websites, err := informer.NewCached(cfg, gvr, informer.Options[*v1.Website]{Shard: sharding.Keys(shards)})
//
// The cache is empty until the replica has slices, and has an object before a run of its key begins here. Its informer
// has to run in the process that calls Run, as a Manager's do: no slice is worked on before the caches of all have it.
func Keys(s *Shards) informer.Shard {
	return &shard{s, true, func(o *metav1.ObjectMeta) (types.NamespacedName, bool) {
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, true
	}}
}

// Owned is [Keys] for objects that the objects of the keys own, such as the Pods of a controller whose keys are those
// of ReplicaSets: an object is in the slice of its controller, the owner reference with controller: true, in the
// namespace of the object. One without a controller is kept by all replicas, since any may adopt it.
func Owned(s *Shards) informer.Shard {
	return Of(s, func(o *metav1.ObjectMeta) (types.NamespacedName, bool) {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil {
			return types.NamespacedName{}, false
		}
		return types.NamespacedName{Namespace: o.Namespace, Name: ref.Name}, true
	})
}

// Of is [Keys] for objects of which a function says to which key they belong, by their namespace, name, labels and
// owner references; other fields may be empty. It is for owners that live in no namespace, for owners of owners, and
// for what a label ties to a key. False: the function cannot tell, and all replicas keep the object, as they do if
// it panics. It must return the same for the same metadata, in all replicas, and several goroutines call it at once.
func Of(s *Shards, key func(o *metav1.ObjectMeta) (key types.NamespacedName, ok bool)) informer.Shard {
	return &shard{s, false, key}
}

// A shard is what one informer keeps.
type shard struct {
	shards  *Shards
	keyOnly bool
	key     func(*metav1.ObjectMeta) (types.NamespacedName, bool)
}

func (k *shard) KeyOnly() bool { return k.keyOnly }

func (k *shard) Hash(o *metav1.ObjectMeta) (hash uint64, ok bool) {
	_ = lifecycle.Try(func() {
		if key, known := k.key(o); known {
			hash, ok = hashOf(k.shards.opts.By(key)), true
		}
	})
	return hash, ok
}

func (k *shard) Join(cache informer.Sharded) (leave func()) {
	s, c := k.shards, &k.shards.caches
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[informer.Sharded]bool{}
	}
	c.all[cache] = true
	s.mu.Lock()
	if s.r != nil {
		clear(s.r.ready) // this cache has nothing yet
	}
	s.mu.Unlock()
	c.followLocked(s) // so its first list has the objects of all slices that are open
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, cache)
	}
}

// caches are those of a process that keep its slices only. They outlive its tenures.
type caches struct {
	mu sync.Mutex
	// Guarded by mu. All of them keep the same slices, of as many.
	all  map[informer.Sharded]bool
	kept map[int]bool
	of   int
	// Guarded by mu. owned are slices that have come, and wanted those that this replica would ask for.
	owned, wanted lack
}

// A lack is of slices whose objects some cache does not have.
type lack struct {
	since map[int]time.Time
	why   error // what the cache says
	said  bool  // in the log
}

// any reports whether there are any.
func (c *caches) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

// follow lets the caches keep what the table says now. It does not wait for them.
func (c *caches) follow(s *Shards) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followLocked(s)
}

func (c *caches) followLocked(s *Shards) {
	s.mu.Lock()
	if r := s.r; r != nil {
		r.prepares = s.opts.Prepare != nil || len(c.all) > 0
		if t := r.seen.table; t != nil && len(c.all) > 0 {
			if n := len(t.Owners); n != c.of {
				c.kept, c.of = nil, n
			}
			c.kept = cached(r, c.kept, s.now())
		}
	}
	s.mu.Unlock()
	if len(c.all) == 0 {
		return
	}
	kept := slices.Sorted(maps.Keys(c.kept))
	for cache := range c.all {
		cache.Keep(c.of, kept)
	}
}

// keep returns those of some slices that the caches keep.
func (c *caches) keep(all []int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(slice int) bool { return !c.kept[slice] })
}

// prepared notes that a replica is prepared for those of some slices that all caches have at this moment.
func (c *caches) prepared(s *Shards, r *replica, all []int) {
	c.mu.Lock() // no cache joins between the look and the note
	defer c.mu.Unlock()
	all = c.completeLocked(all)
	s.change(func() { r.prepared(all) })
}

// complete returns those of some slices of which each cache has all objects at this moment.
func (c *caches) complete(all []int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.completeLocked(all)
}

func (c *caches) completeLocked(all []int) []int {
	now, cancel := context.WithCancel(context.Background())
	cancel() // so Wait looks, and does not wait
	lacks := func(some []int) bool {
		for cache := range c.all {
			if cache.Wait(now, some) != nil {
				return true
			}
		}
		return false
	}
	if len(c.all) == 0 {
		return all
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(slice int) bool { return !c.kept[slice] })
	if !lacks(kept) {
		return kept
	}
	return slices.DeleteFunc(kept, func(slice int) bool { return lacks([]int{slice}) })
}

// wait returns nil when each cache has all objects of those of the slices that are kept.
func (c *caches) wait(ctx context.Context, all []int) error {
	c.mu.Lock()
	caches := slices.Collect(maps.Keys(c.all))
	c.mu.Unlock()
	for _, cache := range caches {
		if err := cache.Wait(ctx, all); err != nil {
			return err
		}
	}
	return nil
}

// fill waits for slices that have come: a run that does not see what exists would take it for deleted. It returns false
// if they are not all here and it is time to look again: after a second, when changed is closed, or ctx ends.
func (c *caches) fill(ctx context.Context, all []int, changed <-chan struct{}) bool {
	try, cancel := context.WithTimeout(ctx, time.Second)
	var interrupts sync.WaitGroup
	interrupts.Go(func() {
		select {
		case <-changed:
			cancel()
		case <-try.Done():
		}
	})
	defer interrupts.Wait()
	defer cancel()
	err := c.wait(try, all)
	if len(c.complete(all)) == len(all) {
		return true
	}
	if err == nil { // not all of them are kept
		<-try.Done()
		err = context.Cause(try)
	}
	c.lacks(ctx, all, err)
	return false
}

// lacks notes the slices that have come and whose objects some cache does not have, and what it says. The log tells of
// those that wait for ten seconds.
func (c *caches) lacks(ctx context.Context, all []int, why error) {
	c.mu.Lock()
	said := c.owned.said
	c.owned.note(all, why)
	c.owned.said = len(all) > 0 && (said || len(c.owned.longer(10*time.Second)) > 0)
	says := c.owned.said
	c.mu.Unlock()
	switch log := klog.FromContext(ctx); {
	case says && !said && ctx.Err() == nil:
		log.Error(why, "Slices have come, and their keys wait: a cache does not have their objects", "slices", all)
	case said && !says && ctx.Err() == nil:
		log.Error(nil, "The caches have the objects of the slices that have come")
	}
}

// unprepared is lacks for slices that this replica would ask for.
func (c *caches) unprepared(all []int, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted.note(all, why)
}

// overdue returns an error that names what some cache has lacked for longer than that.
func (c *caches) overdue(s *Shards, late time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	if all := c.owned.longer(late); len(all) > 0 {
		errs = append(errs, fmt.Errorf("sharding: %s: the keys of %d slices %v of this replica have waited for longer "+
			"than %v for a cache to have their objects: %w", s, len(all), all, late, c.owned.why))
	}
	if all := c.wanted.longer(late); len(all) > 0 {
		errs = append(errs, fmt.Errorf("sharding: %s: this replica cannot ask for %d slices %v: for longer than %v "+
			"a cache does not have their objects: %w", s, len(all), all, late, c.wanted.why))
	}
	return errors.Join(errs...)
}

func (l *lack) note(all []int, why error) {
	since := make(map[int]time.Time, len(all))
	for _, slice := range all {
		at, lacked := l.since[slice]
		if !lacked {
			at = time.Now()
		}
		since[slice] = at
	}
	l.since, l.why = since, why
}

// longer returns the slices that have been lacking for longer than that.
func (l *lack) longer(late time.Duration) (all []int) {
	for slice, since := range l.since {
		if time.Since(since) > late {
			all = append(all, slice)
		}
	}
	slices.Sort(all)
	return all
}
