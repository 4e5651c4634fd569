package informer

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Shard says which objects an informer keeps if several replicas of a program share the work: see Options.Shard. The
// objects are cut into slices by a hash, and each replica keeps some of these. Package reconcile/sharding makes Shards.
type Shard interface {
	// Hash returns the hash that decides to which slice an object belongs. It is given the namespace, name, UID and
	// resourceVersion and, unless KeyOnly, the labels and owner references; other fields may be set or not. False: the
	// object belongs to no slice, and is kept. Hash must return the same for the same metadata, and several goroutines
	// call it at once, for each object that arrives.
	Hash(o *metav1.ObjectMeta) (hash uint64, ok bool)
	// KeyOnly reports whether Hash looks at the namespace and name only. It never changes.
	KeyOnly() bool
	// Join is called when Run begins, before the first list, and calls Keep if the slices are known already. leave is
	// called when Run ends. What Join keeps of cache is called from any goroutine.
	Join(cache Sharded) (leave func())
}

// Sharded is the cache of an informer with Options.Shard, as the Shard sees it.
type Sharded interface {
	// Name is the informer's.
	Name() string
	// Keep says which slices the cache keeps from now on, of how many: the object with the hash h is in slice h modulo
	// of. There are at most 8,191. If slices come, the informer lists their objects, beside its watch. If slices go,
	// their objects leave the store, and handlers are told Deleted with Event.Left set. If of is another number than
	// before, all slices go, and these come. Keep does not wait, and a call that changes nothing costs little.
	Keep(of int, slices []int)
	// Wait waits until the store holds all objects of those of these slices that are kept, or ctx ends: then the error
	// wraps the cause of that, and the latest error of a list. If they are there it returns nil even then. Namespaces
	// that the server refuses do not count if they have never been complete.
	Wait(ctx context.Context, slices []int) error
}

// ErrNotKept is wrapped by the error of [SharedIndexInformer.Live] for an object that Options.Shard leaves to another
// replica.
var ErrNotKept = wire.ErrNotKept

// share is what an informer with Options.Shard keeps. A nil share keeps everything.
//
// An object is judged three times: by the decoder, if the client is a [Resource], so that it costs no more than its
// metadata; by the reflector, whatever the client is; and by the writer, since the slices may have changed in between.
type share struct {
	Shard

	// Set before Run. filled returns up to which growth the store has everything that is kept, fill lets the reflectors
	// list what has come, and look wakes the goroutine of the store. why returns the latest error of those that do not
	// have everything.
	name   string
	filled func() uint64
	why    func() error
	fill   func()
	look   func()

	kept   atomic.Pointer[kept]
	shrunk atomic.Bool // slices have gone, and their objects are still in the store

	mu    sync.Mutex    // held while kept is replaced
	moved chan struct{} // guarded by mu; closed when there may be something new for Wait; nil while nobody waits
}

// kept are the slices that a share keeps. It is immutable.
type kept struct {
	// since has, for each slice, the growth by which it has come; zero: it is not kept.
	since  []uint64
	growth uint64 // how often slices have come
	era    uint16 // grows when there is another number of slices, modulo eras: what was judged before is not kept
}

// The slice of an item is one more than its number and, in the high bits, the era in which the object was judged. An
// object of an era has long left the store when its number comes back.
const (
	sliceBits = 13
	maxSlices = 1<<sliceBits - 1
	eras      = 1 << (16 - sliceBits)
)

// of returns since for the slice of an item, which is not zero.
func (k *kept) of(slice uint16) uint64 {
	number := int(slice & maxSlices)
	if slice>>sliceBits != k.era || number > len(k.since) {
		return 0
	}
	return k.since[number-1]
}

func newShare(s Shard) *share {
	if s == nil {
		return nil
	}
	made := &share{Shard: s}
	made.kept.Store(&kept{})
	return made
}

// connect lets a share act on its informer.
func connect[T any](s *share, inf *SharedIndexInformer[T]) {
	s.name = inf.name
	s.filled = func() uint64 {
		lowest := uint64(math.MaxUint64)
		if closed(inf.stopped) {
			return lowest // nobody can wait for it any more
		}
		for _, l := range inf.followed.Load().listWatches {
			switch h := l.health.get(); {
			case h.Listed > 0:
				lowest = min(lowest, l.filled.Load())
			case h.State != Denied && h.State != Missing:
				return 0
			}
		}
		return lowest
	}
	s.why = func() error {
		growth := s.growth()
		for _, l := range inf.followed.Load().listWatches {
			h := l.health.get()
			if h.LastError != nil && (h.Listed == 0 || l.filled.Load() < growth) {
				return h.LastError
			}
		}
		return nil
	}
	s.fill = func() {
		for _, l := range inf.followed.Load().listWatches {
			wake(l.reflector)
		}
	}
	s.look = func() {
		select {
		case inf.ready <- struct{}{}:
		default: // the goroutine of the store is going to look anyway
		}
	}
}

// now returns what is kept at this moment.
func (s *share) now() *kept {
	if s == nil {
		return nil
	}
	return s.kept.Load()
}

