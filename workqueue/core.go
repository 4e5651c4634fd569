package workqueue

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"time"
)

// core is everything of a queue that its lock guards. Nothing else changes its fields, and all of its methods but lock
// and ring are called with the lock held.
type core[K comparable] struct {
	mu sync.Mutex

	// Set by init, and never changed.
	born  time.Time // zero point of all times below, which are nanoseconds since then and never 0
	exact bool      // whether times are exact: see roughly

	// Guarded by mu: the keys. For every entry e and its turn t:
	//   t is in ready  <=> t.state == waiting
	//   t is in active <=> t.state == active
	//   e is in alarms, once or twice <=> e.alarm has an index that is not 0
	//   t.dirty         => t.state == active
	// An entry of which none of this holds is not in entries: what is known about a key leaves with it.
	entries    index[K]
	ready      line[K] // keys whose turn will come
	active     list[K] // keys that workers have, the one they have had longest first
	alarms     alarms[K]
	delayed    int               // entries that are in alarms
	groups     map[string]*group // the groups that some entry belongs to; nil without Options.Group
	mostGroups int               // that groups has held; see roomy
	pool       pool[K]

	// Guarded by mu: the workers.
	waiters waiters // workers that wait for a key
	tickets uint64  // the last ticket that a claim was given

	// Guarded by mu: time.
	read      int64       // what this hold of the lock has read from the clock; 0: nothing yet; see now
	timer     *time.Timer // runs ring; made when first needed
	armed     int64       // when it fires; 0: not set; 1: it has fired, and ring is at work
	rough     int64       // see roughly; 0: to be read anew
	roughUsed bool        // since it was read

	// Guarded by mu: the shutdown.
	down    bool          // no more adds, no more alarms
	idle    chan struct{} // closed when ready and active are both empty; nil unless a drain waits for it
	hurried chan struct{} // closed by ShutDown to end ShutDownWithDrain; nil unless that was called

	counts counts // guarded by mu
}

// counts are the totals of a queue's life, for [Stats].
type counts struct {
	adds, retries, strays uint64
}

func (c *core[K]) init(o Options[K]) {
	c.born, c.exact = time.Now(), o.Metrics != nil
	c.entries.seed = maphash.MakeSeed()
	c.ready.maxOvertaken = o.MaxOvertaken
	if o.Group != nil {
		c.groups = map[string]*group{}
	}
}

// lock takes the lock, and forgets the time that the hold before it read. If another goroutine has the lock, others run
// first: the lock is held so briefly that to wait at the mutex, which spins, parks and wakes, takes longer than the
// work, and the memory in question changes cores each time. With 8 producers and 8 workers on 2 cores this saves a
// fifth of the time of a key.
func (c *core[K]) lock() {
	if !c.mu.TryLock() {
		c.lockSlow()
	}
	c.read = 0
}

func (c *core[K]) lockSlow() {
	for range 2 {
		runtime.Gosched()
		if c.mu.TryLock() {
			return
		}
	}
	c.mu.Lock()
}

// now is the time on the queue's own scale: nanoseconds since it was made, never 0, which means "not set". Within one
// hold of the lock it always returns the same, so what was not due in the first half of a critical section is not due
// in the second half either; and as the clock is read under the lock, a later hold never sees an earlier time.
func (c *core[K]) now() int64 {
	if c.read == 0 {
		c.read = int64(time.Since(c.born)) + 1
	}
	return c.read
}

// wall turns a time on the queue's own scale into one to show.
func (c *core[K]) wall(t int64) time.Time { return c.born.Add(time.Duration(t - 1)) }

// granularity of the times that are only there for people to look at.
const granularity = 100 * time.Millisecond

// roughly is the time to note for an add or a hand-out. It is exact if there are Metrics. Otherwise it may be behind by
// granularity: to read the clock twice takes as long as the rest of an add and a hand-out together, so it is read once
// for all that happens until the timer fires.
func (c *core[K]) roughly() int64 {
	if c.exact || c.down { // after a shutdown the timer rests
		return c.now()
	}
	c.roughUsed = true
	if c.rough == 0 {
		c.rough = c.now()
		c.arm(c.rough + int64(granularity))
	}
	return c.rough
}

// enter returns the entry of key, a new one if the key is unknown.
func (c *core[K]) enter(key K, hash uint32, groupName string) *entry[K] {
	if e := c.entries.get(key, hash); e != nil {
		return e
	}
	e := c.pool.entry()
	e.key, e.hash = key, hash
	c.entries.put(e)
	if c.groups != nil {
		g := c.groups[groupName]
		if g == nil {
			g = &group{name: groupName}
			c.groups[groupName] = g
			c.mostGroups = max(c.mostGroups, len(c.groups))
		}
		g.refs++
		e.turn = c.pool.turn()
		e.turn.entry, e.turn.group = e, g
	}
	return e
}

// want notes that e's key needs a run: the key becomes ready or, if a worker holds it, dirty.
func (c *core[K]) want(e *entry[K], p Priority) {
	t := e.turn
	if t == nil {
		t = c.pool.turn()
		t.entry, e.turn = e, t
	}
	switch {
	case t.state == idle:
		t.since, t.priority = c.roughly(), p
		c.counts.adds++
		c.enqueue(t)
	case t.state == active && !t.dirty:
		t.since, t.dirtyPriority, t.dirty = c.roughly(), p, true
		c.counts.adds++
	case t.state == active:
		t.dirtyPriority = max(t.dirtyPriority, p)
	case p > t.priority:
		c.ready.remove(t)
		t.priority = p
		c.ready.push(t)
	}
}

