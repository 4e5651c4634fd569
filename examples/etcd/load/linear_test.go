package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// database is a key in memory with a writer, readers and a watch. fault is a mistake that it makes, as etcd did once.
type database struct {
	*rand.Rand
	fault    string
	now      state
	before   state         // the state that the last write has replaced
	replaced time.Duration // when the answer to that write came
	revision int64
	delayed  []operation // writes without an answer that are yet to be applied
	watch    seen
	history  []operation
	made     int // mistakes
}

// The mistakes, and a published one of the kind, if there is one.
var faults = map[string]string{
	"an acknowledged write is lost":           "etcd-io/etcd#14370",
	"a read is stale":                         "etcd-io/etcd#14140",
	"a write is applied twice":                "",
	"a refused write is applied":              "",
	"a member has other revisions":            "etcd-io/etcd#13766",
	"the revision goes back":                  "etcd-io/etcd#17780",
	"the watch lacks an event":                "etcd-io/etcd#18089",
	"the watch has an event twice":            "etcd-io/etcd#17247",
	"the watch has an event too early":        "",
	"the watch has an event of no write":      "",
	"the watch has another value at an event": "",
}

// errs decides whether the database makes its mistake now.
func (d *database) errs(fault string) bool {
	if d.fault != fault || d.IntN(4) > 0 {
		return false
	}
	d.made++
	return true
}

// apply applies a write at a moment, and returns it with its outcome.
func (d *database) apply(o operation) operation {
	switch {
	case d.now.revision != o.expected:
		if d.errs("a refused write is applied") {
			d.revision++
			d.now = state{o.number, d.revision}
			d.tell(event{d.revision, o.number, "k"})
		}
		o.outcome = refused
		return o
	case d.errs("an acknowledged write is lost"):
		d.revision++
		o.outcome, o.revision = applied, d.revision
		return o
	}
	if d.now.revision > 2 && d.errs("the revision goes back") {
		d.revision -= 2
	}
	d.revision++
	d.before, d.now = d.now, state{o.number, d.revision}
	d.tell(event{d.revision, o.number, "k"})
	applies := o
	applies.outcome, applies.revision = applied, d.revision
	return applies
}

// tell tells the watch.
func (d *database) tell(e event) {
	w := &d.watch
	switch {
	case d.errs("the watch lacks an event"):
		return
	case d.errs("the watch has an event twice"):
		w.events = append(w.events, e)
	case d.errs("the watch has another value at an event"):
		e.number++
	case d.errs("the watch has an event of no write"):
		w.events = append(w.events, event{e.revision, 1 << 40, e.key})
		d.revision++
		d.now.revision, e.revision = d.revision, d.revision
	}
	w.events = append(w.events, e)
	if n := len(w.events); n > 1 && d.errs("the watch has an event too early") {
		w.events[n-1], w.events[n-2] = w.events[n-2], w.events[n-1]
	}
}

// live lets a writer and three readers make requests, and returns what they have seen.
func live(seed uint64, fault string, requests int) *database {
	d := &database{Rand: rand.New(rand.NewPCG(seed, 7)), fault: fault, revision: 1, watch: seen{since: 1}}
	type client struct {
		next     operation
		happens  time.Duration // when the database sees the request
		number   int64
		expected int64
		reads    bool // the writer has to read
	}
	clients := make([]*client, 4)
	begin := func(i int, at time.Duration) {
		c := clients[i]
		at += time.Duration(d.IntN(20))
		c.next = operation{client: i, call: at}
		if i == 0 && !c.reads {
			c.number++
			c.next.write, c.next.number, c.next.expected = true, c.number, c.expected
		}
		c.happens = at + 1 + time.Duration(d.IntN(20))
	}
	for i := range clients {
		clients[i] = &client{}
		begin(i, 0)
	}
	for range requests {
		c := slices.MinFunc(clients, func(a, b *client) int { return int(a.happens - b.happens) })
		if len(d.delayed) > 0 && d.IntN(3) == 0 {
			if late := d.apply(d.delayed[0]); late.outcome == applied && d.errs("a write is applied twice") {
				late.expected = d.now.revision
				d.apply(late)
			}
			d.delayed = d.delayed[1:]
		}
		o := c.next
		o.back = c.happens + 1 + time.Duration(d.IntN(20))
		switch {
		case !o.write:
			o.number, o.revision = d.now.number, d.now.revision
			if d.replaced > 0 && d.replaced < o.call && d.errs("a read is stale") {
				o.number, o.revision = d.before.number, d.before.revision
			} else if o.revision > 0 && d.errs("a member has other revisions") {
				o.revision++
			}
			if c.reads {
				c.reads, c.expected = false, o.revision
				c.number = max(c.number, o.number)
			}
		case d.IntN(8) == 0: // no answer
			o.outcome, c.reads = unknown, true
			if d.IntN(2) == 0 {
				d.delayed = append(d.delayed, o)
			}
		default:
			before := d.before
			if o = d.apply(o); o.outcome == applied {
				c.expected = o.revision
				if d.before != before {
					d.replaced = o.back
				}
			} else {
				c.reads = true
			}
		}
		d.history = append(d.history, o)
		begin(o.client, o.back)
	}
	return d
}

// judged returns what is wrong.
func (d *database) judged(t *testing.T) (wrong []string) {
	k := &key{name: "k", history: d.history}
	if text := judgeHistory(t.Context(), "k", d.history); text != "" {
		if i := strings.LastIndex(text, "; /"); i >= 0 {
			file, _, _ := strings.Cut(text[i+2:], " ")
			require.NoError(t, os.Remove(file), "the page is there")
		}
		wrong = append(wrong, text)
	}
	return append(wrong, judgeEvents(d.watch, []*key{k})...)
}

