package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/backoff"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// The prober finds out what becomes of debts that no event and no version settles. It works for places, not for keys:
// in each it does one thing at a time, and pauses after it, so that a server, which may be in trouble just then, is
// asked as seldom for a thousand keys as for one. It does the first of these that there is a reason for:
//
//	there are writes of unknown outcome  it lets the informer list anew: one list is for all of them
//	a list that it has asked for is      it waits. The list settles all, and the informer sees to it that it comes
//	not complete
//	debts are older than parkingTime     it asks the server about a few. What is gone, replaced, out of the informer's
//	                                     sight, or undone by a restore is waited for no longer. If the server has what
//	                                     the cache has not, that is behind: it is Stale, and its informer lists anew
//
// The pauses grow, and are as long as the server asks for. When nothing has been wrong in a place for quietTime, the
// next trouble is the first again, and only then is it logged again.

const (
	// The pauses are about 1 s, 2 s, 4 s ... 30 s.
	firstProbe, lastProbe = 2 * time.Second, 30 * time.Second
	quietTime             = 2 * lastProbe
	// So many debts are asked about in one probe. If the answers have settled all of these, and there are more, a list
	// tells what became of the rest.
	maxQuestions = 10
)

// probes is what the prober knows of a place. It is guarded by the ledger's mu.
type probes struct {
	wanted  int       // the list with the highest number that a write of unknown outcome waits for
	asked   int       // the number of the last list that was asked for
	probing bool      // a probe is under way
	next    time.Time // no probe before
	last    time.Time // when the last probe found something to do; zero: all is quiet
	pace    backoff.Backoff
	said    map[trouble]bool // what has been logged since all was quiet
}

// trouble is what a probe may find: the line that says so.
type trouble string

const (
	none       trouble = "Keys have not been parked for long any more"
	known      trouble = "It is known what became of all writes"
	unknown    trouble = "It is unknown whether writes have happened; the informer lists anew before their keys go on"
	unlisted   trouble = "Keys are parked: the informer has not been able to list since it was asked to"
	unanswered trouble = "Keys are parked: the server does not say what became of their writes"
	behind     trouble = "Keys are parked: the cache is behind their writes; its informer lists anew"
	rejected   trouble = "Keys are parked: the cache cannot take what they have written; until it can, or that is gone"
	unfit      trouble = "Keys are parked: the cache may not be acted on"
)

// problem is a trouble, and an object that it is about.
type problem struct {
	trouble
	object object
}

// line is what is to be said of a place.
type line struct {
	*place
	problem
}

// probe is the prober: it looks after the places until ctx ends. Each probe is a goroutine of the group.
func (l *ledger) probe(ctx context.Context, group *lifecycle.Group, controller string) {
	log := klog.FromContext(ctx).WithValues("controller", controller)
	for ctx.Err() == nil {
		due, lines, next := l.turn()
		for _, line := range lines {
			line.write(log, nil)
		}
		for _, p := range due {
			name := "probe of informer " + p.cache.Name() + " for controller " + controller
			group.Go(name, func() { l.examine(ctx, log, p) })
		}
		var alarm <-chan time.Time
		if !next.IsZero() {
			alarm = time.After(time.Until(next))
		}
		select {
		case <-l.news:
		case <-alarm:
		case <-ctx.Done():
		}
	}
}

// write writes the line. A log sink may be the user's code, and must not end the prober.
func (l line) write(log klog.Logger, err error) {
	_ = lifecycle.Apart(func() { l.print(log, err) })
}

func (l line) print(log klog.Logger, err error) {
	log = log.WithValues("informer", l.cache.Name(), "health", l.cache.HealthIn(l.namespace))
	if l.namespace != metav1.NamespaceAll {
		log = log.WithValues("namespace", l.namespace)
	}
	if l.trouble == unknown || l.trouble == known {
		log.Info(string(l.trouble))
	} else {
		log.Error(err, string(l.trouble), "object", l.object.key)
	}
}

