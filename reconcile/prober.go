package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
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
	probePause, maxProbePause = 2 * time.Second, 30 * time.Second
	quietTime                 = 2 * maxProbePause
	// So many debts are asked about in one probe. If the answers have settled all of these, and there are more, a list
	// tells what became of the rest.
	maxQuestions = 10
)

// probes is what the prober knows of a place. It is guarded by the ledger's mu.
type probeState struct {
	listWanted    int       // the list with the highest number that a write of unknown outcome waits for
	listRequested int       // the number of the last list that was asked for
	probing       bool      // a probe is under way
	notBefore     time.Time // no probe before
	lastTrouble   time.Time // when the last probe found something to do; zero: all is quiet
	pace          lifecycle.Backoff
	logged        map[trouble]bool // what has been logged since all was quiet
}

// trouble is what a probe may find: the line that says so.
type trouble string

const (
	allQuiet        trouble = "Keys have not been parked for long any more"
	outcomesKnown   trouble = "It is known what became of all writes"
	outcomesUnknown trouble = "It is unknown whether writes have happened; the informer lists anew before their keys go on"
	listOverdue     trouble = "Keys are parked: the informer has not been able to list since it was asked to"
	serverSilent    trouble = "Keys are parked: the server does not say what became of their writes"
	cacheBehind     trouble = "Keys are parked: the cache is behind their writes; its informer lists anew"
	objectInvalid   trouble = "Keys are parked: the cache cannot take what they have written; until it can, or that is gone"
	cacheNotReady   trouble = "Keys are parked: the cache may not be acted on"
)

// problem is a trouble, and an object that it is about.
type problem struct {
	trouble
	object object
}

// line is what is to be said of a place.
type logLine struct {
	*partition
	problem
}

// probe is the prober: it looks after the places until ctx ends. Each probe is a goroutine of the group.
func (l *ledger) runProber(ctx context.Context, group *lifecycle.Group, controller string) {
	log := klog.FromContext(ctx).WithValues("controller", controller)
	for ctx.Err() == nil {
		due, lines, next := l.scan()
		for _, line := range lines {
			line.write(log, nil)
		}
		for _, p := range due {
			name := "probe of informer " + p.cache.Name() + " for controller " + controller
			group.Go(name, func() { l.probe(ctx, log, p) })
		}
		var alarm <-chan time.Time
		if !next.IsZero() {
			alarm = time.After(time.Until(next))
		}
		select {
		case <-l.rescan:
		case <-alarm:
		case <-ctx.Done():
		}
	}
}

// write writes the line. A log sink may be the user's code, and must not end the prober.
func (l logLine) write(log klog.Logger, err error) {
	_ = lifecycle.Apart(func() { l.print(log, err) })
}

func (l logLine) print(log klog.Logger, err error) {
	log = log.WithValues("informer", l.cache.Name(), "health", l.cache.HealthIn(l.namespace))
	if l.namespace != metav1.NamespaceAll {
		log = log.WithValues("namespace", l.namespace)
	}
	if l.trouble == outcomesUnknown || l.trouble == outcomesKnown {
		log.Info(string(l.trouble))
	} else {
		log.Error(err, string(l.trouble), "object", l.object.key)
	}
}

// turn asks for the lists that are due, and returns the places whose probe is, what is to be logged, and when there
// will be more of all this; zero: there is nothing to wait for. It forgets the places that are quiet and have no debts.
func (l *ledger) scan() (due []*partition, lines []logLine, next time.Time) {
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
		for name, p := range c.partitions {
			if p.listWanted > p.listRequested && !later(p.notBefore) {
				lines = append(lines, p.relistUnknown(now)...)
			}
			if p.probing {
				continue // its end is news
			}
			at, ok := p.dueAt()
			if ok && !later(at) {
				p.probing = true
				due = append(due, p)
				continue
			}
			if !p.lastTrouble.IsZero() && !later(p.quietAt()) {
				if len(p.logged) > 0 {
					lines = append(lines, logLine{p, problem{trouble: p.recovery()}})
				}
				p.reset()
			}
			if !ok && p.lastTrouble.IsZero() {
				delete(c.partitions, name)
			}
		}
	}
	l.nextScan = next
	return due, lines, next
}

// list lets the informer list anew for the writes of unknown outcome, unless it has, or none is open. The ledger's mu
// is held.
func (p *partition) relistUnknown(now time.Time) []logLine {
	if p.byAge.Len() == 0 || p.progress().listed >= p.listWanted {
		p.listRequested = p.listWanted
		return nil
	}
	p.listRequested = p.cache.Relist(p.namespace, nil)
	return p.note(now, 0, problem{trouble: outcomesUnknown})
}

// found takes note of problems, lets the next probe wait for as long as there should be between two, or for longer if
// the server has asked for it, and returns what is to be said: nothing is said twice until all is quiet. The ledger's
// mu is held.
func (p *partition) note(now time.Time, atLeast time.Duration, problems ...problem) (lines []logLine) {
	p.lastTrouble, p.notBefore = now, now.Add(max(p.pace.Next(), atLeast))
	for _, problem := range problems {
		if !p.logged[problem.trouble] {
			p.logged[problem.trouble] = true
			lines = append(lines, logLine{p, problem})
		}
	}
	return lines
}

// due returns when the server is to be asked next, if there is something to ask. The ledger's mu is held.
func (p *partition) dueAt() (at time.Time, ok bool) {
	first := p.byAge.Front()
	if first == nil {
		return at, false
	}
	at = first.Value.(*debt).openedAt.Add(doubtAfter)
	if at.Before(p.notBefore) {
		at = p.notBefore
	}
	return at, true
}

