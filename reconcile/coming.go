package reconcile

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// coming has the caches of a controller that come and go: those of the informers of [Dynamic] families. What they leave
// behind for the next leader stays when they go. There, the same informer may not have been given up: it follows what
// its objects name, and these may be older than here.
type coming struct {
	caches atomic.Pointer[[]*cache] // replaced with mu held; what it points to never changes

	mu sync.Mutex
	// left says, for each scope of a cache that was given up, what the next leader's cache must have seen. Guarded by mu.
	left map[handoverEntry]handoverEntry
}

// everyCache returns the caches of a controller at this moment.
func everyCache(l *ledger) iter.Seq[*cache] {
	return func(yield func(*cache) bool) {
		for _, c := range l.caches {
			if !yield(c) {
				return
			}
		}
		for _, c := range l.coming.now() {
			if !yield(c) {
				return
			}
		}
	}
}

func (s *coming) now() []*cache {
	if list := s.caches.Load(); list != nil {
		return *list
	}
	return nil
}

// join adds the cache of an informer that does not run yet. Sources may be added while it is opening.
func (s *coming) join(inf trackedInformer, learner *learner) *cache {
	c := newCache(inf)
	c.learner, c.comes = learner, true
	c.opening.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(s.now()), c)
	s.caches.Store(&list)
	return c
}

// opened returns the sources of a cache that comes and goes, once it has all of them.
func (c *cache) opened() []source {
	if c.opening.Load() {
		return nil
	}
	return c.sources
}

// giveUp takes a cache that comes and goes out of the ledger. Nothing is waited for in it any more.
func (c *cache) giveUp(l *ledger) {
	l.mu.Lock()
	var keys []wokenKey
	left := c.handoverEntries(l)
	c.givenUp.Store(true) // before the debts are looked at: it settles them
	for _, p := range c.partitions {
		keys = l.paySettled(keys, p.oldest(all), p.progress())
	}
	l.coming.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(l.coming.now()), func(other *cache) bool { return other == c })
	l.coming.caches.Store(&list)
	for _, s := range c.learner.allScopes() { // also where nothing has been written yet
		t := s.target
		left = append(left, handoverEntry{Host: t.host, Group: t.group, Resource: t.resource, Namespace: t.namespace})
	}
	for _, e := range left {
		l.coming.leave(e)
	}
	l.coming.mu.Unlock()
	l.mu.Unlock()
	l.wakeUp(keys)
}

// maxLeft is how many scopes left tells apart. If there are more, it tells only resources apart.
const maxLeft = 256

// leave adds to what is left for the next leader. mu is held.
func (s *coming) leave(e handoverEntry) {
	if e.Informer != "" { // its requests do not pass TrackWrites
		e = handoverEntry{Informer: "those that were given up", Relist: true}
	}
	add := func(e handoverEntry) {
		about := e.subject()
		before, ok := s.left[about]
		if !ok {
			before = about
		}
		s.left[about] = before.merge(e)
	}
	if s.left == nil {
		s.left = make(map[handoverEntry]handoverEntry)
	}
	if add(e); len(s.left) > maxLeft {
		apart := s.left
		s.left = make(map[handoverEntry]handoverEntry)
		for _, e := range apart {
			e.Namespace = ""
			add(e)
		}
	}
}

// wrote adds a write to a scope of which a cache was given up, unless another one has come. One that is given up in this
// moment has noted the write before.
func (s *coming) wrote(t target, what handoverEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what.Host, what.Group, what.Resource = t.host, t.group, t.resource
	for _, what.Namespace = range []string{t.namespace, ""} {
		_, left := s.left[what.subject()]
		follows := func(c *cache) bool { return len(c.learner.mayHold(t)) > 0 }
		if left && !slices.ContainsFunc(s.now(), follows) {
			s.leave(what)
			return
		}
	}
}

// leftBehind returns what the next leader must have seen of what was given up.
func (s *coming) leftBehind() (all []handoverEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for about, e := range s.left {
		if e != about {
			all = append(all, e)
		}
	}
	return all
}
