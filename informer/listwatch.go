package informer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/store"
)

// listWatch is one list-watch and what belongs to it alone. Most informers have one, for whatever the client lists. One
// that [NewNamespaced] has made has a list-watch for each namespace of its scope, one that [NewReferenced] has made for
// each object that is named. They meet in one store:
//
//	reflector -> DeltaFIFO --+
//	reflector -> DeltaFIFO --+--> store -> handlers
//	reflector -> DeltaFIFO --+
//
// The key of an object says to which list-watch it belongs. So list-watches do not affect each other: each lists, falls
// behind, is refused and goes back in time alone, and the end of a list removes only objects of its own.
type listWatch[T any] struct {
	part
	reflector *reflector[T]
	fifo      *deltaFIFO[T]
	health    *listWatchHealth
	reached   milestone
	// restart ends the present run of the reflector; another one follows.
	restart atomic.Pointer[context.CancelFunc]

	// filled is the growth of the share up to which the store has what is kept, if it is complete. The writer sets it.
	filled atomic.Uint64

	// The rest is used with the writer token held.

	// newest is the version that the store has reached of what the list-watch follows or has taken over. A list that is
	// cut short and other selectors do not change it. Versions count from the epoch rewound on, see [outcome]; swept is
	// the epoch of the latest list that was swept after.
	newest         string
	rewound, swept uint64
	stop           context.CancelFunc // ends the list-watch; nil before it runs
	// heirs is what is followed instead once it has left the scope: nothing of it may come into the store any more.
	heirs *followed[T]
	// due is the number of the first list with the present selectors. The list-watch is complete once the store holds
	// that list or a later one.
	due uint64
	// touched holds the keys of all that has come in since a comparison with the server began; nil while there is none.
	// See verify.
	touched map[Key]struct{}
}

// newListWatch makes a list-watch. It has no goroutines before start.
func newListWatch[T any](inf *SharedIndexInformer[T], p part, from source, selector metav1.ListOptions) *listWatch[T] {
	l := &listWatch[T]{
		part:   p,
		fifo:   newDeltaFIFO[T](inf.ready, &inf.writer.every, inf.store.stored),
		health: newListWatchHealth(inf.health, p),
	}
	l.reflector = &reflector[T]{
		enqueuer: enqueuer[T]{part: p, decode: inf.decode, fifo: l.fifo, health: l.health, share: inf.share},
		source:   from, pageSize: inf.pageSize, stored: inf.store.stored, relistWanted: make(chan struct{}, 1),
		purpose: inf.name + " in " + p.id(),
	}
	if p.name != "" {
		l.reflector.news.arrived = make(chan struct{}, 1)
	}
	if !inf.disableWatchList && !inf.health.plain.Load() && from.streams() {
		l.reflector.streamsLeft = streamTries
	}
	l.listAnew(selector)
	return l
}

// start starts the goroutines of a list-watch, which end when ctx does or the list-watch leaves the scope.
func (l *listWatch[T]) start(ctx context.Context, inf *SharedIndexInformer[T], log klog.Logger) {
	ctx, l.stop = context.WithCancel(ctx)
	where := ""
	if l.part != whole {
		log, where = log.WithValues(l.kind(), l.id()), ", "+l.String()
	}
	l.health.logTo(log)
	l.reflector.log = log
	l.reflector.pulse.watch(ctx, "reflector", func(err error) { l.health.knows(stuckReflector, err) })
	inf.group.Go("reflector of informer "+inf.name+where, func() { l.run(ctx) })
	if inf.verifyEvery > 0 {
		inf.group.Go("verifier of informer "+inf.name+where, func() { (&verifier[T]{inf, l, log}).run(ctx) })
	}
}

// run lists and watches until ctx ends.
func (l *listWatch[T]) run(ctx context.Context) {
	defer l.fifo.drop()
	for ctx.Err() == nil {
		run, cancel := context.WithCancel(ctx)
		l.restart.Store(&cancel)
		l.reflector.run(run)
		cancel()
	}
}

// listAnew lets the list-watch begin again, with these selectors. The caller holds the writer token, or is the only one
// that knows the list-watch.
//
// A list takes its number first and reads its selectors then, and this writes the selectors first and reads the number
// then. So a list with the number due, or a higher one, has these selectors.
func (l *listWatch[T]) listAnew(selector metav1.ListOptions) {
	selector.FieldSelector = l.selecting(selector.FieldSelector)
	l.reflector.wanted.Store(&selector)
	l.due = uint64(l.health.lists.Load()) + 1
	l.health.listed(0)
	l.reached.move("") // it was that of another selection
	if cancel := l.restart.Load(); cancel != nil {
		(*cancel)()
	}
}

