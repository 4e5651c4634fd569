package reconcile

import (
	"fmt"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// A key goes in circles if its runs write, and what they have written is all that names it for the next one: a status that holds the time of the day, a field
// that the server or a webhook sets back each time. Or if it asks to be called again at once, again and again. A run or two of that kind is how a Reconcile
// converges; so hotAfter of them are free. From then on the key rests after each: for hotFloor, and as long as it writes for twice as long each time, up to
// hotCap. What anybody else does, such as a change of the spec, brings the key up at once all the same. The circle ends with a run that writes nothing and
// does not ask to be called again within hotFloor.
//
// Own writes are recognised by what TrackWrites, Wrote and Deleted report. Two writers that undo each other's work, each called up by the other, are not found:
// from here the other one looks like any user who is busy. What finds them is server-side apply without Force, which refuses what somebody else has a claim to.
const (
	hotAfter = 20
	hotFloor = time.Second
	hotCap   = 5 * time.Minute
)

// loop is how far a key is in such a circle. A key that has not been reconciled for a while has a zero one, or none.
type loop struct {
	run *run // that is going on; nil in between. While there is one nobody forgets the step
	// unjudged is what named the key while the run went on and was no write that the run was known to have made: the event may be faster than the answer.
	unjudged []echo
	writes   map[echo]struct{} // of the last run, while nothing else has come to pass
	bySelf   bool              // the run, or the last, was brought about by nobody but the run before it
	soon     bool              // the last run has asked for another within hotFloor
	turns    int               // runs in a row that only the key itself has brought about
	changes  string            // an object, and its fields that change in the circle; empty while nobody knows
	rests    time.Time         // until when it is slowed down
	ended    time.Time         // when the last run did
}

// maxUnjudged bounds what a run has to judge at its end; with more, somebody else is taken to be at work.
const maxUnjudged = 64

// foreign reports whether a change is certainly not the key's own doing.
func (l *loop) foreign(v echo) bool {
	if l == nil {
		return true
	}
	switch _, own := l.writes[v]; {
	case l.run == nil:
		return !own
	case l.run.has(v):
		return false
	case len(l.unjudged) == maxUnjudged:
		return true
	}
	l.unjudged = append(l.unjudged, v)
	return false
}

func (l *loop) isHot() bool { return l != nil && l.turns > hotAfter }

// unexplained reports whether the key has gone far enough in a circle to ask what it is that changes in it.
func (l *loop) unexplained() bool { return l.turns >= hotAfter && l.changes == "" }

// explain finds out what an own write of a key that goes in circles has changed, for end to tell when it slows the key down.
func explain[T any](t *trail, key Key, source string, e informer.Event[T]) {
	var fields []string
	if err := lifecycle.Try(func() { fields = changedFields(e.Old, e.New) }); err != nil || len(fields) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.keys[key]; ok && s.loop != nil && s.loop.unexplained() {
		s.loop.changes = fmt.Sprintf("%s %s: %s", source, e.Key, strings.Join(fields, ", "))
	}
}

// begin is the start of a run, which is given the causes; unless the key has to rest because it goes in circles: then it says for how long, and nothing begins.
func (t *trail) begin(r *run) (rest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stepOf(r.key)
	if s.loop == nil {
		s.loop = &loop{}
	}
	l := s.loop
	if l.isHot() && !s.foreign {
		if rest = time.Until(l.rests); rest > 0 {
			return rest
		}
	}
	l.bySelf = !s.foreign && (s.causes.n > 0 || l.soon)
	r.worker.step, r.worker.causes = s, s.causes.take()
	s.foreign, l.run, l.writes = false, r, nil
	return 0
}

// end is the end of a run. It returns the outcome, which may be put off.
func (t *trail) end(r *run, o outcome, now time.Time) outcome {
	t.mu.Lock()
	s := r.worker.step
	l := s.loop
	writes, acts := r.written()
	l.run, l.writes, l.ended = nil, writes, now
	for _, v := range l.unjudged {
		if _, own := l.writes[v]; !own {
			s.foreign = true
		}
	}
	l.unjudged = l.unjudged[:0]
	l.soon = o.kind == doneAfter && o.after < hotFloor
	wasHot, wrote := l.isHot(), len(l.writes) > 0
	switch {
	case !wrote && !l.soon:
		l.turns, l.changes = 0, ""
	case l.bySelf:
		l.turns++
	}
	var wait time.Duration
	if l.isHot() {
		wait = hotFloor
		if wrote {
			wait = min(hotFloor<<min(l.turns-hotAfter-1, 30), hotCap)
		}
		l.rests = l.ended.Add(wait)
		if o.kind == doneAfter {
			o.after = max(o.after, wait)
		}
	}
	switch {
	case l.isHot() && !wasHot:
		t.hot++
		t.loops++
	case !l.isHot() && wasHot:
		t.hot--
	}
	isHot, changes := l.isHot(), l.changes
	if s.causes.n == 0 && !wrote && !l.soon && l.turns == 0 {
		t.drop(r.key, s)
	}
	t.mu.Unlock()
	switch {
	case isHot && !wasHot:
		r.log().Error(nil, "This key goes in circles: nobody but its own runs brings it up, and it is slowed down", "runs", hotAfter+1, "writes", acts, "changes", changes,
			"causes", r.worker.why(), "rests", wait, "atMost", hotCap)
	case wasHot && !isHot:
		r.log().Info("This key goes in circles no longer")
	}
	return o
}

// circles counts the keys that are slowed down, and those that ever were.
func (t *trail) circles() (now, ever int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hot, t.loops
}

// sweep forgets the keys that wrote something last, some time ago, and were never named again. mu is held.
func (t *trail) sweep() {
	for key, s := range t.keys {
		if l := s.loop; s.causes.n == 0 && l != nil && l.run == nil && time.Since(l.ended) > 2*hotCap {
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
