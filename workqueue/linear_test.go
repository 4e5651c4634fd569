package workqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// call is one call of a concurrent history. Another call precedes it if it returned before this one began; what
// overlaps may have happened in either order.
type call struct {
	what           string // Add, Get, Done, ShutDown
	key            string // what Get returned; "" for a Get that reported the shutdown
	began, returns int64
}

// linear says whether there is an order of the calls that agrees with what preceded what, and in which each returned
// what a queue returns that does one thing after the other (Herlihy and Wing 1990). It tries them all, but never the
// same rest from the same state twice.
func linear(calls []call) bool {
	tried := map[string]bool{}
	var search func(left []call, s serial) bool
	search = func(left []call, s serial) bool {
		if len(left) == 0 {
			return true
		}
		id := fmt.Sprint(left, s)
		if tried[id] {
			return false
		}
		tried[id] = true
		for i, c := range left {
			first := !slices.ContainsFunc(left, func(o call) bool { return o.returns < c.began })
			if next, ok := s.does(c); first && ok && search(slices.Delete(slices.Clone(left), i, i+1), next) {
				return true
			}
		}
		return false
	}
	return search(calls, serial{})
}

// serial is the queue that does one thing after the other. Its fields are lists of one-letter keys.
type serial struct {
	ready, active, dirty string
	down                 bool
}

func (s serial) does(c call) (next serial, ok bool) {
	switch c.what {
	case "Add":
		switch {
		case s.down:
		case !strings.Contains(s.active, c.key) && !strings.Contains(s.ready, c.key):
			s.ready += c.key
		case strings.Contains(s.active, c.key) && !strings.Contains(s.dirty, c.key):
			s.dirty += c.key
		}
	case "Get":
		if c.key == "" {
			return s, s.down && s.ready == ""
		}
		if !strings.HasPrefix(s.ready, c.key) {
			return s, false
		}
		s.ready, s.active = s.ready[1:], s.active+c.key
	case "Done":
		s.active = strings.ReplaceAll(s.active, c.key, "")
		if strings.Contains(s.dirty, c.key) {
			s.dirty = strings.ReplaceAll(s.dirty, c.key, "")
			s.ready += c.key
		}
	case "ShutDown":
		s.down = true
	}
	return s, true
}

// doer is as much of a queue as a history needs.
type doer interface {
	Add(string)
	Get() (string, bool)
	Done(string)
	ShutDown()
}

// concurrently lets two workers and two producers loose on q and returns what they saw.
func concurrently(q doer, seed uint64) []call {
	var clock atomic.Int64
	var mu sync.Mutex
	var calls []call
	do := func(what, key string, f func() string) string {
		began := clock.Add(1)
		if got := f(); what == "Get" {
			key = got
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call{what, key, began, clock.Add(1)})
		return key
	}
	var producers, workers sync.WaitGroup
	for i := range uint64(2) {
		producers.Go(func() {
			r := rand.New(rand.NewPCG(seed, i))
			for range 3 {
				k := string(rune('a' + r.IntN(2)))
				do("Add", k, func() string { q.Add(k); return "" })
			}
		})
		workers.Go(func() {
			for {
				k := do("Get", "", func() string { k, _ := q.Get(); return k })
				if k == "" {
					return
				}
				do("Done", k, func() string { q.Done(k); return "" })
			}
		})
	}
	producers.Wait()
	do("ShutDown", "", func() string { q.ShutDown(); return "" })
	workers.Wait()
	return calls
}

func TestHistoriesAreLinear(t *testing.T) {
	for seed := range uint64(500) {
		calls := concurrently(newQueue(Options[string]{}), seed)
		require.True(t, linear(calls), "seed %d: %v", seed, calls)
	}
}

// broken is a queue that makes the mistake it is told to.
type broken struct {
	mu   sync.Mutex
	s    serial
	bug  string
	gets int
}

func (b *broken) Add(k string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.bug == "queues a key twice" && !strings.Contains(b.s.active, k):
		b.s.ready += k
	case b.bug == "forgets what is added during a run" && strings.Contains(b.s.active, k):
	case b.bug == "hands out what is active" && strings.Contains(b.s.active, k):
		b.s.ready += k
	default:
		was := len(b.s.ready)
		b.s, _ = b.s.does(call{what: "Add", key: k})
		if n := len(b.s.ready); b.bug == "is a stack" && n > was {
			b.s.ready = b.s.ready[n-1:] + b.s.ready[:n-1]
		}
	}
}

