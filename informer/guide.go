package informer

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/kube"
)

const (
	// defaultWatches is Options.MaxWatches. A name with a watch takes 38 kB of this process and 72 kB of the server, a
	// name that is guided 11 kB and 5 kB; the guide takes 0.2 kB for each object of the namespace. So a guide of 500
	// names pays in a namespace of up to 65,000 objects, or in one of any size if the server counts as well.
	defaultWatches = 500
	// maxGuided is how many objects of a namespace are listed at once because of what their guide has told.
	maxGuided = 32
	// spreadEvery is the least time between two comparisons of all objects with their guide. Bookmarks of the guide's
	// watch come about once a minute.
	spreadEvery = 15 * time.Second
	// leadsInTrouble is how long a guide leads on whose metadata cannot be followed. Then watches may do better.
	leadsInTrouble = time.Minute
)

// guide stands in for the watches of single objects where many objects of a namespace are named. It follows the
// metadata of all objects of the namespace, of which it keeps the keys and versions. It tells the reflector of a named
// object when the object may have changed; the reflector then lists the object by its name. So what comes into the
// store, and all that is said of it, is always the server's answer about that object, with a version of its own.
//
//	metadata of the namespace -list, watch-> guide --news--> reflector of an object -list by name-> DeltaFIFO -> store
//
// No change is missed. The reflector's list is the first request about the object that is sent after the object is
// among those that are followed, or it follows the news. So the list shows all that the guide was told before, and what
// comes later is news. News that come with a version that the reflector has received are ignored.
//
// The guide only compares versions. It needs the right to list and watch all objects of the namespace, so a Role with
// resourceNames is not enough. Where the server refuses, the objects are watched one by one.
type guide[T any] struct {
	inf      *SharedIndexInformer[T] // whose objects it guides
	metadata *SharedIndexInformer[struct{}]
	turns    chan struct{} // has room for maxGuided
	stop     context.CancelFunc
	again    *time.Timer // lets the informer look at the guide again
	useless  bool        // it has been logged that the metadata cannot be followed; it belongs to the writer

	// The rest belongs to the goroutine of metadata's store. newest is the version that it has reached, and spreadAt
	// when that was last spread.
	newest   string
	spreadAt time.Time
}

// newGuide makes the guide of a namespace, or returns nil if the client cannot list the metadata only.
func newGuide[T any](inf *SharedIndexInformer[T], namespace string, scope Scope) *guide[T] {
	client := inf.origin.metadata(namespace)
	if client == nil {
		return nil
	}
	g := &guide[T]{inf: inf, turns: make(chan struct{}, maxGuided)}
	var err error
	g.metadata, err = Project(client, func(*metav1.PartialObjectMetadata) (struct{}, error) { return struct{}{}, nil },
		Options[*metav1.PartialObjectMetadata]{Name: inf.name + ", metadata of " + part{namespace: namespace}.String(),
			LabelSelector: scope.LabelSelector, FieldSelector: scope.FieldSelector,
			PageSize: inf.pageSize, DisableWatchList: inf.disableWatchList, StopGrace: inf.stopGrace})
	if err == nil {
		_, err = g.metadata.AddHandler(g.saw, HandlerOptions{Name: "guide", Inline: true, CrashOnPanic: true,
			Reached: g.reached, Invalid: g.cannotTake})
	}
	if err != nil {
		return nil
	}
	g.health().moved = inf.origin.references.look
	g.again = time.AfterFunc(leadsInTrouble, inf.origin.references.look)
	return g
}

func (g *guide[T]) health() *listWatchHealth { return g.metadata.followed.Load().listWatches[0].health }

