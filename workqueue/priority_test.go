package workqueue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// job is a key that says where it belongs.
type job struct {
	priority Priority
	group    string
	n        int // how many were added to the priority and group before
}

func groupOf(j job) string { return j.group }

// fair says whether jobs were handed out as the doc of line promises, given that every priority and group with a job in
// handouts had more of them ready all the time (I11). flows is the number of groups that each priority has.
//
//	within a group, first in, first out
//	a group is passed over at most once by each other group of its priority
//	a priority is passed over at most maxOvertaken+P-2 times, where P is the number of priorities
func fair(handouts []job, maxOvertaken, priorities, flows int) error {
	next := map[job]int{}
	classes := map[Priority]int{} // hand-outs of others since the last one
	groups := map[job]int{}
	for _, j := range handouts {
		classes[j.priority] = 0
		groups[job{j.priority, j.group, 0}] = 0
	}
	for i, j := range handouts {
		at := job{j.priority, j.group, 0}
		if j.n != next[at] {
			return fmt.Errorf("hand-out %d is %v, before number %d", i, j, next[at])
		}
		next[at]++
		for p := range classes {
			if classes[p]++; classes[p] > maxOvertaken+priorities-2 && p != j.priority {
				return fmt.Errorf("hand-out %d passes priority %d over for the %dth time", i, p, classes[p])
			}
		}
		classes[j.priority] = 0
		for g := range groups {
			if g.priority != j.priority || g == at {
				continue
			}
			if groups[g]++; groups[g] > flows-1 {
				return fmt.Errorf("hand-out %d passes group %v over for the %dth time", i, g, groups[g])
			}
		}
		groups[at] = 0
	}
	return nil
}

// handOut keeps every priority and group supplied, and takes n jobs.
func handOut(o Options[job], priorities []Priority, groups []string, n int, seed uint64) (handouts []job) {
	o.Group = groupOf
	q := newQueue(o)
	added := map[job]int{}
	add := func(p Priority, g string) {
		at := job{p, g, 0}
		q.AddWith(job{p, g, added[at]}, AddOptions{Priority: p})
		added[at]++
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for _, i := range r.Perm(len(priorities) * len(groups)) {
		for range 2 {
			add(priorities[i%len(priorities)], groups[i/len(priorities)])
		}
	}
	for range n {
		k, _ := q.Get()
		q.Done(k)
		add(k.priority, k.group)
		handouts = append(handouts, k)
	}
	if err := q.check(); err != nil {
		panic(err)
	}
	return handouts
}

func TestFairness(t *testing.T) {
	for _, priorities := range [][]Priority{{0}, {0, 5}, {-128, 0, 127}, {4, 3, 2, 1, 0, -1, -2, -3}} {
		for _, groups := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d", "e"}} {
			for _, overtaken := range []int{1, 3, 10} {
				h := handOut(Options[job]{MaxOvertaken: overtaken}, priorities, groups, many(3000), 1)
				require.NoError(t, fair(h, overtaken, len(priorities), len(groups)), "%v %v %d", priorities, groups,
					overtaken)
			}
		}
	}
	// The validator notices what is not fair.
	h := handOut(Options[job]{MaxOvertaken: 100}, []Priority{0, 1}, []string{"a"}, 300, 1)
	require.ErrorContains(t, fair(h, 10, 2, 1), "passes priority 0 over")
	for i := range h {
		h[i].group = fmt.Sprint(i / 2 % 2)
		h[i].priority, h[i].n = 0, i%2+i/4*2
	}
	require.ErrorContains(t, fair(h, 10, 1, 2), "passes group")
	h[0], h[1] = h[1], h[0]
	require.ErrorContains(t, fair(h, 10, 1, 2), "before number")
}

// TestHighestGoesFirst: aging aside, the order is that of the priorities.
func TestHighestGoesFirst(t *testing.T) {
	q := newQueue(Options[int]{})
	for i := range 7 {
		q.AddWith(i, AddOptions{Priority: Priority(i*3%7 - 3)})
	}
	var got []Priority
	for range 7 {
		c := take(t, q)
		got = append(got, Priority(c.Key()*3%7-3))
	}
	require.Equal(t, []Priority{3, 2, 1, 0, -1, -2, -3}, got)
}

func TestPriorityOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		priority := func(key string) Priority {
			for _, i := range q.Snapshot() {
				if i.Key == key {
					return i.Priority
				}
			}
			t.Errorf("%s is not in the queue", key)
			return 0
		}
		q.Add("first") // of many plain keys
		q.AddWith("a", AddOptions{Priority: -5})
		q.AddWith("a", AddOptions{Priority: -7})
		require.Equal(t, Priority(-5), priority("a"))
		q.Add("a")
		require.Equal(t, Priority(0), priority("a"), "the highest that was asked for")
		q.AddWith("a", AddOptions{Priority: 9})
		c := take(t, q)
		require.Equal(t, "a", c.Key(), "and it overtakes")

		q.AddWith("a", AddOptions{Priority: 1})
		q.AddWith("a", AddOptions{Priority: 4})
		q.AddWith("a", AddOptions{Priority: 3})
		require.Equal(t, Priority(9), priority("a"), "of the run")
		c.Done()
		require.Equal(t, Priority(4), priority("a"), "of the next one")
		c = take(t, q)
		c.DoneAfter(time.Second)
		require.Equal(t, Priority(4), priority("a"), "what comes back has the priority that it had")
		q.AddWith("a", AddOptions{Priority: 6, After: time.Minute})
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Priority(4), priority("a"), "each delay has a priority of its own")
		take(t, q).Done()

		take(t, q).Done() // first
		require.Equal(t, Priority(6), q.Snapshot()[0].Priority, "the other delay")
	})
}

// TestRaisedKeyTakesNoAgeAlong: a priority that becomes empty is forgotten, and so is how often it was passed over.
func TestRaisedKeyTakesNoAgeAlong(t *testing.T) {
	q := newQueue(Options[int]{MaxOvertaken: 3})
	serve := func(n, from int) {
		for i := range n {
			q.Add(from + i)
			c := take(t, q)
			require.Equal(t, from+i, c.Key())
			c.Done()
		}
	}
	q.AddWith(-1, AddOptions{Priority: -1})
	serve(3, 0)
	q.Add(5)
	q.Add(-1) // which raises it, and leaves its priority empty
	q.AddWith(-2, AddOptions{Priority: -1})
	for _, key := range []int{5, -1} {
		require.Equal(t, key, take(t, q).Key())
	}
	serve(1, 20)
	q.Add(21)
	require.Equal(t, -2, take(t, q).Key(), "it was passed over three times")
}

// TestNoisyNeighbour: one tenant adds 100,000 keys, another one adds a key each second for a minute.
func TestNoisyNeighbour(t *testing.T) {
	const work = 10 * time.Millisecond
	backlog := many(100_000)
	worst := func(o Options[string]) (worst time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(o)
			added := map[string]time.Time{}
			for i := range backlog {
				q.Add(fmt.Sprint("noisy/", i))
			}
			served := 0
			next := time.Now()
			for i := 0; served < 60; {
				if i < 60 && !time.Now().Before(next) {
					k := fmt.Sprint("quiet/", i)
					q.Add(k)
					added[k] = next
					next = next.Add(time.Second)
					i++
				}
				k, _ := q.Get()
				if at, quiet := added[k]; quiet {
					worst = max(worst, time.Since(at))
					served++
				}
				time.Sleep(work)
				q.Done(k)
			}
			require.NoError(t, q.check())
		})
		return worst
	}
	without := worst(Options[string]{})
	with := worst(Options[string]{Group: func(k string) string { return k[:5] }})
	t.Logf("one worker, 10 ms a key, a backlog of %d keys: the other tenant waits %v at worst, %v with Group", backlog,
		without, with)
	require.Greater(t, without, time.Duration(backlog)*work-2*time.Minute)
	require.LessOrEqual(t, with, work, "one round")
}

// TestGroupsComeAndGo: what is known about a group leaves with its last key.
func TestGroupsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[int]{Group: func(i int) string { return fmt.Sprint(i / 3) }})
		for i := range 300 {
			q.AddWith(i, AddOptions{Priority: Priority(i % 5), After: time.Duration(i%2) * time.Hour})
		}
		require.Len(t, q.core.groups, 100)
		time.Sleep(time.Hour)
		synctest.Wait()
		for q.Len() > 0 {
			take(t, q).Done()
		}
		require.Empty(t, q.core.groups)
		require.Empty(t, q.core.ready.classes)
		require.Zero(t, q.core.entries.n)
	})
}

// TestPriorityOfADelay: what one alarm brings does not have the priority of the other.
func TestPriorityOfADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		q.AddAfter("a", time.Hour)
		q.AddWith("a", AddOptions{Priority: 9})
		take(t, q).DoneAfter(time.Second)
		require.Equal(t, Priority(9), q.Snapshot()[0].Priority)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Priority(9), q.Snapshot()[0].Priority, "of the run whose outcome asked for it")
		take(t, q).Done()
		require.Zero(t, q.Snapshot()[0].Priority, "delayed")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, q.Snapshot()[0].Priority, "ready")
		take(t, q).Done()

		for i, p := range []Priority{3, 5, 1} {
			q.AddWith("a", AddOptions{Priority: p, After: time.Duration(3-i) * time.Hour})
		}
		require.Equal(t, Priority(5), q.Snapshot()[0].Priority,
			"the highest that was asked for, whoever asked for the time")
	})
}