// quiet returns when all is quiet if nothing is found before: not while a server wants to be left alone. The ledger's
// mu is held.
func (p *probeState) quietAt() time.Time {
	at := p.lastTrouble.Add(quietTime)
	if p.notBefore.After(at) {
		return p.notBefore
	}
	return at
}

// over returns the line that says that all is quiet again, at the level of what was said before. The ledger's mu is
// held.
func (p *probeState) recovery() trouble {
	if len(p.logged) == 1 && p.logged[outcomesUnknown] {
		return outcomesKnown
	}
	return allQuiet
}

// calm lets the next trouble be the first again. The ledger's mu is held.
func (p *probeState) reset() {
	p.lastTrouble, p.logged = time.Time{}, make(map[trouble]bool)
	p.pace.Reset()
}

// examine is one probe of a place.
func (l *ledger) probe(ctx context.Context, log klog.Logger, p *partition) {
	defer l.probeEnded(p)
	questions, problems := l.questions(p)
	answers, err := p.askServer(ctx, questions)
	if ctx.Err() != nil {
		err = nil // it is we who have given up
	}
	if err != nil {
		problems = append(problems, problem{serverSilent, questions[len(answers)].object})
	}
	for _, line := range l.conclude(p, problems, len(questions) > maxQuestions, answers, err) {
		line.write(log, err)
	}
}

// examined is the end of a probe, in every case: one that did not come to a conclusion is tried again later.
func (l *ledger) probeEnded(p *partition) {
	l.mu.Lock()
	if p.probing {
		p.probing = false
		p.notBefore = time.Now().Add(p.pace.Next())
	}
	l.mu.Unlock()
	l.scanNow()
}

// consider pays what is settled, and returns the debts that the server is to be asked about, or the first of them, and
// what else has kept debts open for long.
func (l *ledger) questions(p *partition) (questions []*debt, problems []problem) {
	l.mu.Lock()
	begun, now := time.Now(), p.progress()
	overdue := func(d *debt) bool { return !begun.Before(d.openedAt.Add(doubtAfter)) }
	keys := l.paySettled(nil, p.oldest(overdue), now)
	note := func(t trouble, d *debt) {
		if !slices.ContainsFunc(problems, func(other problem) bool { return other.trouble == t }) {
			problems = append(problems, problem{t, d.object})
		}
	}
	for _, d := range p.oldest(overdue) {
		switch {
		case now.listed < p.listRequested:
			note(listOverdue, d)
		case d.list > 0:
		case d.list == freshCache:
			note(cacheNotReady, d)
		case d.invalid():
			note(objectInvalid, d)
		case len(questions) <= maxQuestions:
			questions = append(questions, d)
		}
	}
	l.mu.Unlock()
	l.wakeUp(keys)
	return questions, problems
}

// answer is what the server says of the object of a debt.
type liveState struct {
	*debt
	informer.Version
	exists bool
}

// void reports whether nobody will ever see the write. It is gone, replaced, or not what the informer asks for; or the
// server was restored from before it. Where versions cannot be compared a list has to tell.
func (a liveState) moot() bool {
	same := a.exists && a.UID == a.uid
	if a.deleted {
		return same && !a.Deleting
	}
	older := kube.Ordered(a.ResourceVersion, a.resourceVersion) && !kube.AtLeast(a.ResourceVersion, a.resourceVersion)
	return !same || older
}

// agrees reports whether neither the server nor the cache has an object that has been deleted.
func (a liveState) bothGone() bool {
	h, held := a.object.cache.Version(a.object.key)
	return a.deleted && !(a.exists && a.UID == a.uid) && (!held || h.UID != a.uid)
}

// ask asks the server about a few debts, up to the first that the cache is behind with. It waits for as long as a
// server may ask to be left alone: client-go's clients do what it asks for before they return.
func (p *partition) askServer(ctx context.Context, questions []*debt) (answers []liveState, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.MaxRetryAfter)
	defer cancel()
	for _, d := range questions[:min(len(questions), maxQuestions)] {
		h, exists, err := p.cache.LiveVersion(ctx, d.object.key)
		if err != nil {
			return answers, err
		}
		a := liveState{d, h, exists}
		answers = append(answers, a)
		if !a.moot() && !a.bothGone() {
			break
		}
	}
	return answers, nil
}

// conclude pays what the answers settle, lets the informer list anew if the cache is behind, or if there are more
// questions, and returns what is to be logged.
func (l *ledger) conclude(p *partition, problems []problem, more bool, answers []liveState, err error) (lines []logLine) {
	l.mu.Lock()
	now, come := time.Now(), p.progress()
	p.probing = false
	var keys []wokenKey
	for _, a := range answers {
		switch {
		case a.partition == nil: // settled meanwhile
		case a.moot():
			keys = l.pay(keys, a.debt, come, true)
		case a.bothGone():
			keys = l.pay(keys, a.debt, come, false)
		default:
			problems = append(problems, problem{cacheBehind, a.object})
			p.listRequested = p.cache.Relist(p.namespace,
				fmt.Errorf("the cache has not seen for %s what the server has of %s", doubtAfter, a.object.key))
		}
	}
	switch {
	case len(problems) > 0:
		lines = p.note(now, kube.RetryAfter(err), problems...)
	case more:
		p.listRequested = p.cache.Relist(p.namespace, nil)
		lines = p.note(now, 0)
	case len(answers) > 0:
		p.notBefore = now.Add(probePause)
	}
	l.mu.Unlock()
	l.wakeUp(keys)
	return lines
}

// doubt makes the informer of a cache that is behind list anew, unless it is about to.
func (l *ledger) relistBehind(c *cache, namespace string, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := c.progress(c.partitionName(namespace))
	if p := c.partitionOf(namespace, now); now.listed >= p.listRequested {
		p.listRequested = c.Relist(p.namespace, reason)
	}
}