// leads reports whether new objects of the namespace need no watch, and follows whether the metadata is complete. If
// the answer changes with time alone, the informer looks again then.
func (g *guide[T]) leads() (leads, follows bool) {
	h := g.health().get()
	switch h.State {
	case Denied, Missing:
		return false, false
	case Stale, Failed:
		bearable := leadsInTrouble
		if faultOf(h.LastError) == unreachable { // requests about single objects would meet the same
			bearable = patience
		}
		left := time.Until(h.Since.Add(bearable))
		if left > 0 {
			g.again.Reset(left)
		}
		return left > 0, false
	}
	return true, h.State == Live
}

// saw tells of a change of the metadata.
func (g *guide[T]) saw(e Event[struct{}]) {
	switch l := g.inf.followed.Load().listWatch(e.Key); {
	case l == nil || l.reflector.guide.Load() != g:
	case e.FinalStateUnknown || e.ResourceVersion == "": // the version of the change is not known
		l.reflector.wantList()
	default:
		l.reflector.news.changed(e.ResourceVersion)
	}
}

// cannotTake tells of metadata that cannot be taken, or of which that is no longer so.
func (g *guide[T]) cannotTake(key Key, _, _ *InvalidError) {
	if l := g.inf.followed.Load().listWatch(key); l != nil && l.reflector.guide.Load() == g {
		l.reflector.wantList()
	}
}

// reached is called when the metadata has reached a version. It compares what the store has of each object with the
// metadata, unless it has done so a short time ago: so the objects are as old as the metadata, and one that was listed
// before the metadata was complete is found.
func (g *guide[T]) reached(_, version string) {
	rewound := kube.Older(version, g.newest)
	g.newest = version
	now := time.Now()
	if !rewound && now.Sub(g.spreadAt) < spreadEvery {
		return
	}
	g.spreadAt = now
	for _, l := range g.inf.followed.Load().listWatches {
		if l.reflector.guide.Load() != g {
			continue
		}
		switch {
		case rewound: // versions cannot be compared
			l.reflector.wantList()
		case g.agrees(Key{Namespace: l.namespace, Name: l.name}):
			l.reflector.news.advance(version, now)
		default:
			l.reflector.news.changed(version)
		}
	}
}

// agrees reports whether the store has the state of an object that the metadata has, be it that it cannot be taken.
func (g *guide[T]) agrees(key Key) bool {
	return latest(g.inf.store, key) == latest(g.metadata.store, key)
}

func latest[T any](x *indexer[T], key Key) stored {
	if r := x.rejected(key); r.InvalidError != nil {
		return stored{held: true, resourceVersion: r.Object.ResourceVersion}
	}
	return x.stored(key)
}

// guideBy lets an object be followed by a guide from its next list on, or, with nil, by a watch of its own from the
// version on that it has reached.
func (l *listWatch[T]) guideBy(g *guide[T]) {
	if l.reflector.guide.Swap(g) == g {
		return
	}
	if g == nil {
		l.health.guide.Store(nil)
		l.reflector.news.wake()
		return
	}
	l.health.guide.Store(g.health())
	l.reflector.wantList() // it ends the watch, and the list that follows is the first that needs none
}

// lead waits, instead of watching, until the guide tells that the reflector's object has changed, or until the object
// has no guide any more.
func (g *guide[T]) lead(ctx context.Context, r *reflector[T]) error {
	r.vain = 0
	r.health.following(r.completed)
	for r.guide.Load() != nil {
		r.pulse.does(resting)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.quarantine.due.C:
			r.retry()
		case <-r.namelessTimer.C:
			if r.listsForNameless() {
				return nil
			}
		case <-r.relistWanted:
			r.resourceVersion = ""
			return nil
		case <-r.news.arrived:
			n := r.news.take()
			if n.since != "" && !kube.AtLeast(r.resourceVersion, n.since) {
				r.calmDown()
				r.resourceVersion = ""
				return nil
			}
			if n.version != "" && !kube.Older(n.version, r.resourceVersion) {
				r.fifo.arrived(n.at)
				r.fifo.advance(n.version)
				r.resourceVersion, r.newest = n.version, n.version
			}
		}
	}
	r.lost = true // the watch that follows may reach a cluster that has gone back
	return nil
}

