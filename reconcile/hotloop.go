package reconcile

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// A key goes in circles if what it does recurs, and its own doing is all that brings it up. The rule: a run counts if
// nobody but the run before it has brought it about, by its writes or by a RequeueAfter of nearly nothing, and if it
// repeats what such runs have done before: it deletes what they have made, or it writes an object again that they have
// written, and in none of the objects that it writes there is progress. Progress is an object that is made or deleted,
// a field that has not changed before, and a number that goes on falling towards zero, or rising, the latter for a
// thousand times. A write that changes no resourceVersion is none. A run also counts, whoever has brought it about, if
// it gives fields the very values again that it had given them before and that somebody else has undone within a
// minute.
//
// A run or two of that kind is how a Reconcile converges; so hotAfter of them are free. From then on the key rests
// after each run: for hotFloor, and as long as it writes for twice as long each time, up to hotCap. What anybody else
// does, such as a change of the spec, brings the key up at once all the same, unless it is nothing but the undoing. The
// circle ends with a run that writes nothing and does not ask for the next at once, or with progress; that of two
// writers when none has undone the other for a minute.
//
// Own writes are recognised by what TrackWrites, Wrote and Deleted report, and their changes seen by the sources that
// name the key because of them. Where no source shows a write, any further write of the object is a repetition.
const (
	hotAfter = 20
	hotFloor = time.Second
	hotCap   = 5 * time.Minute
)

// loop is how far a key is in such a circle. A key that has not been reconciled for a while has a zero one, or none.
type loop struct {
	run *run // that is going on; nil in between. While there is one nobody forgets the step
	// unjudged is what named the key while the run went on: the event may be faster than the answer, so that only the
	// end of the run tells whose doing it was.
	unjudged []sight
	// of the last run, while nothing else has come to pass: true for objects that are seen to be new
	writes map[echo]bool
	// those of the run before it: an event may come when the cache has had its object for a moment
	before  map[echo]bool
	folded  bool      // they are in seen
	acts    []act     // the writes of the last run by name
	bySelf  bool      // the run, or the last, was brought about by nobody but the run before it
	wrote   bool      // the last run has changed something
	soon    bool      // the last run has asked for another at once
	judged  bool      // the last run has been counted
	runs    int       // that have been judged
	turns   int       // runs that count, less those with progress
	undone  int       // runs that deleted what the key had made
	fights  int       // runs that brought back what somebody else had undone
	seen    traces    // what such runs have written
	changes string    // an object, and its fields that change in the circle; empty while nobody knows
	hot     bool      // the key is slowed down
	told    bool      // and the log says so
	rests   time.Time // until when
	ended   time.Time // when the last run did
}

// sight is a change of an object that names the key.
type sight struct {
	echo
	made    bool     // it is new
	updated bool     // it was there before, so that there are two states to compare
	asked   bool     // explain is about to compare them
	found   *finding // nil until explain has compared them
}

// finding is what explain has to say of a change.
type finding struct {
	object  string   // by name
	changes []change // where its two states differ
	failed  bool     // nobody can tell
}

// owner says whose doing a change is.
type owner uint8

const (
	foreign owner = iota
	own
	unclear // until the run ends
)

// maxUnjudged bounds what a run has to judge at its end; with more, somebody else is taken to be at work.
const maxUnjudged = 64

// whose says who has brought about a change.
func (l *loop) whose(v echo) owner {
	if l == nil {
		return foreign
	}
	_, isLast := l.writes[v]
	_, isOlder := l.before[v]
	switch {
	case isLast, isOlder, l.run != nil && l.run.has(v):
		return own
	case l.run == nil:
		return foreign
	default:
		return unclear
	}
}

// isNew takes note of an own write whose object is seen to be new.
func (l *loop) isNew(v echo) {
	for _, writes := range []map[echo]bool{l.writes, l.before} {
		if _, ok := writes[v]; ok {
			writes[v] = true
			return
		}
	}
	l.run.isNew(v)
}

// level is how far the key has gone.
func (l *loop) level() int { return max(l.turns, l.undone, l.fights) }

// restAfter is how long a key of that level rests after a run that has written.
func restAfter(level int) time.Duration {
	if level <= hotAfter {
		return 0
	}
	return lifecycle.Doubled(hotFloor, level-hotAfter-1, hotCap)
}

// rest is how long the key rests after its last run.
func (l *loop) rest() time.Duration {
	if l.wrote {
		return restAfter(l.level())
	}
	return min(restAfter(l.level()), hotFloor)
}

// id is what is kept of a UID.
func (t *trail) id(v echo) uint64 { return maphash.String(t.seed, string(v.uid)) }

