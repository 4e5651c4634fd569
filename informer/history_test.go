package informer

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// history is a handler that writes down what it is told and checks, as it comes, what every handler may rely on. Violations are collected,
// because a handler must not end the test's goroutine.
type history struct {
	inf *SharedIndexInformer[*corev1.Pod] // if set, invariant I2 is checked,
	// unless smaller: what is Deleted for a handler behind a Filter may well be in the store.
	smaller bool

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
	if err := h.rounds.check(e, rewinds); err != nil {
		h.violations = append(h.violations, err)
	}
	if h.inf != nil && !h.smaller && rewinds == 0 {
		if err := cacheBeforeNotice(h.inf, e); err != nil {
			h.violations = append(h.violations, err)
		}
	}
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
		return fmt.Errorf("%s %s at %s (uid %s): %s; before it: %+v", e.Type, e.Key, e.ResourceVersion, e.UID, what, before)
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
		return fmt.Errorf("%s %s at %s was told while the store held %s", e.Type, e.Key, e.ResourceVersion, held.ResourceVersion)
	}
	return nil
}

// mutations is what the detector has found, and what it finds now in everything that is held (B10).
func mutations[T any](inf *SharedIndexInformer[T]) error {
	if inf.becomeWriter() == nil { // or somebody is stuck, who has the token
		for key := range inf.detector.prints {
			inf.detector.check(key, inf.health)
		}
		inf.unlockWriter()
	}
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
		return Event[*corev1.Pod]{Type: typ, Key: KeyOf(of), UID: of.UID, ResourceVersion: of.ResourceVersion, Old: o, New: n}
	}
	add := event(Added, nil, at("u", 5))
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
		"deleted with a foreign state":  {add, {Type: Deleted, Key: add.Key, UID: "u", ResourceVersion: "6", Old: at("v", 6)}},
		"a type of its own":             {{Key: KeyOf(pod("a")), ResourceVersion: "7"}},
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
		add, event(Updated, at("u", 5), at("u", 7)), event(Deleted, at("u", 8), nil), event(Added, nil, at("v", 9)),
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
	inf.store.put(item[*corev1.Pod]{key: KeyOf(pod("a")), uid: "u", resourceVersion: "5", value: at("u", 5)}, 0)
	require.NoError(t, cacheBeforeNotice(inf, add))
	require.Error(t, cacheBeforeNotice(inf, event(Updated, at("u", 5), at("u", 6))))
	require.Error(t, cacheBeforeNotice(inf, event(Deleted, at("u", 6), nil)))
}
