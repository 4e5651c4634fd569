package workqueue

import "time"

// Metrics is told what only the moment can tell; all else is in [Stats], to be read when somebody asks. Its methods
// are called without a lock, by the goroutine of the worker, which they should not keep.
type Metrics interface {
	// Waited: a key was handed out, this long after it was first added for this run.
	Waited(Priority, time.Duration)
	// Worked: a key was given back, this long after it was handed out.
	Worked(Priority, time.Duration)
}

// counts are the totals of a queue's life.
type counts struct {
	adds, retries, strays uint64
}

// Stats is what a queue looks like at one moment.
type Stats struct {
	Ready     int // keys that can be handed out, as Len
	Throttled int // keys whose turn it was, waiting for a token of Options.Rate
	Active    int // keys in the hands of workers
	Delayed   int // keys with a delay that has not ended; some may be in one of the above as well
	Failing   int // keys that were added rate-limited and have not succeeded since

	OldestReady   time.Duration // how long the head of the line has been waiting, the longest of all heads
	UnfinishedSum time.Duration // how long the active keys have been worked on, together
	LongestActive time.Duration // the longest of them

	Adds    uint64 // keys that began to wait; adding a waiting key does not count
	Retries uint64 // adds with a delay or a rate limit
	Strays  uint64 // calls to end a hand-out that was not there

	// Priorities has an element for each priority with ready keys, the highest first; it is nil as long as no
	// priority but 0, and no group, is in use.
	Priorities []PriorityStats
}

// PriorityStats is the part of Stats that belongs to one priority.
type PriorityStats struct {
	Priority Priority
	Ready    int
	Oldest   time.Duration
}

// Stats returns the figures of this moment. It takes time in proportion to the active keys and the waiting groups.
func (q *Queue[K]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	s := Stats{
		Ready: q.ready.n, Throttled: q.aside.n, Active: q.active.n, Delayed: len(q.alarms),
		Adds: q.counts.adds, Retries: q.counts.retries, Strays: q.counts.strays,
	}
	for t := q.active.head; t != nil; t = t.next {
		age := time.Duration(now - t.started)
		s.UnfinishedSum += age
		s.LongestActive = max(s.LongestActive, age)
	}
	if t := q.ready.plain.head; t != nil {
		s.OldestReady = time.Duration(now - t.since)
	}
	for _, c := range q.ready.classes {
		p := PriorityStats{Priority: c.priority, Ready: c.n}
		for _, f := range c.flows {
			p.Oldest = max(p.Oldest, time.Duration(now-f.keys.head.since))
		}
		s.Priorities = append(s.Priorities, p)
		s.OldestReady = max(s.OldestReady, p.Oldest)
	}
	return s
}

// State is where a key is in its life.
type State string

const (
	Delayed   State = "delayed"   // only its delay keeps it in the queue
	Ready     State = "ready"     // waits for a worker
	Throttled State = "throttled" // its turn came; waits for a token of Options.Rate
	Active    State = "active"    // a worker has it
)

// Item is one key of a [Queue.Snapshot].
type Item[K comparable] struct {
	Key      K
	State    State
	Since    time.Time // Ready, Throttled: since it was added; Active: since it was handed out; Delayed: zero
	Again    bool      // Active: added meanwhile, so it will be ready when the worker is done
	Next     time.Time // when its delay ends; zero if it has none. A key in any state can have one.
	Failures int       // according to the rate limiter
	Priority Priority
	Group    string
}

// Snapshot lists all keys in the queue as they are at one moment, in no particular order. It is meant for people who
// look for a reason: it holds the lock for as long as it takes to copy them.
func (q *Queue[K]) Snapshot() []Item[K] {
	items := q.copyItems()
	for i := range items {
		items[i].Failures = q.opts.RateLimiter.NumRequeues(items[i].Key)
	}
	return items
}

func (q *Queue[K]) copyItems() []Item[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := make([]Item[K], 0, q.entries.n)
	for e := range q.entries.all {
		item := Item[K]{Key: e.key, State: Delayed, Priority: e.priority}
		if at := e.due(); at != 0 {
			item.Next = q.wall(at)
		}
		if t := e.turn; t != nil {
			if t.group != nil {
				item.Group = t.group.name
			}
			if t.state != idle {
				item.Priority, item.Again = t.priority, t.dirty
			}
			switch t.state {
			case waiting:
				item.State, item.Since = Ready, q.wall(t.since)
			case throttled:
				item.State, item.Since = Throttled, q.wall(t.since)
			case active:
				item.State, item.Since = Active, q.wall(t.started)
			}
		}
		items = append(items, item)
	}
	return items
}
