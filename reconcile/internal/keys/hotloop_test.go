package keys

import (
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

var parent = Key{Namespace: "default", Name: "parent"}

// defaultHistory is how many runs a controller remembers.
const defaultHistory = 10_000

func newTable(allowHotLoops bool, runs int) *Table {
	return New(allowHotLoops, runs, func(*url.URL) string { return "" })
}

func requireBegins(t *testing.T, table *Table, r *Run) {
	t.Helper()
	_, held := table.Begin(r)
	require.False(t, held)
}

// TestTheTrailForgetsKeysThatNobodyNames has a million objects that are written once each, and never named again.
func TestTheTrailForgetsKeysThatNobodyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTable(false, defaultHistory)
		for i := range 50_000 {
			r := &Run{Turn: &Turn{Began: time.Now()}, Key: Key{Name: fmt.Sprint(i)}}
			tr.Named(r.Key, "For x", r.Key, "1", Sighting{WriteID: WriteID{"u", "1"}})
			tr.Begin(r)
			r.Wrote("u", "2", false)
			tr.End(r, Outcome{Result: "success"}, time.Now())
			time.Sleep(time.Second)
		}
		require.Less(t, len(tr.keys), 3000, "about ten minutes' worth, twice")
	})
}

// TestTheThresholdsOfHotLoops has each of them on both sides.
func TestTheThresholdsOfHotLoops(t *testing.T) {
	const uid = types.UID("uid")
	change := []diff.Change{{Path: 1, Now: 2, Old: 1}}
	fresh := func(st repeatStats, r contestedObject) (*Table, *entry) {
		h, e := newTable(false, defaultHistory), &entry{stats: &st}
		h.keys[parent] = e
		h.contested.byUID = map[uint64]*contestedObject{h.hashUID(WriteID{UID: uid}): &r}
		return h, e
	}
	t.Run("rest", func(t *testing.T) {
		for level, want := range map[int]time.Duration{0: 0, HotAfter: 0, HotAfter + 1: time.Second,
			HotAfter + 2: 2 * time.Second, HotAfter + 9: 256 * time.Second, HotAfter + 10: hotCap, 1000: hotCap} {
			require.Equal(t, want, restAfter(level), level)
			require.Equal(t, want, (&repeatStats{repeats: level, changed: true}).rest(), level)
			require.Equal(t, min(want, HotFloor), (&repeatStats{repeats: level}).rest(), level)
			require.Equal(t, want > 0, (&repeatStats{repeats: level}).hot(), level)
		}
	})
	t.Run("comparing", func(t *testing.T) {
		own, other := WriteID{uid, "2"}, WriteID{uid, "3"}
		for _, test := range []struct {
			repeats, rounds int
			v               Sighting
			want            bool
		}{
			{repeats: compareAfter - 1, v: Sighting{WriteID: own, Updated: true}},
			{repeats: compareAfter, v: Sighting{WriteID: own, Updated: true}, want: true},
			{repeats: compareAfter, v: Sighting{WriteID: own}},
			{repeats: compareAfter, v: Sighting{WriteID: other, Updated: true}},
			{rounds: compareAfter - 1, v: Sighting{WriteID: other, Updated: true}},
			{rounds: compareAfter, v: Sighting{WriteID: other, Updated: true}, want: true},
			{rounds: compareAfter, v: Sighting{WriteID: own, Updated: true}, want: true},
		} {
			h, e := fresh(repeatStats{repeats: test.repeats, last: pastRun{writes: map[WriteID]bool{own: false}}},
				contestedObject{rounds: test.rounds})
			require.Equal(t, test.want, h.observeLocked(e, test.v), "%+v", test)
		}
	})
	t.Run("undoing", func(t *testing.T) {
		for _, test := range []struct {
			name    string
			reverts int
			held    setField
			found   comparison
			before  bool // the comparison
			want    bool
		}{
			{"not yet a hot loop", HotAfter, setField{path: 1, value: 1}, comparison{changes: change}, true, true},
			{"a hot loop, and one more undoing", HotAfter + 1, setField{path: 1, value: 1},
				comparison{changes: change}, false, false},
			{"a hot loop, and another change", HotAfter + 1, setField{path: 2, value: 1},
				comparison{changes: change}, false, true},
			{"a hot loop, and states that cannot be compared", HotAfter + 1, setField{path: 1, value: 1},
				comparison{failed: true}, false, true},
		} {
			h, e := fresh(repeatStats{reverts: test.reverts},
				contestedObject{rounds: compareAfter, fields: []setField{test.held}})
			v := Sighting{WriteID: WriteID{uid, "3"}, Updated: true}
			require.True(t, h.observeLocked(e, v), test.name)
			require.Equal(t, test.before, e.othersActed, test.name)
			v.comparison = &test.found
			h.comparedOtherLocked(e, v)
			require.Equal(t, test.want, e.othersActed, test.name)
		}
	})
	t.Run("not undoing", func(t *testing.T) {
		for name, v := range map[string]Sighting{
			"another object is changed": {WriteID: WriteID{"of the spec", "3"}, Updated: true},
			"it is deleted":             {WriteID: WriteID{uid, ""}},
		} {
			h, e := fresh(repeatStats{reverts: HotAfter + 1}, contestedObject{rounds: compareAfter})
			require.False(t, h.observeLocked(e, v), name)
			require.True(t, e.othersActed, name)
			require.True(t, h.observeLocked(e, Sighting{WriteID: WriteID{uid, "4"}, Updated: true}))
			require.True(t, e.othersActed, "%s, and then a write is undone", name)
		}
	})
	t.Run("states that cannot be compared", func(t *testing.T) {
		for failed, want := range map[bool]string{true: "", false: "an object: "} {
			h, e := fresh(repeatStats{repeats: compareAfter}, contestedObject{})
			e.stats.written = writtenObjects{h.hashUID(WriteID{UID: uid}): {}}
			h.comparedOwnLocked(e, Sighting{WriteID: WriteID{uid, "3"},
				comparison: &comparison{object: "an object", failed: failed}})
			require.Equal(t, want, e.stats.changingFields)
		}
	})
	t.Run("progress is not what changes in a loop", func(t *testing.T) {
		h, e := fresh(repeatStats{repeats: compareAfter}, contestedObject{})
		e.stats.written = writtenObjects{h.hashUID(WriteID{UID: uid}): {}}
		sees := func(object string, path uint64) {
			h.comparedOwnLocked(e, Sighting{WriteID: WriteID{uid, "3"},
				comparison: &comparison{object: object, changes: []diff.Change{{Path: path}}}})
		}
		sees("first", 1)
		sees("a field that has not changed before", 2)
		require.Equal(t, "first: ", e.stats.changingFields)
	})
	t.Run("logging", func(t *testing.T) {
		for _, test := range []struct {
			level int
			rest  time.Duration
			want  bool
		}{{HotAfter, HotFloor, false}, {HotAfter + 1, 0, false}, {HotAfter + 1, 1, true}} {
			h, e := fresh(repeatStats{repeats: test.level}, contestedObject{})
			require.Equal(t, test.want, h.dueLineLocked(e, test.rest) != nil, "%+v", test)
			require.Nil(t, h.dueLineLocked(e, test.rest), "%+v: it is logged once", test)
		}
	})
	t.Run("a key without stats", func(t *testing.T) {
		h, e := fresh(repeatStats{}, contestedObject{rounds: compareAfter})
		contested := h.contested.find(&h.loops, WriteID{UID: uid})
		compare := func(v Sighting, from, to int32) {
			e.stats = nil
			v.Updated = true
			require.True(t, h.observeLocked(e, v))
			pod := func(n int32) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{Priority: &n}} }
			Compare(h, parent, "Owns pods", v, informer.Event[*corev1.Pod]{Old: pod(from), New: pod(to)})
		}
		e.run = &Run{Key: parent, Turn: &Turn{}}
		e.run.Wrote(uid, "2", false)
		compare(Sighting{WriteID: WriteID{uid, "2"}}, 1, 2)
		require.Len(t, contested.fields, 1, "the field that its run has set")
		e.run = nil
		compare(Sighting{WriteID: WriteID{uid, "3"}}, 2, 1)
		require.True(t, contested.fields[0].undone, "another writer has undone that")
		e.run = &Run{Key: parent, Turn: &Turn{}}
		e.run.Wrote(uid, "4", false)
		compare(Sighting{WriteID: WriteID{uid, "4"}}, 1, 2)
		require.Equal(t, 1, e.stats.reverts, "its run has set the field again")
	})
	t.Run("objects beyond those that are remembered", func(t *testing.T) {
		for created, want := range map[bool]int{true: compareAfter, false: HotAfter - 1} {
			st := repeatStats{repeats: HotAfter - 1, selfCaused: true, changed: true, written: writtenObjects{}}
			h, e := fresh(st, contestedObject{})
			st = *e.stats
			for id := range uint64(maxWrittenObjects) {
				st.written[id] = &writtenObject{updates: 1}
			}
			e.stats.last.writes = map[WriteID]bool{{uid, "2"}: created}
			h.countLastRunLocked(e)
			require.NotContains(t, e.stats.written, h.hashUID(WriteID{UID: uid}))
			require.Equal(t, want, e.stats.repeats, "to create one is progress: %t", created)
		}
	})
	t.Run("forgetting", func(t *testing.T) {
		now := time.Now()
		for name, test := range map[string]struct {
			entry entry
			kept  bool
		}{
			"just old enough to stay": {entry{stats: &repeatStats{endedAt: now.Add(-forgetAfter)}}, true},
			"too old":                 {entry{stats: &repeatStats{endedAt: now.Add(-forgetAfter - 1)}}, false},
			"it waits":                {entry{stats: &repeatStats{}, causes: Causes{n: 1}}, true},
			"it runs":                 {entry{stats: &repeatStats{}, run: &Run{}}, true},
			"it has never run":        {entry{}, true},
		} {
			h := newTable(false, defaultHistory)
			h.keys[parent] = &test.entry
			h.sweepLocked(now)
			require.Equal(t, test.kept, len(h.keys) == 1, name)
			require.Equal(t, len(h.keys), h.sweptTo, name)
		}
	})
}

