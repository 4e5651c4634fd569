package workqueue

import "time"

// Metrics is told how long things took, as only the moment can tell that; all else is in [Stats], to be read when
// somebody asks. The methods are called without a lock, by the goroutine of the worker, and should be quick.
type Metrics interface {
	// Waited: a key was handed out, this long after it was added. client-go: queue_duration_seconds.
	Waited(Priority, time.Duration)
	// Worked: a key was given back, this long after it was handed out. client-go: work_duration_seconds.
	Worked(Priority, time.Duration)
}

// Stats is what a queue looks like at one moment. Where client-go has a metric with the same meaning, its name is
// given. Without Options.Metrics the durations may be up to 100 ms too long.
type Stats struct {
	Ready   int // keys that can be handed out, as Len: depth
	Active  int // keys in the hands of workers
	Delayed int // keys with a delay that has not ended; some are in one of the above as well

	// Failing is how many keys the rate limiter counts failures of, also those that are not in the queue now. It is 0
	// if the limiter is not from this package and so cannot tell.
	Failing int

	// OldestReady is the longest wait of a key that is first in line, in its priority and group. A key further back may
	// have waited longer, if its priority was raised or it was active meanwhile.
	OldestReady   time.Duration
	UnfinishedSum time.Duration // how long the active keys have been worked on, together: unfinished_work_seconds
	LongestActive time.Duration // the longest of them: longest_running_processor_seconds

	Adds    uint64 // times that a key began to wait; adding a waiting key does not count: adds_total
	Retries uint64 // times that a key was to come back, after a delay or rate-limited, other than by Claim.Rest: retries_total
	Strays  uint64 // calls that would have ended a hand-out that was not there
	Panics  uint64 // calls of the functions and interfaces in Options that panicked
}

// Stats returns the figures of this moment. It takes time in proportion to the active keys and the waiting groups.
func (q *Queue[K]) Stats() Stats {
	failing, panics := failing(q.user.opts.RateLimiter), q.user.panics.Load()
	c := &q.core
	c.lock()
	defer c.mu.Unlock()
	now := c.now()
	s := Stats{
		Ready: c.ready.n, Active: c.active.n, Delayed: c.delayed, Failing: failing,
		Adds: c.counts.adds, Retries: c.counts.retries, Strays: c.counts.strays, Panics: panics,
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

// State is where a key is in its life.
type State string

const (
	Delayed State = "delayed" // only its delay keeps it in the queue
	Ready   State = "ready"   // waits for a worker
	Active  State = "active"  // a worker has it
)

// Item is one key of a [Queue.Snapshot].
type Item[K comparable] struct {
	Key      K
	State    State
	Since    time.Time // Ready: since it was added; Active: since it was handed out; Delayed: zero
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
		items[i].Failures = q.user.failures(items[i].Key)
	}
	return items
}

func (q *Queue[K]) copyItems() []Item[K] {
	c := &q.core
	c.lock()
	defer c.mu.Unlock()
	items := make([]Item[K], 0, c.entries.n)
	for e := range c.entries.all {
		item := Item[K]{Key: e.key, State: Delayed}
		if e.delayed() {
			kind := c.alarms.first(e)
			item.Next, item.Priority = c.wall(c.alarms[e.alarm[kind]].at), e.priority[kind]
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
				item.State, item.Since = Ready, c.wall(t.since)
			case active:
				item.State, item.Since = Active, c.wall(t.started)
			}
		}
		items = append(items, item)
	}
	return items
}