// rows returns the first of the rows that may be of the list-watch, and the end of them: all rows, or the one of the
// object that it follows by name, as many others may do.
func (l *listWatch[T]) rows(in *indexer[T]) (first, end store.Row) {
	if l.name == "" {
		return 0, store.Row(in.Rows())
	}
	if row, held := in.Find(Key{Namespace: l.namespace, Name: l.name}); held {
		return row, row + 1
	}
	return 0, 0
}

// sweeps reports whether the object of that key goes if the list-watch has not seen it. Once it has left the scope, an
// heir that follows the key will say.
func (l *listWatch[T]) sweeps(key Key) bool {
	return l.has(key) && (l.heirs == nil || l.heirs.listWatch(key) == nil)
}

// followed is what an informer follows: a scope, and the list-watches that it takes, ordered by their parts.
// There may be none: no namespace, or no name. It is immutable: Rescope, and whatever names an object, replace it.
type followed[T any] struct {
	scope       Scope
	selector    metav1.ListOptions // the scope's
	since       time.Time          // when it was made
	listWatches []*listWatch[T]
	// synced is closed when all of the list-watches are complete. A replacement that is made before
	// takes it over.
	synced chan struct{}
}

// in returns the list-watches that a part's id stands for as an argument: all of them, its own, or none.
func (c *followed[T]) in(id string) []*listWatch[T] {
	if id == whole.id() || len(c.listWatches) == 1 && c.listWatches[0].part == whole {
		return c.listWatches
	}
	if l := c.of(partOf(id)); l != nil {
		return []*listWatch[T]{l}
	}
	return nil
}

// guides returns the guides of the objects, each once: the objects of a namespace stand next to each other.
func (c *followed[T]) guides() (all []*guide[T]) {
	for _, l := range c.listWatches {
		if g := l.reflector.guide.Load(); g != nil && (len(all) == 0 || all[len(all)-1] != g) {
			all = append(all, g)
		}
	}
	return all
}

// of returns the list-watch of a part, or nil if it is not followed.
func (c *followed[T]) of(p part) *listWatch[T] {
	i, found := slices.BinarySearchFunc(c.listWatches, p, compareParts[T])
	if !found {
		return nil
	}
	return c.listWatches[i]
}

// compareParts is for a search in list-watches, which are in the order of their parts.
func compareParts[T any](l *listWatch[T], p part) int { return l.part.compare(p) }

// besides returns the list-watches that others do not have.
func (c *followed[T]) besides(others *followed[T]) (rest []*listWatch[T]) {
	for _, l := range c.listWatches {
		if others.of(l.part) != l {
			rest = append(rest, l)
		}
	}
	return rest
}

// listWatch returns the list-watch that the object of a key belongs to, or nil if the key is out of scope.
func (c *followed[T]) listWatch(key Key) *listWatch[T] {
	switch {
	case c.scope.ByName:
		return c.of(part{key.Namespace, key.Name})
	case len(c.listWatches) == 1 && c.listWatches[0].part == whole:
		return c.listWatches[0]
	default:
		return c.of(part{namespace: key.Namespace})
	}
}

// incomplete returns the list-watches whose part of the store is not complete.
func incomplete[T any](listWatches []*listWatch[T]) (missing []*listWatch[T]) {
	for _, l := range listWatches {
		if !l.health.complete() {
			missing = append(missing, l)
		}
	}
	return missing
}

// milestone is the version that a list-watch's part of the store has reached: that of the list, bookmark or object that
// was applied last.
type milestone struct {
	mu              sync.Mutex
	resourceVersion string        // guarded by mu; empty while the list-watch is not complete
	moved           chan struct{} // guarded by mu; closed when resourceVersion changes; nil while nothing waits for it
}

func (m *milestone) get() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resourceVersion
}

// getAndMove returns the present version and a channel that is closed when there is another.
func (m *milestone) getAndMove() (string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved == nil {
		m.moved = make(chan struct{})
	}
	return m.resourceVersion, m.moved
}

func (m *milestone) move(resourceVersion string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resourceVersion = resourceVersion
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}
