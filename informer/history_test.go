package informer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// history is a handler that writes down what it is told and checks, as it comes, what every handler may rely on.
// Violations are collected, because a handler must not end the test's goroutine.
type history struct {
	inf *SharedIndexInformer[*corev1.Pod] // if set, invariant I2 is checked
	// rescoped: an object that was taken out of scope may come back as it was.
	rescoped bool

	mu         sync.Mutex
	events     []Event[*corev1.Pod]
	violations []error
	rounds     rounds
}

func (h *history) handle(e Event[*corev1.Pod]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	rewinds := 0
	if h.inf != nil {
		rewinds = h.inf.Health().Rewinds
	}
	if before := h.rounds[e.Key]; h.rescoped && e.Type == Added && !before.alive && before.uid == e.UID &&
		before.version == version(e.ResourceVersion) {
		delete(h.rounds, e.Key)
	}
	if err := h.rounds.check(e, rewinds); err != nil {
		h.violations = append(h.violations, err)
	}
	if returns := h.rescoped && e.Type == Deleted; h.inf != nil && !returns && rewinds == 0 {
		if err := cacheBeforeNotice(h.inf, e); err != nil {
			h.violations = append(h.violations, err)
		}
	}
}

// all returns the events so far.
func (h *history) all() []Event[*corev1.Pod] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// lines renders the events and forgets them.
func (h *history) lines() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := []string{}
	for _, e := range h.events {
		line := fmt.Sprintf("%s %s", e.Type, e.Key.Name)
		if e.Initial {
			line += " initial"
		}
		if e.FinalStateUnknown {
			line += " unknown"
		}
		if e.Resync {
			line += " resync"
		}
		lines = append(lines, line)
	}
	h.events = nil
	return lines
}

func (h *history) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.violations...)
}

// folded compares what the handler knows after all that it was told with the objects that exist (invariant I3).
func (h *history) folded(objects []*corev1.Pod) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	exists := map[Key]*corev1.Pod{}
	for _, o := range objects {
		exists[KeyOf(o)] = o
		if s := h.rounds[KeyOf(o)]; !s.alive || s.uid != o.UID || s.version != version(o.ResourceVersion) {
			return fmt.Errorf("%s exists at %s, the handler knows %+v", KeyOf(o), o.ResourceVersion, s)
		}
	}
	for key, s := range h.rounds {
		if s.alive && exists[key] == nil {
			return fmt.Errorf("%s does not exist, the handler knows %+v", key, s)
		}
	}
	return nil
}

// rounds is invariant I1: what each key's events may look like.
type rounds map[Key]round

type round struct {
	alive   bool
	uid     types.UID
	version int64
	falls   int // how often the version went back, which it may with each rewind (I5)
}

func (r rounds) check(e Event[*corev1.Pod], rewinds int) error {
	before, now := r[e.Key], round{alive: e.Type != Deleted, uid: e.UID, version: version(e.ResourceVersion)}
	now.falls = before.falls
	if now.version < before.version || now.version == before.version && e.Type != Deleted && !e.Resync {
		now.falls++
	}
	r[e.Key] = now
	violated := func(what string) error {
		return fmt.Errorf("%s %s at %s (uid %s): %s; before it: %+v", e.Type, e.Key, e.ResourceVersion, e.UID, what,
			before)
	}
	switch e.Type {
	case Added:
		switch {
		case before.alive:
			return violated("it was there already")
		case e.Resync:
			return violated("a resync of what is new")
		case e.Old != nil || e.New == nil:
			return violated("only New should be set")
		case now.falls > rewinds:
			return violated("the version went back")
		}
	case Updated:
		switch {
		case !before.alive:
			return violated("it was not there")
		case before.uid != e.UID:
			return violated("another object")
		case e.Old == nil || e.New == nil:
			return violated("Old and New should be set")
		case version(e.Old.ResourceVersion) != before.version:
			return violated("Old is not what was seen last, but " + e.Old.ResourceVersion)
		case e.Resync && e.New != e.Old:
			return violated("a resync with news")
		case now.falls > rewinds:
			return violated("the version went back")
		}
	case Deleted:
		switch {
		case !before.alive:
			return violated("it was not there")
		case before.uid != e.UID:
			return violated("another object")
		case e.Resync:
			return violated("a resync of nothing")
		case e.Old == nil || e.New != nil:
			return violated("only Old should be set")
		case now.falls > rewinds:
			return violated("the version went back")
		}
	default:
		return violated("no such type")
	}
	if e.Old != nil && (e.Old.UID != e.UID || KeyOf(e.Old) != e.Key) {
		return violated("Old is another object")
	}
	if e.New != nil && (e.New.UID != e.UID || e.New.ResourceVersion != e.ResourceVersion || KeyOf(e.New) != e.Key) {
		return violated("New is another object")
	}
	return nil
}