// turn asks for the lists that are due, and returns the places whose probe is, what is to be logged, and when there
// will be more of all this; zero: there is nothing to wait for. It forgets the places that are quiet and have no debts.
func (l *ledger) turn() (due []*place, lines []line, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	later := func(at time.Time) bool {
		if !at.After(now) {
			return false
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return true
	}
	for _, c := range l.caches {
		for name, p := range c.places {
			if p.wanted > p.asked && !later(p.next) {
				lines = append(lines, p.list(now)...)
			}
			if p.probing {
				continue // its end is news
			}
			at, ok := p.due()
			if ok && !later(at) {
				p.probing = true
				due = append(due, p)
				continue
			}
			if !p.last.IsZero() && !later(p.quiet()) {
				if len(p.said) > 0 {
					lines = append(lines, line{p, problem{trouble: p.over()}})
				}
				p.calm()
			}
			if !ok && p.last.IsZero() {
				delete(c.places, name)
			}
		}
	}
	l.alarm = next
	return due, lines, next
}

// list lets the informer list anew for the writes of unknown outcome, unless it has, or none is open. The ledger's mu
// is held.
func (p *place) list(now time.Time) []line {
	if p.byAge.Len() == 0 || p.now().listed >= p.wanted {
		p.asked = p.wanted
		return nil
	}
	p.asked = p.cache.Relist(p.namespace, nil)
	return p.found(now, 0, problem{trouble: unknown})
}

// found takes note of problems, lets the next probe wait for as long as there should be between two, or for longer if
// the server has asked for it, and returns what is to be said: nothing is said twice until all is quiet. The ledger's
// mu is held.
func (p *place) found(now time.Time, atLeast time.Duration, problems ...problem) (lines []line) {
	p.last, p.next = now, now.Add(max(p.pace.Next(), atLeast))
	for _, problem := range problems {
		if !p.said[problem.trouble] {
			p.said[problem.trouble] = true
			lines = append(lines, line{p, problem})
		}
	}
	return lines
}

// due returns when the server is to be asked next, if there is something to ask. The ledger's mu is held.
func (p *place) due() (at time.Time, ok bool) {
	first := p.byAge.Front()
	if first == nil {
		return at, false
	}
	at = first.Value.(*debt).noted.Add(parkingTime)
	if at.Before(p.next) {
		at = p.next
	}
	return at, true
}

// quiet returns when all is quiet if nothing is found before: not while a server wants to be left alone. The ledger's
// mu is held.
func (p *probes) quiet() time.Time {
	at := p.last.Add(quietTime)
	if p.next.After(at) {
		return p.next
	}
	return at
}

// over returns the line that says that all is quiet again, at the level of what was said before. The ledger's mu is
// held.
func (p *probes) over() trouble {
	if len(p.said) == 1 && p.said[unknown] {
		return known
	}
	return none
}

// calm lets the next trouble be the first again. The ledger's mu is held.
func (p *probes) calm() {
	p.last, p.said = time.Time{}, make(map[trouble]bool)
	p.pace.Reset()
}

// examine is one probe of a place.
func (l *ledger) examine(ctx context.Context, log klog.Logger, p *place) {
	defer l.examined(p)
	questions, problems := l.consider(p)
	answers, err := p.ask(ctx, questions)
	if ctx.Err() != nil {
		err = nil // it is we who have given up
	}
	if err != nil {
		problems = append(problems, problem{unanswered, questions[len(answers)].object})
	}
	for _, line := range l.conclude(p, problems, len(questions) > maxQuestions, answers, err) {
		line.write(log, err)
	}
}

// examined is the end of a probe, in every case: one that did not come to a conclusion is tried again later.
func (l *ledger) examined(p *place) {
	l.mu.Lock()
	if p.probing {
		p.probing = false
		p.next = time.Now().Add(p.pace.Next())
	}
	l.mu.Unlock()
	l.ring()
}

// consider pays what is settled, and returns the debts that the server is to be asked about, or the first of them, and
// what else has kept debts open for long.
func (l *ledger) consider(p *place) (questions []*debt, problems []problem) {
	l.mu.Lock()
	begun, now := time.Now(), p.now()
	overdue := func(d *debt) bool { return !begun.Before(d.noted.Add(parkingTime)) }
	keys := l.judge(nil, p.oldest(overdue), now)
	note := func(t trouble, d *debt) {
		if !slices.ContainsFunc(problems, func(other problem) bool { return other.trouble == t }) {
			problems = append(problems, problem{t, d.object})
		}
	}
	for _, d := range p.oldest(overdue) {
		switch {
		case now.listed < p.asked:
			note(unlisted, d)
		case d.list > 0:
		case d.list == freshCache:
			note(unfit, d)
		case d.rejected():
			note(rejected, d)
		case len(questions) <= maxQuestions:
			questions = append(questions, d)
		}
	}
	l.mu.Unlock()
	l.resume(keys)
	return questions, problems
}

// answer is what the server says of the object of a debt.
type answer struct {
	*debt
	informer.Version
	exists bool
}

// void reports whether nobody will ever see the write. It is gone, replaced, or not what the informer asks for; or the
// server was restored from before it. Where versions cannot be compared a list has to tell.
func (a answer) void() bool {
	same := a.exists && a.UID == a.uid
	if a.deleted {
		return same && !a.Deleting
	}
	older := ordered(a.ResourceVersion, a.resourceVersion) && !atLeast(a.ResourceVersion, a.resourceVersion)
	return !same || older
}

// agrees reports whether neither the server nor the cache has an object that has been deleted.
func (a answer) agrees() bool {
	h, held := a.object.cache.Version(a.object.key)
	return a.deleted && !(a.exists && a.UID == a.uid) && (!held || h.UID != a.uid)
}

// ask asks the server about a few debts, up to the first that the cache is behind with. It waits for as long as a
// server may ask to be left alone: client-go's clients do what it asks for before they return.
func (p *place) ask(ctx context.Context, questions []*debt) (answers []answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, backoff.MaxRetryAfter)
	defer cancel()
	for _, d := range questions[:min(len(questions), maxQuestions)] {
		h, exists, err := p.cache.LiveVersion(ctx, d.object.key)
		if err != nil {
			return answers, err
		}
		a := answer{d, h, exists}
		answers = append(answers, a)
		if !a.void() && !a.agrees() {
			break
		}
	}
	return answers, nil
}

