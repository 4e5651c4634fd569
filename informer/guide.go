package informer

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

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
// comes later is news. News that come with a version that the reflector has reached are ignored.
//
// The guide only compares versions. It needs the right to list and watch all objects of the namespace, so a Role with
// resourceNames is not enough. Where the server refuses, the objects are watched one by one.
type guide[T any] struct {
	inf       *SharedIndexInformer[T] // whose objects it guides
	namespace string
	metadata  *SharedIndexInformer[struct{}]
	turns     chan struct{} // has room for maxGuided
	stop      context.CancelFunc
	again     *time.Timer // lets the informer look at the guide again

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
	g := &guide[T]{inf: inf, namespace: namespace, turns: make(chan struct{}, maxGuided)}
	var err error
	g.metadata, err = Project(client, func(*metav1.PartialObjectMetadata) (struct{}, error) { return struct{}{}, nil },
		Options[*metav1.PartialObjectMetadata]{Name: inf.name + ", metadata of " + part{namespace: namespace}.String(),
			LabelSelector: scope.LabelSelector, FieldSelector: scope.FieldSelector,
			PageSize: inf.pageSize, DisableWatchList: inf.disableWatchList, StopGrace: inf.stopGrace})
	if err != nil {
		return nil
	}
	_, err = g.metadata.AddHandler(g.saw, HandlerOptions{Name: "guide", Inline: true, CrashOnPanic: true,
		Reached: g.reached, Invalid: g.cannotTake})
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
	if g == nil {
		return false, false
	}
	h := g.health().get()
	switch h.State {
	case Live:
		return true, true
	case Denied, Missing:
		return false, false
	case Stale, Failed:
		left := time.Until(h.Since.Add(bearable(h)))
		if left <= 0 {
			return false, false
		}
		g.again.Reset(left)
	}
	return true, false
}

// bearable says how long objects are left to a guide whose metadata is in that trouble.
func bearable(metadata Health) time.Duration {
	switch f := faultOf(metadata.LastError); {
	case metadata.State == Failed && metadata.Listed > 0: // it cannot be watched
		return 0
	case f == unreachable: // requests about single objects would meet the same, unless it takes long to list all
		return patience
	case metadata.State == Stale || f == lost || f == busy:
		return leadsInTrouble
	}
	return 0
}

// saw tells of a change of the metadata.
func (g *guide[T]) saw(e Event[struct{}]) {
	l := g.inf.followed.Load().listWatch(e.Key)
	if l == nil || l.reflector.guide.Load() != g {
		return
	}
	version := e.ResourceVersion
	if e.FinalStateUnknown {
		version = "" // that of the deletion is not known
	}
	if has := g.inf.store.stored(e.Key); e.Type != Deleted && has.held && has.resourceVersion == version {
		return
	}
	l.reflector.news.changed(version)
}

// cannotTake tells of metadata that cannot be taken. It may be that of another state of the object.
func (g *guide[T]) cannotTake(key Key, _, now *InvalidError) {
	if l := g.inf.followed.Load().listWatch(key); now != nil && l != nil && l.reflector.guide.Load() == g {
		l.reflector.news.changed("")
	}
}

// reached is called when the metadata has reached a version. It compares what the store has of each object with the
// metadata, unless it has done so a short time ago: so the objects are as old as the metadata, and one that was listed
// before the metadata was complete is found.
func (g *guide[T]) reached(_, version string) {
	if version == "" {
		return
	}
	rewound := g.newest != "" && kube.Older(version, g.newest)
	g.newest = version
	now := time.Now()
	if !rewound && now.Sub(g.spreadAt) < spreadEvery {
		return
	}
	g.spreadAt = now
	for _, l := range g.inf.followed.Load().listWatches {
		if l.namespace != g.namespace || l.reflector.guide.Load() != g {
			continue
		}
		switch {
		case rewound: // versions cannot be compared
			l.reflector.news.changed("")
		case g.agrees(Key{Namespace: l.namespace, Name: l.name}):
			l.reflector.news.reached(version, now)
		default:
			l.reflector.news.changed(version)
		}
	}
}

// agrees reports whether the store has the state of an object that the metadata has, be it that it cannot take it.
func (g *guide[T]) agrees(key Key) bool {
	now, exists := g.metadata.Version(key)
	if r := g.inf.store.rejected(key); r.InvalidError != nil {
		return exists && r.Object.ResourceVersion == now.ResourceVersion
	}
	has := g.inf.store.stored(key)
	return has.held == exists && (!exists || has.resourceVersion == now.ResourceVersion)
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
	select { // ends the watch; the list that follows is the first that needs no watch
	case l.reflector.relistWanted <- struct{}{}:
	default:
	}
}