// TestWhatCannotBeJudgedIsSomebodyElses lets more changes name a key in a run than its end can judge, all of them its
// own but for the last one, which must bring the key up.
func TestWhatCannotBeJudgedIsSomebodyElses(t *testing.T) {
	for name, stranger := range map[string]bool{"all are its own": false, "one is not": true} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTable(false, defaultHistory)
			r := &Run{Turn: &Turn{Began: time.Now()}, Key: parent}
			tr.Named(parent, "For x", parent, "", Sighting{})
			requireBegins(t, tr, r)
			write := func(i int) WriteID { return WriteID{"u", fmt.Sprint(i)} }
			for i := range maxUndecided {
				tr.Named(parent, "For x", parent, "", Sighting{WriteID: write(i)})
			}
			if stranger {
				tr.Named(parent, "For x", parent, "", Sighting{WriteID: WriteID{"stranger", "1"}})
			}
			for i := range maxUndecided {
				r.Wrote("u", write(i).ResourceVersion, false)
			}
			r.Returned()
			tr.End(r, Outcome{Result: "success"}, time.Now())
			require.Equal(t, stranger, tr.keys[parent].othersActed, name)
		})
	}
}

// TestWhoHasCausedAChangeIsDecidedWhenTheRunEnds lets a change name the key in a run, before the answer to the write
// that has caused it, or after it.
func TestWhoHasCausedAChangeIsDecidedWhenTheRunEnds(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"its own, answered later":      {after: "1"},
		"its own, answered before":     {before: "1"},
		"somebody else's":              {},
		"somebody else's, and its own": {before: "2", after: "3"},
	} {
		tr := newTable(false, defaultHistory)
		r := &Run{Turn: &Turn{Began: time.Now()}, Key: parent}
		requireBegins(t, tr, r)
		r.Wrote("u", test.before, false)
		tr.Named(parent, "For x", parent, "1", Sighting{WriteID: WriteID{"u", "1"}, Created: true})
		r.Wrote("u", test.after, false)
		r.Returned()
		tr.End(r, Outcome{Result: "success"}, time.Now())
		e := tr.keys[parent]
		own := test.before == "1" || test.after == "1"
		require.Equal(t, !own, e.othersActed, name)
		require.Empty(t, e.stats.undecided, name)
		require.Equal(t, own, e.stats.last.writes[WriteID{"u", "1"}], "%s: its run has created the object", name)
	}
}