// sees takes note of a change that names the key, and says whether explain shall find out what has changed. mu is held.
func (t *trail) sees(s *step, v sight) (explain bool) {
	if t.off {
		return false
	}
	l := s.loop
	whose := l.whose(v.echo)
	r := t.rivals.find(t, v.echo)
	explain = v.updated && (whose != foreign && l.turns >= wary || r != nil && r.rounds >= wary)
	switch whose {
	case own:
		if v.made {
			l.isNew(v.echo)
		}
	case unclear:
		if len(l.unjudged) == maxUnjudged {
			t.clear(s)
		}
		if len(l.unjudged) < maxUnjudged {
			v.asked = explain
			l.unjudged = append(l.unjudged, v)
			return explain
		}
		s.foreign = true
		return false
	case foreign:
		if r != nil {
			r.touched = true
		}
		// If the key is slowed down because somebody else undoes what it does, explain tells whether this is more of
		// the same.
		s.foreign = s.foreign || !explain || l == nil || l.fights <= hotAfter
	}
	return explain
}

// explain finds out what has changed in an object that a key may go in circles about.
func explain[T any](t *trail, key Key, source string, v sight, e informer.Event[T]) {
	f := &finding{object: fmt.Sprintf("%s %s", source, e.Key)}
	err := lifecycle.Apart(func() { f.changes = changesOf(t.seed, e.Old, e.New) }) // the types are the user's
	v.found, f.failed = f, err != nil
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.keys[key]
	if !ok || s.loop == nil {
		return // forgotten in between
	}
	switch s.loop.whose(v.echo) {
	case own:
		t.learn(s, v)
	case foreign:
		t.hear(s, v)
	case unclear:
		for i, u := range s.loop.unjudged {
			if u.echo == v.echo {
				s.loop.unjudged[i] = v
			}
		}
	}
}

// learn is told what an own write has changed. mu is held.
func (t *trail) learn(s *step, v sight) {
	l, id := s.loop, t.id(v.echo)
	if v.found.failed {
		return // the write is a repetition as long as nobody knows better
	}
	text := fmt.Sprintf("%s: %s", v.found.object, strings.Join(names(v.found.changes), ", "))
	if tr := l.seen[id]; tr != nil && l.turns >= wary {
		if tr.look(v.found.changes); !tr.moved {
			l.changes = text
		}
	}
	if r := t.rivals.of[id]; r != nil && r.rounds >= wary && r.hold(v.found.changes) {
		r.fights++
		l.fights, l.changes = max(l.fights, r.fights), text
		t.heat(s, l.ended)
	}
}

// hear is told what somebody else has changed. mu is held.
func (t *trail) hear(s *step, v sight) {
	r := t.rivals.of[t.id(v.echo)]
	more := r != nil && !v.found.failed && r.undo(v.found.changes) // of the same
	s.foreign = s.foreign || !more || s.loop.fights <= hotAfter
}

// judge counts the last run, once, when the sources have shown what it wrote. mu is held.
func (t *trail) judge(s *step) {
	l := s.loop
	if l.judged || !l.bySelf || !l.wrote && !l.soon {
		return
	}
	l.judged = true
	l.runs++
	if l.seen == nil {
		l.seen = make(traces)
	}
	for v, made := range l.before {
		if l.folded {
			break
		}
		if tr, _ := l.seen.of(t.id(v), made, l.runs); tr != nil && v.resourceVersion != "" {
			tr.version = maphash.String(t.seed, v.resourceVersion)
		}
	}
	again, undone, progress := !l.wrote, false, false
	for v, made := range l.writes {
		id := t.id(v)
		if v.resourceVersion == "" { // deleted
			if tr := l.seen[id]; tr != nil && tr.made {
				undone = true
			} else {
				progress = true
			}
			delete(l.seen, id)
			continue
		}
		if _, gone := l.writes[echo{uid: v.uid}]; gone {
			continue // the deletion's answer has a version, too
		}
		tr, isNew := l.seen.of(id, made, l.runs)
		if tr == nil {
			progress = progress || made
			continue
		}
		version := maphash.String(t.seed, v.resourceVersion)
		switch {
		case tr.version == version:
			continue // nothing was changed
		case isNew:
			progress = progress || made
		case tr.made && tr.updates == 0:
			tr.updates++
		default:
			tr.updates++
			again = again || !tr.moved
			progress = progress || tr.moved
		}
		tr.version, tr.run, tr.moved = version, l.runs, false
	}
	switch {
	case undone:
		l.undone++
	case progress:
		l.turns = min(l.turns, wary)
	case again:
		l.turns++
	}
	t.heat(s, l.ended)
}

// heat slows the key down, or no longer. now is when its last run has ended. mu is held.
func (t *trail) heat(s *step, now time.Time) {
	l := s.loop
	was := l.hot
	l.hot = l.level() > hotAfter
	switch {
	case l.hot:
		if rests := now.Add(l.rest()); rests.After(l.rests) {
			l.rests = rests
		}
		if !was {
			t.hot[s] = struct{}{}
			t.loops++
		}
	case was:
		delete(t.hot, s)
	}
}

// makePeace forgets a quarrel that nobody has gone on with for a while. mu is held.
func (t *trail) makePeace(s *step, now time.Time) {
	if l := s.loop; l.fights > 0 && now.Sub(l.ended) > keepsPace {
		l.fights = 0
		t.heat(s, l.ended)
	}
}