// lead waits, instead of watching, until the guide tells that the reflector's object has changed, or until the object
// has no guide any more.
func (g *guide[T]) lead(ctx context.Context, r *reflector[T]) error {
	r.failures, r.vain, r.lost = 0, 0, false
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
			if n.change && !(n.since != "" && kube.AtLeast(r.resourceVersion, n.since)) {
				r.calmDown()
				r.resourceVersion = ""
				return nil
			}
			if n.version != "" && !kube.Older(n.version, r.resourceVersion) {
				r.fifo.arrived(n.at)
				r.fifo.reached(n.version)
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
	r.news.take() // this list shows it
	return r.pagedList(ctx)
}

// news is what a guide has told of one object since its reflector has last looked.
type news struct {
	arrived chan struct{} // holds a token while there may be some

	mu sync.Mutex
	told
}

// told says that an object has changed, by the version since unless that is empty. If it has not, the state that the
// store has is that of version, which had come at that time; an empty version says nothing.
type told struct {
	change  bool
	since   string
	version string
	at      time.Time
}

func (n *news) changed(since string) {
	n.mu.Lock()
	switch {
	case !n.change:
		n.change, n.since = true, since
	case since == "" || n.since != "" && kube.Older(n.since, since):
		n.since = since
	}
	n.mu.Unlock()
	n.wake()
}

func (n *news) reached(version string, at time.Time) {
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

// namedObjects counts the objects of a namespace that are named, and has their guide if they are many.
type namedObjects[T any] struct {
	count   int
	guide   *guide[T]
	watched bool // it has been logged that the guide is of no use
}

// guides has the namespaces of the objects that are named. It belongs to the writer.
type guides[T any] map[string]*namedObjects[T]

// countNames counts those that join and leave, after which next is followed, and starts and stops guides. A guide stays
// until only half of the names are left that it was made for, so that a name that comes and goes changes nothing.
func (all guides[T]) countNames(w *writer[T], joining, leaving []*listWatch[T], next *followed[T]) {
	changed := make(map[string]struct{})
	count := func(l *listWatch[T], by int) {
		n := all[l.namespace]
		if n == nil {
			n = &namedObjects[T]{}
			all[l.namespace] = n
		}
		n.count += by
		changed[l.namespace] = struct{}{}
	}
	for _, l := range joining {
		count(l, 1)
	}
	for _, l := range leaving {
		count(l, -1)
	}
	for namespace := range changed {
		n := all[namespace]
		switch {
		case n.guide == nil && n.count > w.inf.maxWatches:
			n.guide = newGuide(w.inf, namespace, next.scope)
			n.guide.start(w)
		case n.guide != nil && n.count <= w.inf.maxWatches/2:
			n.guide.stop()
			for _, l := range next.listWatches { // those that leave begin no watch
				if l.namespace == namespace {
					l.guideBy(nil)
				}
			}
			n.guide = nil
		}
		if n.count == 0 {
			delete(all, namespace)
		}
	}
	for _, l := range joining {
		if g := all[l.namespace].guide; g != nil {
			if leads, _ := g.leads(); leads {
				l.guideBy(g)
			}
		}
	}
}

func (g *guide[T]) start(w *writer[T]) {
	if g == nil {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	g.stop = stop
	w.inf.mu.Lock()
	defer w.inf.mu.Unlock()
	if !w.inf.ending {
		w.inf.group.Go(g.metadata.name, func() {
			_ = g.metadata.Run(ctx)
			g.again.Stop()
			<-g.metadata.group.Done() // what is stuck, by the error of Run, is to keep the informer's Run, too
		})
	}
}

// follow lets objects be followed by their guides, or by watches, as the guides are now.
func (all guides[T]) follow(w *writer[T]) {
	for namespace, n := range all {
		if n.guide == nil {
			continue
		}
		leads, follows := n.guide.leads()
		if leads && !follows {
			continue // those that joined before stay as they are
		}
		var g *guide[T]
		if leads {
			g = n.guide
		}
		for _, l := range w.inf.followed.Load().listWatches {
			if l.namespace == namespace {
				l.guideBy(g)
			}
		}
		if n.watched == leads {
			n.watched = !leads
			n.logMode(w.log, part{namespace: namespace})
		}
	}
}

func (n *namedObjects[T]) logMode(log klog.Logger, where part) {
	about := []any{where.kind(), where.id(), "names", n.count}
	if n.watched {
		log.Info("The objects that are named are watched one by one, as the metadata of all cannot be followed",
			append(about, "err", n.guide.health().get().LastError)...)
		return
	}
	log.Info("The objects that are named are followed by the metadata of all", about...)
}