// cacheBeforeNotice is invariant I2: the store has the state that is told, or a later one.
func cacheBeforeNotice(inf *SharedIndexInformer[*corev1.Pod], e Event[*corev1.Pod]) error {
	held, ok := inf.Get(e.Key)
	switch {
	case e.Type == Deleted && ok && version(held.ResourceVersion) <= version(e.ResourceVersion):
		return fmt.Errorf("%s %s was told while the store held it", e.Type, e.Key)
	case e.Type != Deleted && ok && version(held.ResourceVersion) < version(e.ResourceVersion):
		return fmt.Errorf("%s %s at %s was told while the store held %s", e.Type, e.Key, e.ResourceVersion,
			held.ResourceVersion)
	}
	return nil
}

// changes is what has happened on the server, in order: from that version on, the object of that key is in a state of
// its own, or gone.
type changes []struct {
	version int64
	key     Key
	exists  bool
}

// reading is the whole store, as it was when the informer said that it had reached a version.
type reading struct {
	reached int64
	held    map[Key]int64
}

func read(inf *SharedIndexInformer[*corev1.Pod], resourceVersion string) reading {
	r := reading{version(resourceVersion), map[Key]int64{}}
	for o := range inf.All() {
		r.held[KeyOf(o)] = version(o.ResourceVersion)
	}
	return r
}

// consistent is invariant I4, and more: whenever the store says that it has reached a version, from the first list on,
// it holds what the server held at that version. The first is none from before Run began.
func (c changes) consistent(began int64, readings []reading) error {
	for _, r := range readings {
		server := map[Key]int64{}
		for _, change := range c {
			if change.version > r.reached {
				break
			}
			if delete(server, change.key); change.exists {
				server[change.key] = change.version
			}
		}
		switch {
		case r.reached < began:
			return fmt.Errorf("the store was at version %d, which is older than Run, which began at %d", r.reached,
				began)
		case !maps.Equal(server, r.held):
			return fmt.Errorf("at version %d the store held %v, the server %v", r.reached, r.held, server)
		}
	}
	return nil
}

// discreetly is invariant I22: what stands in an object is not told to those who read logs and errors.
func discreetly(canary string, log []line, h Health) error {
	for _, l := range log {
		if strings.Contains(l.text, canary) {
			return fmt.Errorf("a line %q of the log quotes an object", l.message)
		}
	}
	if strings.Contains(fmt.Sprint(h, h.LastError, h.LastBadObject), canary) {
		return errors.New("the health quotes an object")
	}
	return nil
}

// calmly is invariant I23: the log has a line for each change of the state, and no more of another kind than the limit
// of it lets through. That counts minutes from its first line, so there may be twice as many in a minute of ours.
func calmly(log []line) error {
	type kind struct{ message, handler string }
	state, times := "", map[kind][]time.Time{}
	for _, l := range log {
		if l.state != "" {
			if l.state == state {
				return fmt.Errorf("the state %s is told twice", state)
			}
			state = l.state
			continue
		}
		k := kind{l.message, l.handler}
		times[k] = append(times[k], l.at)
		if n := len(times[k]) - 1 - 2*linesPerMinute; n >= 0 && l.at.Sub(times[k][n]) < time.Minute {
			return fmt.Errorf("%d lines %q of %q within a minute", 2*linesPerMinute+1, l.message, l.handler)
		}
	}
	return nil
}

// mutations is what the detector has found, and what it finds now in everything that is held (B10).
func mutations[T any](inf *SharedIndexInformer[T]) error {
	_ = inf.write(func(w *writer[T]) { // or somebody is stuck, who has the token
		for key := range w.detector.prints {
			w.detector.check(key, inf.health)
		}
	})
	if h := inf.Health(); h.Mutated > 0 {
		return h.LastBadObject
	}
	return nil
}

func version(s string) int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return v
}

