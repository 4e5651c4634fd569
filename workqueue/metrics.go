package workqueue

import "time"

// Metrics receives the durations of a queue; all other figures are in [Stats]. The queue calls the methods without a
// lock, from the goroutine of the worker, so they should be quick.
type Metrics interface {
	// Waited is called when a key is handed out, with the time since it was added. client-go: queue_duration_seconds.
	Waited(Priority, time.Duration)
	// Worked is called when a run ends, with the time since the key was handed out. client-go: work_duration_seconds.
	Worked(Priority, time.Duration)
}

// Stats are the figures of a queue at one moment. Where client-go has a metric with the same meaning, its name stands
// after the colon. Without Options.Metrics the durations may be up to 100 ms too long.
type Stats struct {
	Ready   int // keys that can be handed out, as Len: depth
	Active  int // keys that workers hold
	Delayed int // keys with a delay that has not ended; some of them are ready or active as well

	// Failing is how many keys the rate limiter counts failures of, including keys that are not in the queue now. It is
	// 0 if the limiter is not of this package.
	Failing int

	// OldestReady is the longest wait of a key that is first in line, in its priority and group. A key further back may
	// have waited longer, if its priority was raised or it was active meanwhile.
	OldestReady   time.Duration
	UnfinishedSum time.Duration // how long the active keys have been worked on, together: unfinished_work_seconds
	LongestActive time.Duration // the longest of them: longest_running_processor_seconds

	Adds    uint64 // times that a key became ready or dirty; adding a ready or dirty key does not count: adds_total
	Retries uint64 // adds with a delay or a rate limit, and outcomes but Done and Rest: retries_total
	Strays  uint64 // calls of Done, or of a claim's methods, for a run that had ended or never began
}

// Stats returns the figures of this moment, in time proportional to the number of active keys and of groups with ready
// keys.
func (q *Queue[K]) Stats() Stats {
	failing := failing(q.opts.RateLimiter)
	c := &q.core
	c.lock()
	defer c.mu.Unlock()
	now := c.now()
	s := Stats{
		Ready: c.ready.n, Active: c.active.n, Delayed: c.delayed, Failing: failing,
		Adds: c.counts.adds, Retries: c.counts.retries, Strays: c.counts.strays,
	}
	for t := c.active.head; t != nil; t = t.next {
		age := time.Duration(now - t.started)
		s.UnfinishedSum += age
		s.LongestActive = max(s.LongestActive, age)
	}
	if t := c.ready.plain.head; t != nil {
		s.OldestReady = time.Duration(now - t.since)
	}
	for _, class := range c.ready.classes {
		for _, f := range class.flows {
			s.OldestReady = max(s.OldestReady, time.Duration(now-f.keys.head.since))
		}
	}
	return s
}

// State is the state of a key, as the package's doc draws them.
type State string

const (
	Delayed State = "delayed" // waits for the end of a delay only
	Ready   State = "ready"   // waits for a worker
	Active  State = "active"  // a worker holds it
)

// Item is one key of a [Queue.Snapshot].
type Item[K comparable] struct {
	Key      K
	State    State
	Since    time.Time // Ready: since it was added; Active: since it was handed out; Delayed: zero
	Again    bool      // Active: added meanwhile, so it becomes ready when its run ends
	Next     time.Time // when its delay ends; zero if it has none. A key in any state can have one.
	Failures int       // according to the rate limiter
	Priority Priority
	Group    string
}

// Lookup returns one key as it is at this moment, and reports whether it is in the queue. ahead is how many ready keys
// have a higher priority, if this one is ready.
func (q *Queue[K]) Lookup(key K) (item Item[K], ahead int, ok bool) {
	c := &q.core
	hash := c.entries.hash(key)
	c.lock()
	e := c.entries.get(key, hash)
	if ok = e != nil; ok {
		item = c.item(e)
	}
	for _, class := range c.ready.classes {
		if item.State == Ready && class.priority > item.Priority {
			ahead += class.n
		}
	}
	c.mu.Unlock()
	if ok {
		item.Failures = q.opts.RateLimiter.NumRequeues(key)
	}
	return item, ahead, ok
}

// Snapshot returns all keys in the queue, in no particular order. It holds the lock for a 64th of them at a time, so
// that a large queue goes on: each key is in a state that it had during the call, and one that comes or goes meanwhile
// may be missing.
func (q *Queue[K]) Snapshot() []Item[K] {
	c := &q.core
	c.lock()
	items := make([]Item[K], 0, c.entries.n)
	for i := range c.entries.tables {
		for _, e := range c.entries.tables[i].slots {
			if e != nil {
				items = append(items, c.item(e))
			}
		}
		c.mu.Unlock()
		c.lock()
	}
	c.mu.Unlock()
	for i := range items {
		items[i].Failures = q.opts.RateLimiter.NumRequeues(items[i].Key)
	}
	return items
}

// item returns what is known of a key, but for its failures.
func (c *core[K]) item(e *entry[K]) Item[K] {
	item := Item[K]{Key: e.key, State: Delayed}
	if e.delayed() {
		kind := c.alarms.first(e)
		item.Next, item.Priority = c.wall(c.alarms[e.alarm[kind]].at), e.priority[kind]
	}
	t := e.turn
	if t == nil {
		return item
	}
	if t.group != nil {
		item.Group = t.group.name
	}
	if t.state != idle {
		item.Priority, item.Again = t.priority, t.dirty
	}
	switch t.state {
	case waiting:
		item.State, item.Since = Ready, c.wall(t.since)
	case active:
		item.State, item.Since = Active, c.wall(t.started)
	}
	return item
}
