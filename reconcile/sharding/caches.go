package sharding

import (
	"context"
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
// live in the namespace of theirs:
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
// for what a label ties to a key. False: nobody can say, and all replicas keep the object, as they do if the function
// panics. It must return the same for the same metadata, in all replicas, and several goroutines call it at once.
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
	c := &k.shards.caches
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[informer.Sharded]bool{}
	}
	c.all[cache] = true
	cache.Keep(c.of, slices.Sorted(maps.Keys(c.kept)))
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
	if len(c.all) == 0 {
		return
	}
	s.mu.Lock()
	if r := s.r; r != nil && r.seen.table != nil {
		if n := len(r.seen.table.Owners); n != c.of {
			c.kept, c.of = nil, n
		}
		c.kept = cached(r, c.kept, s.now())
	}
	s.mu.Unlock()
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

// fill is wait for slices that have come, without a bound but the end of ctx: a run that does not see what exists would
// take it for deleted.
func (c *caches) fill(ctx context.Context, all []int) {
	for said := false; ctx.Err() == nil; {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := c.wait(try, all)
		cancel()
		switch log := klog.FromContext(ctx); {
		case err == nil && said:
			log.Error(nil, "The caches have the objects of the slices that have come")
			return
		case err == nil:
			return
		case !said && ctx.Err() == nil:
			said = true
			log.Error(err, "Slices have come, and their keys wait: a cache does not have their objects")
		}
	}
}