// TestCorrectHistories judges databases that make no mistakes, although answers get lost and writes come late.
func TestCorrectHistories(t *testing.T) {
	for seed := range uint64(300) {
		require.Empty(t, live(seed, "", 20+int(seed)).judged(t), "seed %d", seed)
	}
}

// TestPlantedFaults lets the database make mistakes. Each is found in all histories that have it.
func TestPlantedFaults(t *testing.T) {
	for fault := range faults {
		t.Run(fault, func(t *testing.T) {
			made, found := 0, 0
			for seed := range uint64(60) {
				d := live(seed, fault, 200)
				if d.made == 0 {
					continue
				}
				made++
				if len(d.judged(t)) > 0 {
					found++
				}
			}
			require.NotZero(t, made)
			require.Equal(t, made, found)
			t.Logf("%s: found in %d of %d histories", fault, found, made)
		})
	}
}

// possible is a naive judge: it tries all orders.
func possible(now state, left []operation) bool {
	if !slices.ContainsFunc(left, func(o operation) bool { return o.outcome != unknown }) {
		return true // a write without an answer may never be applied
	}
	for i, o := range left {
		if slices.ContainsFunc(left, func(p operation) bool { return p.outcome != unknown && p.back < o.call }) {
			continue // that one ended before
		}
		rest := slices.Delete(slices.Clone(left), i, i+1)
		if o.outcome != unknown {
			if ok, then := model.Step(now, o, nil); ok && possible(then.(state), rest) {
				return true
			}
			continue
		}
		if possible(now, rest) {
			return true
		}
		if now.revision != o.expected {
			continue
		}
		o.outcome = applied
		for o.revision = now.revision + 1; o.revision < now.revision+6; o.revision++ {
			if _, then := model.Step(now, o, nil); possible(then.(state), rest) {
				return true
			}
		}
	}
	return false
}

// TestAgainstTheNaiveJudge compares both judges on short histories, of which most are wrong.
func TestAgainstTheNaiveJudge(t *testing.T) {
	verdicts := map[bool]int{}
	all := []string{"", "an acknowledged write is lost", "a read is stale", "a write is applied twice",
		"a refused write is applied", "the revision goes back"}
	for seed := range uint64(4000) {
		d := live(seed, all[seed%uint64(len(all))], 4+int(seed%4))
		if r := rand.New(rand.NewPCG(seed, 8)); r.IntN(2) == 0 { // another answer
			o := &d.history[r.IntN(len(d.history))]
			if !o.write {
				o.number, o.revision = int64(r.IntN(3)), int64(r.IntN(4))
			}
		}
		right := possible(state{}, d.history)
		verdicts[right]++
		got := judgeHistory(t.Context(), "k", d.history)
		if i := strings.LastIndex(got, "; /"); i >= 0 {
			file, _, _ := strings.Cut(got[i+2:], " ")
			os.Remove(file)
		}
		require.Equal(t, right, got == "", "seed %d: %s: %v", seed, got, d.history)
	}
	require.Greater(t, verdicts[true], 500)
	require.Greater(t, verdicts[false], 500)
	t.Log(verdicts)
}

// TestNoTimeIsNoVerdict: what was not judged is wrong.
func TestNoTimeIsNoVerdict(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.Contains(t, judgeHistory(ctx, "k", live(1, "", 10).history), "no time")
}

// TestEvents has what a watch may lack, and what it may not.
func TestEvents(t *testing.T) {
	k := &key{name: "k"}
	for i := range int64(5) {
		k.record(operation{write: true, number: i + 1, revision: i + 11, expected: i + 10})
	}
	k.record(operation{write: true, outcome: unknown, number: 6, expected: 15})
	events := func(revisions ...int64) (all []event) {
		for _, r := range revisions {
			all = append(all, event{r, r - 10, "k"})
		}
		return all
	}
	for name, c := range map[string]struct {
		seen  seen
		wrong string
	}{
		"all":                     {seen{since: 10, events: events(11, 12, 13, 14, 15)}, ""},
		"without an answer":       {seen{since: 10, events: events(11, 12, 13, 14, 15, 16)}, ""},
		"before it began":         {seen{since: 13, events: events(14, 15)}, ""},
		"compacted":               {seen{since: 10, events: events(13, 14, 15), gaps: []gap{{11, 12}}}, ""},
		"never began":             {seen{}, "never began"},
		"the last one is missing": {seen{since: 10, events: events(11, 12, 13, 14)}, "revision 15, k=5, is missing"},
		"one is missing":          {seen{since: 10, events: events(11, 13, 14, 15)}, "revision 12, k=2, is missing"},
		"twice":                   {seen{since: 10, events: events(11, 12, 12, 13, 14, 15)}, "12 came after 12"},
		"an older one":            {seen{since: 10, events: events(11, 13, 12, 14, 15)}, "12 came after 13"},
		"from before":             {seen{since: 11, events: events(11, 12, 13, 14, 15)}, "11 came after 11"},
		"not written": {seen{since: 10, events: events(11, 12, 13, 14, 15, 17)},
			"k=7, which was not written"},
	} {
		wrong := judgeEvents(c.seen, []*key{k})
		if c.wrong == "" {
			require.Empty(t, wrong, name)
		} else {
			require.Contains(t, fmt.Sprint(wrong), c.wrong, name)
		}
	}
}