// TestChangesThatWaitMakeRoom lets as many changes of its own name the key as can wait for its run's end, and after the
// answers to these writes one more.
func TestChangesThatWaitMakeRoom(t *testing.T) {
	tr := newTable(false, defaultHistory)
	r := &Run{Turn: &Turn{Began: time.Now()}, Key: parent}
	requireBegins(t, tr, r)
	for i := range maxUndecided + 1 {
		if i == maxUndecided {
			for answered := range maxUndecided {
				r.Wrote("u", fmt.Sprint(answered), false)
			}
		}
		tr.Named(parent, "For x", parent, "", Sighting{WriteID: WriteID{"u", fmt.Sprint(i)}})
	}
	r.Wrote("u", fmt.Sprint(maxUndecided), false)
	r.Returned()
	tr.End(r, Outcome{Result: "success"}, time.Now())
	require.False(t, tr.keys[parent].othersActed)
}

// TestAFailureIsNoHotLoop has runs that fail, and say that they are to be tried again at once.
func TestAFailureIsNoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for o, want := range map[Outcome]int{
			{Result: "requeue_after", After: soonDelay - 1}:                       1,
			{Result: "requeue_after", After: soonDelay}:                           0,
			{Result: "retry_after", After: soonDelay - 1, Error: &status.Error{}}: 0,
		} {
			tr := newTable(false, defaultHistory)
			for range 2 * HotAfter {
				r := &Run{Turn: &Turn{Began: time.Now()}, Key: parent}
				if left, held := tr.Begin(r); held {
					time.Sleep(left)
					continue
				}
				r.Returned()
				tr.End(r, o, time.Now())
			}
			require.Equal(t, want, tr.Counts().HotLoops, "%+v", o)
		}
	})
}

