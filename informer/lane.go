package informer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lane is one list-watch and what belongs to it alone. Most informers have one, for whatever the client lists. One that
// [NewNamespaced] has made has a lane for each namespace of its scope, and they meet in one store:
//
//	reflector -> DeltaFIFO --+
//	reflector -> DeltaFIFO --+--> store -> handlers
//	reflector -> DeltaFIFO --+
//
// Each object belongs to one lane, which the namespace in its key tells. So lanes have nothing to do with each other:
// each lists, falls behind, is refused and goes back in time alone, and what a list of one lane does not contain is
// removed from its own part of the store.
type lane[T any] struct {
	namespace string // NamespaceAll: it is the only lane, and has every object
	reflector *reflector[T]
	fifo      *deltaFIFO[T]
	health    *laneHealth
	reached   milestone

	// rewound is the epoch from which on versions count, see batch, and swept that of the latest list that was swept
	// after. Only the goroutine that feeds the store knows them.
	rewound, swept uint64
	// stop ends the lane; nil before it runs. Held with the writer token, as are the next three.
	stop context.CancelFunc
	// left is true once the lane is no longer one of the informer's: nothing of it may come into the store.
	left bool
	// due is the number from which on lists ask for what is wanted now. The lane is complete once the store holds one
	// of them.
	due uint64
	// touched holds the keys of all that has come in since a comparison with the server began; nil while there is none.
	// See verify.
	touched map[Key]struct{}

	// restart ends the present run of the reflector, which is followed by another one.
	restart atomic.Pointer[context.CancelFunc]
}

// newLane makes a lane, which costs nothing before it runs.
func (inf *SharedIndexInformer[T]) newLane(namespace string, from source, selector metav1.ListOptions) *lane[T] {
	l := &lane[T]{
		namespace: namespace,
		fifo:      newDeltaFIFO[T](inf.ready, &inf.every),
		health:    newLaneHealth(inf.health, namespace),
	}
	l.reflector = &reflector[T]{
		source: from, namespace: namespace, pageSize: inf.pageSize, decode: inf.decode, fifo: l.fifo, store: inf.store,
		exits: &inf.exits, health: l.health,
		asked: make(chan error, 1),
	}
	if !inf.disableWatchList && !inf.health.plain.Load() && from.streams() {
		l.reflector.streamsLeft = streamTries
	}
	l.ask(selector)
	return l
}

// start starts the goroutines of a lane, which end when ctx does or the lane leaves.
func (inf *SharedIndexInformer[T]) start(ctx context.Context, l *lane[T]) {
	ctx, l.stop = context.WithCancel(ctx)
	log, where := inf.log, ""
	if l.namespace != metav1.NamespaceAll {
		log, where = log.WithValues("namespace", l.namespace), ", namespace "+l.namespace
	}
	l.health.log, l.reflector.log = log, log
	know := func(err error) { l.health.knows(stuckReflector, err) }
	l.reflector.pulse.watch(ctx, "reflector", know, func() { know(nil) })
	inf.group.Go("reflector of informer "+inf.name+where, func() { l.run(ctx) })
	if inf.verifyEvery > 0 {
		inf.group.Go("verifier of informer "+inf.name+where, func() { inf.verify(ctx, l, log) })
	}
}

// run lists and watches until ctx ends.
func (l *lane[T]) run(ctx context.Context) {
	defer l.fifo.drop()
	for ctx.Err() == nil {
		run, cancel := context.WithCancel(ctx)
		l.restart.Store(&cancel)
		l.reflector.run(run)
		cancel()
	}
}

// ask lets the lane begin anew, with other selectors. The caller holds the writer token, unless nobody else knows the
// lane.
//
// A list that is due takes its number, and then reads what is wanted, after that was written here: whatever was under
// way, it asks for the right thing.
func (l *lane[T]) ask(selector metav1.ListOptions) {
	l.reflector.wanted.Store(&selector)
	l.due = uint64(l.health.lists.Load()) + 1
	l.health.listed(0)
	l.reached.move("") // it was that of another selection
	if cancel := l.restart.Load(); cancel != nil {
		(*cancel)()
	}
}

// has reports whether an object of that key belongs to the lane.
func (l *lane[T]) has(key Key) bool {
	return l.namespace == metav1.NamespaceAll || key.Namespace == l.namespace
}

// course is what an informer follows: a scope, and the lanes that it takes, at least one, ordered by their namespaces.
// A course is not changed, but replaced.
type course[T any] struct {
	scope    Scope
	selector metav1.ListOptions // the scope's
	lanes    []*lane[T]
	// synced is closed when all of the lanes are complete. One that has not been closed is the next course's, too.
	synced chan struct{}
}

// in returns the lanes that a namespace stands for in the methods that take one: all of them, its own, or none.
func (c *course[T]) in(namespace string) []*lane[T] {
	if namespace == metav1.NamespaceAll || len(c.lanes) == 1 && c.lanes[0].namespace == metav1.NamespaceAll {
		return c.lanes
	}
	i, found := slices.BinarySearchFunc(c.lanes, namespace,
		func(l *lane[T], namespace string) int { return cmp.Compare(l.namespace, namespace) })
	if !found {
		return nil
	}
	return c.lanes[i : i+1]
}

// lane returns the lane that has the objects of a namespace, or nil if that is out of scope.
func (c *course[T]) lane(namespace string) *lane[T] {
	if lanes := c.in(namespace); len(lanes) == 1 && lanes[0].has(Key{Namespace: namespace}) {
		return lanes[0]
	}
	return nil
}

// incomplete returns the lanes whose part of the store is not complete.
func incomplete[T any](lanes []*lane[T]) (missing []*lane[T]) {
	for _, l := range lanes {
		if !l.health.complete() {
			missing = append(missing, l)
		}
	}
	return missing
}

// milestone is the version that a lane's part of the store has reached: that of the list or bookmark or object that was
// applied last.
type milestone struct {
	mu sync.Mutex
	// Guarded by mu. resourceVersion is empty as long as the lane is not complete. moved is closed, and forgotten, when
	// it changes or the lane leaves; nil while nobody waits for that.
	resourceVersion string
	moved           chan struct{}
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