// join is called when Run begins.
func (s *share) join() (leave func()) {
	if s == nil {
		return func() {}
	}
	leaves := s.Join(s)
	return func() {
		leaves()
		s.arrived()
	}
}

func (s *share) Name() string { return s.name }

func (s *share) Keep(of int, slices []int) {
	if of < 0 || of > maxSlices {
		panic(fmt.Sprintf("informer %s: %d slices; there are at most %d", s.name, of, maxSlices))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.kept.Load()
	next, grows := &kept{since: make([]uint64, of), growth: before.growth, era: before.era}, false
	shrinks := len(before.since) != of
	if shrinks { // the slices of before are none of these
		next.era, before = (before.era+1)%eras, &kept{}
	}
	for _, slice := range slices {
		next.since[slice] = next.growth + 1
		if slice < len(before.since) && before.since[slice] != 0 {
			next.since[slice] = before.since[slice]
		} else {
			grows = true
		}
	}
	for slice, since := range before.since {
		shrinks = shrinks || since != 0 && next.since[slice] == 0
	}
	if !grows && !shrinks {
		return
	}
	if grows {
		next.growth++
	}
	s.kept.Store(next)
	if shrinks {
		s.shrunk.Store(true)
		s.look()
	}
	if grows {
		s.fill()
	}
	s.arrivedLocked()
}

func (s *share) Wait(ctx context.Context, slices []int) error {
	for {
		moved := s.awaited()
		if s.complete(slices) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			err := context.Cause(ctx)
			if why := s.why(); why != nil {
				err = fmt.Errorf("%w; %w", err, why)
			}
			return fmt.Errorf("informer %s: waiting for the objects of %d slices: %w", s.name, len(slices), err)
		}
	}
}

// complete reports whether the store holds all objects of those of the slices that are kept.
func (s *share) complete(slices []int) bool {
	k, filled := s.kept.Load(), s.filled()
	for _, slice := range slices {
		if slice < len(k.since) && k.since[slice] > filled {
			return false
		}
	}
	return true
}

// size returns of how many slices the store holds all objects.
func (s *share) size() (n int) {
	if s == nil {
		return 0
	}
	filled := s.filled()
	for _, since := range s.kept.Load().since {
		if since != 0 && since <= filled {
			n++
		}
	}
	return n
}

// awaited returns a channel that is closed when there may be something new for Wait.
func (s *share) awaited() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved == nil {
		s.moved = make(chan struct{})
	}
	return s.moved
}

// arrived says that there may be something new for Wait.
func (s *share) arrived() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivedLocked()
}

func (s *share) arrivedLocked() {
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// growth returns how often slices have come. A list that begins from now on has all objects of those that are kept.
func (s *share) growth() uint64 {
	if s == nil {
		return 0
	}
	return s.kept.Load().growth
}

// keeps reports whether objects of a slice are kept. It is that of an item: zero for what belongs to none.
func (s *share) keeps(slice uint16) bool {
	return s == nil || slice == 0 || s.kept.Load().of(slice) != 0
}

// fills reports whether a slice of an item has come since a growth.
func (s *share) fills(slice uint16, filled uint64) bool {
	return s != nil && slice != 0 && s.kept.Load().of(slice) > filled
}

// judge returns the slice of an object, for its item, and whether it is kept.
func (s *share) judge(o *metav1.ObjectMeta) (slice uint16, keeps bool) {
	hash, ok := s.Hash(o)
	k := s.kept.Load()
	switch {
	case !ok:
		return 0, true
	case len(k.since) == 0:
		return 0, false
	}
	slice = k.era<<sliceBits | uint16(hash%uint64(len(k.since))+1)
	return slice, k.of(slice) != 0
}

// keepsObject reports whether an object is kept.
func (s *share) keepsObject(o *metav1.ObjectMeta) bool {
	_, keeps := s.judge(o)
	return keeps
}

// keepsKey is keepsObject for a share by keys only.
func (s *share) keepsKey(key Key) bool {
	return s.keepsObject(&metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name})
}

// judgeEvent is judge for the object of an event, as far as its metadata can be read.
func (s *share) judgeEvent(e wire.Event) (slice uint16, keeps bool) {
	if s == nil || kube.IsNil(e.Object) {
		return 0, true
	}
	o := briefOf(e.Object, s.KeyOnly())
	if o == nil || o.Name == "" {
		return 0, true
	}
	slice, keeps = s.judge(o)
	return slice, keeps && e.Err != wire.ErrNotKept
}

// briefOf returns the metadata of an object that a Shard is given, which is not changed. Nil: there is none.
func briefOf(o runtime.Object, keyOnly bool) *metav1.ObjectMeta {
	if typed, ok := o.(metav1.ObjectMetaAccessor); ok {
		if full, ok := typed.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return full
		}
	}
	m, ok := o.(metav1.Object)
	if !ok {
		return nil
	}
	brief := &metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(),
		ResourceVersion: m.GetResourceVersion()}
	if !keyOnly {
		brief.Labels, brief.OwnerReferences = m.GetLabels(), m.GetOwnerReferences()
	}
	return brief
}