// conclude pays what the answers settle, lets the informer list anew if the cache is behind, or if there are more
// questions, and returns what is to be logged.
func (l *ledger) conclude(p *place, problems []problem, more bool, answers []answer, err error) (lines []line) {
	l.mu.Lock()
	now, come := time.Now(), p.now()
	p.probing = false
	var keys []resumed
	for _, a := range answers {
		switch {
		case a.place == nil: // settled meanwhile
		case a.void():
			keys = l.pay(keys, a.debt, come, true)
		case a.agrees():
			keys = l.pay(keys, a.debt, come, false)
		default:
			problems = append(problems, problem{behind, a.object})
			p.asked = p.cache.Relist(p.namespace,
				fmt.Errorf("the cache has not seen for %s what the server has of %s", parkingTime, a.object.key))
		}
	}
	switch {
	case len(problems) > 0:
		lines = p.found(now, backoff.RetryAfter(err), problems...)
	case more:
		p.asked = p.cache.Relist(p.namespace, nil)
		lines = p.found(now, 0)
	case len(answers) > 0:
		p.next = now.Add(firstProbe)
	}
	l.mu.Unlock()
	l.resume(keys)
	return lines
}

// doubt makes the informer of a cache that is behind list anew, unless it is about to.
func (l *ledger) doubt(c *cache, namespace string, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := c.now(c.placeName(namespace))
	if p := c.placeOf(namespace, now); now.listed >= p.asked {
		p.asked = c.Relist(p.namespace, reason)
	}
}