// TestWhatIsKnownOfCirclesHasALimit lets one key write a new object in each of many runs, and somebody else touch it.
func TestWhatIsKnownOfCirclesHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTable(false, defaultHistory)
		for i := range 5 * maxContested {
			r := &Run{Turn: &Turn{Began: time.Now()}, Key: parent}
			tr.Named(parent, "For x", parent, "", Sighting{WriteID: WriteID{types.UID(fmt.Sprint(i - 1)), "1"}})
			requireBegins(t, tr, r)
			r.Wrote(types.UID(fmt.Sprint(i)), "1", false)
			r.Returned()
			tr.End(r, Outcome{Result: "requeue_after", After: 1}, time.Now())
		}
		require.Len(t, tr.keys, 1)
		require.LessOrEqual(t, len(tr.keys[parent].stats.written), maxWrittenObjects)
		require.Len(t, tr.contested.byUID, maxContested)
		require.Len(t, tr.contested.ring, maxContested)
	})
	tr, r := &writtenObject{}, &contestedObject{}
	for i := range 100 {
		changes := []diff.Change{{Path: uint64(i), Now: 1}}
		tr.addChanges(changes)
		r.ownChanges(changes)
	}
	require.Len(t, tr.fields, maxFieldsKept)
	require.Len(t, r.fields, maxFieldsKept)
}