// begin is the start of a run, which is given the causes; unless the key has to rest because it goes in circles: then
// it says for how long, and nothing begins.
func (t *trail) begin(r *run) (rest time.Duration) {
	now := r.worker.began
	t.mu.Lock()
	s := t.stepOf(r.key, now)
	if s.loop == nil {
		s.loop = &loop{}
	}
	l := s.loop
	t.makePeace(s, now)
	t.judge(s)
	if l.hot && !s.foreign {
		rest = max(l.rests.Sub(now), 0)
	}
	tell := t.report(s, rest)
	if rest == 0 {
		l.bySelf = !s.foreign && (s.causes.n > 0 || l.soon)
		r.worker.step, r.worker.causes = s, s.causes.take()
		s.foreign, l.run = false, r
		l.before, l.writes, l.folded = l.writes, nil, l.judged
	}
	t.mu.Unlock()
	if tell != nil {
		tell(r.log())
	}
	return rest
}

// end is the end of a run.
func (t *trail) end(r *run, o outcome, now time.Time) {
	t.mu.Lock()
	s := r.worker.step
	l := s.loop
	l.run, l.ended, l.judged = nil, now, false
	l.writes, l.acts = r.written()
	l.wrote, l.soon = t.changed(l, now), !t.off && o.kind == doneAfter && o.after < hotSoon
	if len(l.unjudged) > 0 {
		t.clear(s)
	}
	quiet := !l.wrote && !l.soon
	if quiet {
		l.turns, l.undone, l.seen, l.before, l.acts = 0, 0, nil, nil, nil
	}
	t.heat(s, now)
	tell := t.report(s, 0)
	if s.causes.n == 0 && quiet && !l.hot {
		t.drop(r.key, s)
	}
	t.mu.Unlock()
	if tell != nil {
		tell(r.log())
	}
}

// clear judges what was unclear, as far as that is possible by now: at the end of the run all of it. mu is held.
func (t *trail) clear(s *step) {
	l := s.loop
	l.unjudged = slices.DeleteFunc(l.unjudged, func(v sight) bool {
		switch l.whose(v.echo) {
		case own:
			if v.made {
				l.isNew(v.echo)
			}
			if v.found != nil {
				t.learn(s, v)
			}
		case foreign:
			if r := t.rivals.find(t, v.echo); r != nil {
				r.touched = true
			}
			switch {
			case v.found != nil:
				t.hear(s, v)
			case !v.asked: // otherwise explain says so, soon
				s.foreign = true
			}
		case unclear:
			return false
		}
		return true
	})
}

// changed reports whether the last run has changed anything, and takes note of it for the rivals. mu is held.
func (t *trail) changed(l *loop, now time.Time) (wrote bool) {
	if t.off || len(l.writes) == 0 {
		return false
	}
	for v := range l.writes {
		if _, same := l.before[v]; same && v.resourceVersion != "" {
			continue
		}
		id := t.id(v)
		if tr := l.seen[id]; tr != nil && tr.version == maphash.String(t.seed, v.resourceVersion) {
			continue
		}
		wrote = true
		t.rivals.wrote(id, now)
	}
	return wrote
}

// report returns the line of the log that is due, or nil. mu is held.
func (t *trail) report(s *step, rest time.Duration) func(klog.Logger) {
	l := s.loop
	switch {
	case l.hot && !l.told && rest > 0:
		l.told = true
		message := "This key goes in circles: nobody but its own runs brings it up, and it is slowed down"
		if l.fights > max(l.turns, l.undone) {
			message = "This key goes in circles: somebody else undoes what its runs write, each time, and it is " +
				"slowed down"
		}
		line := []any{"runs", hotAfter + 1, "writes", fmt.Sprint(l.acts), "changes", l.changes, "causes",
			s.causes.String(),
			"rests", rest, "atMost", hotCap}
		return func(log klog.Logger) { log.Error(nil, message, line...) }
	case !l.hot && l.told:
		l.told, l.changes = false, ""
		return func(log klog.Logger) { log.Error(nil, "This key goes in circles no longer") }
	default:
		return nil
	}
}

// circles counts the keys that are slowed down, and those that ever were.
func (t *trail) circles() (now, ever int) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.hot {
		if s.loop.run == nil {
			t.makePeace(s, at)
		}
	}
	return len(t.hot), t.loops
}

// sweep forgets the keys that wrote something last, some time ago, and were never named again. mu is held.
func (t *trail) sweep(now time.Time) {
	for key, s := range t.keys {
		if l := s.loop; s.causes.n == 0 && l != nil && l.run == nil && now.Sub(l.ended) > forgotten {
			t.drop(key, s)
		}
	}
	t.swept = len(t.keys)
}

// act is a write as a person would name it.
type act struct {
	verb string
	target
}

func (a act) String() string {
	s := a.verb + " " + a.resource
	if a.subresource != "" {
		s += "/" + a.subresource
	}
	return fmt.Sprintf("%s %s", s, strings.TrimPrefix(a.namespace+"/"+a.name, "/"))
}
