package debts

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// coming has the caches of a controller that come and go. What they leave behind for the next leader stays for a while
// when they go. There, the same informer may not have been given up: it follows what its objects name, and these may be
// older than here.
type coming struct {
	caches atomic.Pointer[[]*Cache] // replaced with mu held; what it points to never changes

	mu sync.Mutex
	// left says, for each scope of a cache that was given up, what the next leader's cache must have seen. Guarded by
	// mu.
	left map[Legacy]leftBehind
}

// leftBehind is what is left for the next leader, and since when.
type leftBehind struct {
	Legacy
	at time.Time
}

// LeftFor is how long something is left for the next leader: longer than a cache that is Live lags.
const LeftFor = time.Hour

// everyCache returns the caches of a controller at this moment.
func everyCache(l *Ledger) iter.Seq[*Cache] {
	return func(yield func(*Cache) bool) {
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

func (s *coming) now() []*Cache {
	if list := s.caches.Load(); list != nil {
		return *list
	}
	return nil
}

// Join adds the cache of an informer that comes and goes, and does not run yet. If keys run without the cache, arrived
// is called once it may be acted on.
func (l *Ledger) Join(inf Informer, learner *writes.Learner, arrived func()) *Cache {
	c, s := newCache(inf), &l.coming
	c.Learner, c.comes, c.arrived = learner, true, arrived
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(s.now()), c)
	s.caches.Store(&list)
	return c
}

// GiveUp takes a cache that comes and goes out of the ledger. Nothing is waited for in it any more.
func (l *Ledger) GiveUp(c *Cache, log klog.Logger) {
	l.mu.Lock()
	var keys []wokenKey
	left := c.leftLocked(l, nil, false)
	c.givenUp.Store(true) // before the debts are looked at: it settles them
	var lines []logLine
	for _, p := range c.partitions {
		keys = l.paySettledLocked(keys, p.oldestLocked(all), p.progress())
		if len(p.logged) > 0 {
			lines = append(lines, logLine{partition: p, trouble: p.recoveryLocked()})
		}
	}
	l.coming.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(l.coming.now()), func(other *Cache) bool { return other == c })
	l.coming.caches.Store(&list)
	if c.complete() { // also where nothing has been written yet
		for _, s := range c.Learner.Scopes() {
			left = append(left, entryOf(s.Target))
		}
	}
	for _, e := range left {
		l.coming.leaveLocked(e)
	}
	l.coming.mu.Unlock()
	l.mu.Unlock()
	l.wakeUp(keys)
	for _, line := range lines {
		line.write(log)
	}
}

// maxLeft is how many scopes left tells apart. If there are more, it tells only resources apart; and if there are more
// than half as many of these, it forgets the oldest.
const maxLeft = 256

// leaveLocked adds to what is left for the next leader.
func (s *coming) leaveLocked(e Legacy) {
	if e.Informer != "" { // its requests do not pass TrackWrites
		e = Legacy{Informer: "those that were given up", Relist: true}
	}
	if s.left == nil {
		s.left = make(map[Legacy]leftBehind)
	}
	if s.addLocked(leftBehind{e, time.Now()}); len(s.left) <= maxLeft {
		return
	}
	s.expireLocked()
	apart := slices.SortedFunc(maps.Values(s.left), func(a, b leftBehind) int { return b.at.Compare(a.at) })
	clear(s.left)
	for _, e := range apart {
		e.Namespace = ""
		if _, ok := s.left[e.subject()]; ok || len(s.left) < maxLeft/2 {
			s.addLocked(e)
		}
	}
}

func (s *coming) addLocked(e leftBehind) {
	about := e.subject()
	before, ok := s.left[about]
	if !ok {
		before.Legacy = about
	}
	if before.at.After(e.at) {
		e.at = before.at
	}
	s.left[about] = leftBehind{before.merge(e.Legacy), e.at}
}

// expireLocked forgets what is old.
func (s *coming) expireLocked() {
	maps.DeleteFunc(s.left, func(_ Legacy, e leftBehind) bool { return time.Since(e.at) > LeftFor })
}

// knows reports whether a cache was given up that may have shown a write.
func (s *coming) knows(t writes.Target) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, left := s.aboutLocked(t)
	return left
}

// aboutLocked returns what is left about the scope of a write.
func (s *coming) aboutLocked(t writes.Target) (about Legacy, left bool) {
	about = entryOf(t)
	for _, about.Namespace = range []string{t.Namespace, metav1.NamespaceAll} {
		if _, left = s.left[about]; left {
			break
		}
	}
	return about, left
}

// wrote adds a write to a scope of which a cache was given up, unless another one has come. One that is given up now
// has noted the write before.
func (s *coming) wrote(t writes.Target, what Legacy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	about, left := s.aboutLocked(t)
	follows := func(c *Cache) bool { return len(c.Learner.MayHold(t)) > 0 }
	if left && !slices.ContainsFunc(s.now(), follows) {
		s.leaveLocked(about.merge(what))
	}
}

// entries returns what the next leader must have seen of what was given up.
func (s *coming) entries() (all []Legacy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	for about, e := range s.left {
		if e.Legacy != about {
			all = append(all, e.Legacy)
		}
	}
	return all
}