// enqueue puts t at the end of the line, and wakes a worker for it.
func (c *core[K]) enqueue(t *turn[K]) {
	t.state = waiting
	c.ready.push(t)
	c.wake()
}

// start hands the first turn of the line to a worker.
func (c *core[K]) start(byGet bool) *turn[K] {
	t := c.ready.pop()
	t.state, t.started, t.byGet = active, c.roughly(), byGet
	c.active.push(t)
	if !byGet {
		c.clearAlarm(t.entry, ofOutcome) // this run's own outcome replaces it
		c.tickets++
		t.ticket.Store(c.tickets)
	}
	return t
}

// activeTurn returns the turn of an active key, or nil.
func (c *core[K]) activeTurn(key K, hash uint32) *turn[K] {
	if e := c.entries.get(key, hash); e != nil && e.turn != nil && e.turn.state == active {
		return e.turn
	}
	return nil
}

// outcome is how a run ended.
type outcome struct {
	again bool          // the run itself asks for another one
	after time.Duration // with again: how long from now
	rests bool          // with again: the run neither succeeded nor failed, so this is no retry
}

// finish ends the run of t. The key becomes ready again if it is dirty.
func (c *core[K]) finish(t *turn[K], o outcome) {
	e := t.entry
	if o.again {
		if !o.rests {
			c.counts.retries++
		}
		if o.after > 0 || c.down {
			c.setAlarm(e, ofOutcome, o.after, t.priority)
		} else {
			c.want(e, t.priority)
		}
	}
	c.active.remove(t)
	t.state, t.byGet = idle, false
	if t.dirty {
		t.dirty, t.priority = false, t.dirtyPriority
		c.enqueue(t)
	} else {
		c.release(e)
	}
	c.signalIdle()
}

// release gives back what the key of e, which is neither ready nor active, needs no longer: the turn, and the entry
// unless it has an alarm.
func (c *core[K]) release(e *entry[K]) {
	t := e.turn
	if e.delayed() {
		if t != nil && t.group == nil {
			c.pool.putTurn(t)
			e.turn = nil
		}
		return
	}
	if t != nil {
		if g := t.group; g != nil {
			if g.refs--; g.refs == 0 {
				delete(c.groups, g.name)
				c.groups, c.mostGroups = shrunk(c.groups, c.mostGroups)
			}
			t.group = nil
		}
		c.pool.putTurn(t)
	}
	c.entries.remove(e)
	c.pool.putEntry(e)
}

// wake keeps one worker awake for each ready key, as long as workers wait:
//
//	len(waiters.asleep) == 0 || waiters.waking >= ready.n
//
// It is called when a key becomes ready, and when a worker that was woken gives up. A worker that was woken and takes a
// key makes both sides of the inequality one less; one that finds none found ready.n == 0.
func (c *core[K]) wake() {
	for len(c.waiters.asleep) > 0 && c.waiters.waking < c.ready.n {
		c.waiters.wake()
	}
}

// wait lets go of the lock until this worker is woken or ended is closed.
func (c *core[K]) wait(ended <-chan struct{}) {
	w, woken := c.waiters.join(), false
	c.mu.Unlock()
	select {
	case <-w:
		woken = true
	case <-ended:
	}
	c.lock()
	if !woken && !c.waiters.quit(w) { // both at the same moment
		<-w
		woken = true
	}
	if woken {
		c.waiters.waking--
	}
	c.waiters.free = append(c.waiters.free, w)
}

// waiters are the workers that found no ready key. Each has a channel of its own, since it has to watch its context as
// well; the channel holds one signal at most, and is used again.
type waiters struct {
	asleep []chan struct{} // the longest waiting first
	waking int             // workers that were woken, and have not looked yet
	free   []chan struct{}
}

func (ws *waiters) join() chan struct{} {
	var w chan struct{}
	if n := len(ws.free); n > 0 {
		w, ws.free = ws.free[n-1], ws.free[:n-1]
	} else {
		w = make(chan struct{}, 1)
	}
	ws.asleep = append(ws.asleep, w)
	return w
}

// quit removes w, and reports whether it was still asleep.
func (ws *waiters) quit(w chan struct{}) bool {
	i := slices.Index(ws.asleep, w)
	if i < 0 {
		return false
	}
	ws.asleep = slices.Delete(ws.asleep, i, i+1)
	return true
}

// wake wakes the worker that has waited longest.
func (ws *waiters) wake() {
	w := ws.asleep[0]
	ws.asleep = slices.Delete(ws.asleep, 0, 1)
	ws.waking++
	w <- struct{}{}
}

func (c *core[K]) shutDown() {
	c.down = true
	if c.timer != nil {
		c.timer.Stop()
	}
	for len(c.waiters.asleep) > 0 {
		c.waiters.wake()
	}
}

func (c *core[K]) isIdle() bool { return c.ready.n == 0 && c.active.n == 0 }

// whenIdle returns a channel that is closed once the queue, which is shut down, has neither ready nor active keys.
func (c *core[K]) whenIdle() <-chan struct{} {
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.signalIdle()
	return idle
}

// signalIdle ends the drains if the queue is idle. It is called whenever a key has left ready or active.
func (c *core[K]) signalIdle() {
	if c.idle != nil && c.isIdle() {
		close(c.idle)
		c.idle = nil
	}
}