// list lists the reflector's object when it is its turn.
func (g *guide[T]) list(ctx context.Context, r *reflector[T]) error {
	r.pulse.does(resting)
	select {
	case g.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.turns }()
	r.pulse.does(asking)
	return r.pagedList(ctx)
}

// news is what a guide has told of one object since its reflector has last looked.
type news struct {
	arrived chan struct{} // holds a token while there may be some

	mu sync.Mutex
	told
}

// told says that an object has changed, at the latest by the version since, and that the store had its state of
// version, which had come at that time. An empty version says nothing.
type told struct {
	since   string
	version string
	at      time.Time
}

func (n *news) changed(since string) {
	n.mu.Lock()
	n.since = since
	n.mu.Unlock()
	n.wake()
}

func (n *news) advance(version string, at time.Time) {
	n.mu.Lock()
	n.version, n.at = version, at
	n.mu.Unlock()
	n.wake()
}

func (n *news) wake() {
	select {
	case n.arrived <- struct{}{}:
	default:
	}
}

func (n *news) take() told {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.told
	n.told = told{}
	return t
}

// guides has the guide of each namespace of which many objects are named. It belongs to the writer.
type guides[T any] map[string]*guide[T]

// prepare starts and stops guides before next is followed, and gives those that join theirs. A guide stays until only
// half of the names are left that it was made for, so that a name that comes and goes changes nothing.
func (all guides[T]) prepare(w *writer[T], joining []*listWatch[T], next *followed[T]) {
	names := make(map[string]int)
	for _, l := range next.listWatches {
		names[l.namespace]++
	}
	for namespace, count := range names {
		if all[namespace] == nil && count > w.inf.maxWatches {
			if g := newGuide(w.inf, namespace, next.scope); g != nil {
				g.start(w)
				all[namespace] = g
			}
		}
	}
	for namespace, g := range all {
		if names[namespace] <= w.inf.maxWatches/2 {
			g.stop()
			next.guideBy(namespace, nil) // those that leave begin no watch
			delete(all, namespace)
		}
	}
	for _, l := range joining {
		if g := all[l.namespace]; g != nil {
			if leads, _ := g.leads(); leads {
				l.guideBy(g)
			}
		}
	}
}

func (g *guide[T]) start(w *writer[T]) {
	ctx, stop := context.WithCancel(w.ctx)
	g.stop = stop
	w.inf.mu.Lock()
	defer w.inf.mu.Unlock()
	if !w.inf.ending {
		w.inf.group.Go(g.metadata.name, func() {
			_ = g.metadata.Run(ctx)
			g.again.Stop()            // its function keeps what names the objects
			<-g.metadata.group.Done() // what is stuck, by the error of Run, is to keep the informer's Run, too
		})
	}
}

// follow lets objects be followed by their guides, or by watches, as the guides are now.
func (all guides[T]) follow(w *writer[T]) {
	for namespace, g := range all {
		leads, follows := g.leads()
		switch {
		case follows:
			w.inf.followed.Load().guideBy(namespace, g)
		case !leads:
			w.inf.followed.Load().guideBy(namespace, nil)
		default: // those that joined before stay as they are
			continue
		}
		if g.useless == leads {
			g.useless = !leads
			if leads {
				w.log.Info("The objects that are named are followed by the metadata of all", "namespace", namespace)
			} else {
				w.log.Info("The objects that are named are watched one by one, as the metadata of all cannot be "+
					"followed", "namespace", namespace, "err", g.health().get().LastError)
			}
		}
	}
}

// guideBy lets the objects of a namespace be followed by a guide, or, with nil, by watches.
func (c *followed[T]) guideBy(namespace string, g *guide[T]) {
	for _, l := range c.listWatches {
		if l.namespace == namespace {
			l.guideBy(g)
		}
	}
}