// A validator that cannot fail shows nothing.
func TestTheValidatorsFindSeededBugs(t *testing.T) {
	at := func(uid types.UID, version int) *corev1.Pod {
		p := pod("a")
		p.UID, p.ResourceVersion = uid, strconv.Itoa(version)
		return p
	}
	event := func(typ EventType, o, n *corev1.Pod) Event[*corev1.Pod] {
		of := n
		if of == nil {
			of = o
		}
		return Event[*corev1.Pod]{Type: typ, Key: KeyOf(of), UID: of.UID, ResourceVersion: of.ResourceVersion, Old: o,
			New: n}
	}
	resync := func(e Event[*corev1.Pod]) Event[*corev1.Pod] {
		e.Resync = true
		return e
	}
	add, six, other := event(Added, nil, at("u", 5)), at("u", 6), at("v", 5)
	for name, bad := range map[string][]Event[*corev1.Pod]{
		"added twice":                   {add, event(Added, nil, at("u", 6))},
		"added with an old":             {event(Added, at("u", 4), at("u", 5))},
		"updated before added":          {event(Updated, at("u", 4), at("u", 5))},
		"updated with an unseen old":    {add, event(Updated, at("u", 6), at("u", 7))},
		"updated across uids":           {add, event(Updated, at("u", 5), at("v", 6))},
		"updated backwards":             {add, event(Updated, at("u", 5), at("u", 4))},
		"updated without a change":      {add, event(Updated, at("u", 5), at("u", 5))},
		"deleted before added":          {event(Deleted, at("u", 5), nil)},
		"deleted twice":                 {add, event(Deleted, at("u", 6), nil), event(Deleted, at("u", 6), nil)},
		"deleted with another uid":      {add, event(Deleted, at("v", 6), nil)},
		"added again at an old version": {add, event(Deleted, at("u", 9), nil), event(Added, nil, at("v", 8))},
		"deleted with a foreign state": {add,
			{Type: Deleted, Key: add.Key, UID: "u", ResourceVersion: "6", Old: at("v", 6)}},
		"a resync that is Added": {resync(event(Added, nil, at("u", 5)))},
		"a resync of what is gone": {add, event(Deleted, at("u", 6), nil),
			resync(event(Updated, at("u", 6), at("u", 6)))},
		"a resync of what is unknown": {resync(event(Updated, at("u", 5), at("u", 5)))},
		"a resync with news":          {add, resync(event(Updated, at("u", 5), at("u", 6)))},
		"a resync of another state":   {add, resync(event(Updated, six, six))},
		"a resync of another object":  {add, resync(event(Updated, other, other))},
		"a resync that is Deleted":    {add, resync(event(Deleted, at("u", 6), nil))},
		"a type of its own":           {{Key: KeyOf(pod("a")), ResourceVersion: "7"}},
	} {
		h := history{rounds: rounds{}}
		for i, e := range bad {
			require.NoError(t, h.err(), "%s: event %d", name, i)
			h.handle(e)
		}
		require.Error(t, h.err(), name)
	}
	good := history{rounds: rounds{}}
	for _, e := range []Event[*corev1.Pod]{
		add, resync(event(Updated, add.New, add.New)), event(Updated, at("u", 5), at("u", 7)),
		event(Deleted, at("u", 8), nil), event(Added, nil, at("v", 9)),
	} {
		good.handle(e)
	}
	require.NoError(t, good.err())
	require.NoError(t, good.folded([]*corev1.Pod{at("v", 9)}))
	require.Error(t, good.folded(nil))
	require.Error(t, good.folded([]*corev1.Pod{at("v", 10)}))
	require.Error(t, good.folded([]*corev1.Pod{at("u", 9)}))

	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	inf.store.putLocked(0, item[*corev1.Pod]{key: KeyOf(pod("a")), uid: "u", resourceVersion: "5",
		value: at("u", 5)}, 0)
	require.NoError(t, cacheBeforeNotice(inf, add))
	require.Error(t, cacheBeforeNotice(inf, event(Updated, at("u", 5), at("u", 6))))
	require.Error(t, cacheBeforeNotice(inf, event(Deleted, at("u", 6), nil)))
}

// The same for those who look at the whole of a run.
func TestTheValidatorsOfARunFindSeededBugs(t *testing.T) {
	a, b := named("a"), named("b")
	server := changes{{3, a, true}, {4, b, true}, {6, a, true}, {7, b, false}}
	good := []reading{{4, map[Key]int64{a: 3, b: 4}}, {5, map[Key]int64{a: 3, b: 4}}, {6, map[Key]int64{a: 6, b: 4}},
		{9, map[Key]int64{a: 6}}}
	require.NoError(t, server.consistent(4, good))
	require.NoError(t, server.consistent(4, nil), "a server that was never reached")
	for name, bad := range map[string]reading{
		"an object is missing":       {6, map[Key]int64{a: 6}},
		"an object is there already": {3, map[Key]int64{a: 3, b: 4}},
		"an object is out of date":   {6, map[Key]int64{a: 3, b: 4}},
		"an object is ahead":         {5, map[Key]int64{a: 6, b: 4}},
		"a deletion was lost":        {8, map[Key]int64{a: 6, b: 4}},
	} {
		require.Error(t, server.consistent(3, append(good[:2:2], bad)), name)
	}
	require.Error(t, server.consistent(5, good), "a list from before Run began")

	require.NoError(t, discreetly("swordfish", []line{{text: "herring"}}, Health{LastError: errors.New("herring")}))
	require.Error(t, discreetly("swordfish", []line{{text: "herring"}, {text: "a swordfish"}}, Health{}))
	require.Error(t, discreetly("swordfish", nil, Health{LastError: errors.New("swordfish")}))
	require.Error(t, discreetly("swordfish", nil, Health{LastBadObject: errors.New("swordfish")}))

	now := time.Now()
	var log []line
	for i := range 60 {
		log = append(log, line{at: now.Add(time.Duration(i) * time.Minute), message: "bad", handler: "h"})
		log = append(log, line{at: now.Add(time.Duration(i) * time.Minute), state: string([]State{Live, Stale}[i%2])})
	}
	require.NoError(t, calmly(log))
	require.Error(t, calmly(append(log, log[len(log)-1])), "a state that has not changed")
	for range 2 * linesPerMinute {
		log = append(log, line{at: now.Add(time.Hour), message: "bad", handler: "h"})
	}
	require.NoError(t, calmly(log), "in two minutes of the limit")
	require.NoError(t, calmly(append(log[:len(log):len(log)],
		line{at: now.Add(time.Hour), message: "bad", handler: "another"})))
	require.Error(t, calmly(append(log, line{at: now.Add(time.Hour), message: "bad", handler: "h"})))
}