func (b *broken) Get() (string, bool) {
	for {
		b.mu.Lock()
		for _, k := range []string{"", "a", "b", "c"} {
			next, ok := b.s.does(call{what: "Get", key: k})
			if !ok {
				continue
			}
			if b.gets++; k != "" && b.bug == "gives a key again now and then" && b.gets%3 == 0 {
				next.ready += k
			}
			b.s = next
			b.mu.Unlock()
			return k, k == ""
		}
		b.mu.Unlock()
	}
}

func (b *broken) Done(k string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s, _ = b.s.does(call{what: "Done", key: k})
}

func (b *broken) ShutDown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.down = true
}

// TestValidatorsNoticeBugs shows that linear and validate refuse what broken queues do, and accept a sound one.
func TestValidatorsNoticeBugs(t *testing.T) {
	// steps plays one sequence that has something for each mistake, and returns it as seen from outside.
	steps := func(q *broken) (calls []call, history []event) {
		now := int64(0)
		do := func(what, key string) {
			calls = append(calls, call{what, key, now, now + 1})
			now += 2
		}
		add := func(k string) { history = append(history, event{added, k}); q.Add(k); do("Add", k) }
		get := func() (k string) {
			k, _ = q.Get()
			if do("Get", k); k != "" {
				history = append(history, event{started, k})
			}
			return k
		}
		done := func(k string) { history = append(history, event{ended, k}); q.Done(k); do("Done", k) }

		add("c")
		add("c")
		done(get())
		add("a")
		add("b")
		one := get()
		add(one)
		done(get())
		if q.s.ready != "" {
			get()
		}
		done(one)
		q.ShutDown()
		do("ShutDown", "")
		for k := get(); k != ""; k = get() {
			done(k)
		}
		return calls, history
	}
	for bug, complaint := range map[string]string{
		"":                                   "",
		"queues a key twice":                 "I7",
		"forgets what is added during a run": "I8",
		"hands out what is active":           "I6",
		"gives a key again now and then":     "I",
		"is a stack":                         "-", // an order that validate does not look at
	} {
		calls, history := steps(&broken{bug: bug})
		require.Equal(t, bug == "", linear(calls), "%s: %v", bug, calls)
		err := validate(history, nil, true)
		if bug == "" || complaint == "-" {
			require.NoError(t, err, "%s: %v", bug, history)
		} else {
			require.ErrorContains(t, err, complaint, "%s: %v", bug, history)
		}
	}
	// What I9 alone notices is a key that nobody ever named.
	require.ErrorContains(t, validate([]event{{started, "a"}}, nil, false), "I9")
	require.NoError(t, validate([]event{{added, "a"}}, []string{"a"}, true))
	require.NoError(t, validate([]event{{added, "a"}, {dropped, "a"}}, nil, true))
}

// TestStorm lets many goroutines use everything at once, and validates the history.
func TestStorm(t *testing.T) {
	q := newQueue(Options[string]{Group: func(k string) string { return k[:1] }})
	var mu sync.Mutex
	var history []event
	record := func(what, key string) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, event{what, key})
	}
	var producers, workers sync.WaitGroup
	for i := range uint64(4) {
		producers.Go(func() {
			r := rand.New(rand.NewPCG(i, 0))
			for range 3000 {
				k := fmt.Sprint(string(rune('a'+r.IntN(3))), r.IntN(10))
				record(added, k)
				switch r.IntN(4) {
				case 0:
					q.AddWith(k, AddOptions{Priority: Priority(r.IntN(5) - 2)})
				case 1:
					q.AddRateLimited(k)
				default:
					q.Add(k)
				}
			}
		})
		workers.Go(func() {
			for n := 0; ; n++ {
				if n%3 == 0 {
					k, down := q.Get()
					if down {
						return
					}
					record(started, k)
					record(ended, k)
					q.Done(k)
					continue
				}
				c, err := q.Take(t.Context())
				if err != nil {
					return
				}
				record(started, c.Key())
				switch {
				case n%50 == 1:
					record(ended, c.Key())
					record(added, c.Key())
					c.Retry()
				default:
					record(ended, c.Key())
					c.Done()
				}
				c.Done() // a stray
			}
		})
	}
	producers.Wait()
	undone, err := q.Drain(t.Context())
	require.NoError(t, err)
	workers.Wait()
	require.NoError(t, validate(history, undone, false))
	require.NoError(t, q.check())
	require.Zero(t, q.Stats().Active)
	for _, i := range q.Snapshot() {
		require.NotEqual(t, Ready, i.State)
	}
}
