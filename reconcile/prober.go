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

// The prober finds out what has become of debts that neither an event nor a version settles. There is one for each
// controller, and it works by partition, not by key: in each it does one thing at a time and pauses after it, so the
// server, which may be in trouble just then, gets as few requests for a thousand parked keys as for one. Controllers
// that share an informer each have their own prober: ten of them ask ten times as often.
//
// In each partition it does the first of these for which there is a reason:
//
//	there are writes of unknown outcome     it makes the informer list anew: one list settles all of them
//	a list that it asked for is incomplete  it waits: the informer repeats a list that fails
//	debts are older than doubtAfter         it asks the server about a few of their objects. An object that is gone,
//	                                        replaced, outside of the selectors, or older than the write after a
//	                                        restore settles its debt. If the server has what the cache has not, the
//	                                        cache is behind: it is Stale, and its informer lists anew
//
// The pauses grow up to maxProbePause, and are at least as long as the server asks for with Retry-After. A trouble is
// logged when it begins, and again only after nothing has been wrong in the partition for quietTime.

const (
	// doubtAfter is how long a debt is open before the server is asked about it, and how long a new leader's cache may
	// be behind the last leader's writes before it lists anew.
	doubtAfter = 10 * time.Second
	// The pauses are random, about 1 s, 2 s, 4 s ... 30 s.
	probePause, maxProbePause = 2 * time.Second, 30 * time.Second
	quietTime                 = 2 * maxProbePause
	// maxQuestions is how many objects one probe asks about. If the answers settle all of them and there are more
	// debts, a new list settles the rest.
	maxQuestions = 10
)

// probeState is what the prober knows of a partition. The ledger's mu guards it.
type probeState struct {
	listWanted    int       // the highest number of a list that a write of unknown outcome waits for
	listRequested int       // the number of the last list that the ledger asked for
	probing       bool      // a probe is under way
	notBefore     time.Time // the earliest time of the next request
	lastTrouble   time.Time // when something was wrong last; zero: all is quiet
	pace          lifecycle.Backoff
	logged        map[trouble]bool // what has been logged since all was quiet
}

// trouble is what may be wrong in a partition: the message of the log line that says so.
type trouble string

const (
	allQuiet       trouble = "Keys are no longer parked for long"
	outcomesKnown  trouble = "The outcome of all writes is known"
	outcomeUnclear trouble = "It is unknown whether writes have happened; the informer lists anew and their keys wait"
	listOverdue    trouble = "Keys are parked: the informer has not completed the list that it was asked for"
	serverSilent   trouble = "Keys are parked: the server does not say what has become of their writes"
	cacheBehind    trouble = "Keys are parked: the cache is behind their writes; its informer lists anew"
	objectInvalid  trouble = "Keys are parked: the cache cannot take what they have written; " +
		"they wait until it can, or the object is gone"
	cacheNotReady trouble = "Keys are parked: the cache may not be acted on"
)

// problem is a trouble, and an object that it is about.
type problem struct {
	trouble
	object object
}

// logLine is what is to be logged about a partition.
type logLine struct {
	*partition
	problem
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
	if l.trouble == outcomeUnclear || l.trouble == outcomesKnown {
		log.Info(string(l.trouble))
	} else {
		log.Error(err, string(l.trouble), "object", l.object.key)
	}
}

// A prober decides when the server is asked about the debts of a ledger. What it knows of a partition is with the
// partition, in its probeState.
type prober struct {
	ledger   *ledger       // never changed
	rescan   chan struct{} // holds a value if the partitions are to be scanned before nextScan
	nextScan time.Time     // when they are scanned next; zero: when rescan says so. Guarded by the ledger's mu
}

// run is the prober's goroutine. It runs until ctx ends. Each probe is a goroutine of the group.
func (pr *prober) run(ctx context.Context, group *lifecycle.Group, controller string) {
	log := klog.FromContext(ctx).WithValues("controller", controller)
	for ctx.Err() == nil {
		due, lines, next := pr.scan()
		for _, line := range lines {
			line.write(log, nil)
		}
		for _, p := range due {
			name := "probe of informer " + p.cache.Name() + " for controller " + controller
			group.Go(name, func() { pr.probe(ctx, log, p) })
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-pr.rescan:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// scanNow makes the prober scan the partitions before nextScan.
func (pr *prober) scanNow() {
	select {
	case pr.rescan <- struct{}{}:
	default: // it is told already
	}
}

// scan asks for the lists that are due. It returns the partitions in which a probe is due, what is to be logged, and
// when the next scan is: zero if there is nothing to wait for. It drops the partitions that have no debts and are
// quiet.
func (pr *prober) scan() (due []*partition, lines []logLine, next time.Time) {
	pr.ledger.mu.Lock()
	defer pr.ledger.mu.Unlock()
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
	for _, c := range pr.ledger.caches {
		for name, p := range c.partitions {
			if p.listWanted > p.listRequested && !later(p.notBefore) {
				lines = append(lines, p.relistUnknown(now)...)
			}
			if p.probing {
				continue // its end calls scanNow
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
	pr.nextScan = next
	return due, lines, next
}

// relistUnknown makes the informer list anew for the writes of unknown outcome, unless that list is complete, or no
// debt is open. The ledger's mu is held.
func (p *partition) relistUnknown(now time.Time) []logLine {
	if p.byAge.Len() == 0 || p.progress().listed >= p.listWanted {
		p.listRequested = p.listWanted
		return nil
	}
	p.listRequested = p.cache.Relist(p.namespace, nil)
	return p.note(now, 0, problem{trouble: outcomeUnclear})
}

// note records problems, and begins the pause before the next request, which is at least as long as given. It returns
// what is to be logged: each trouble once until all is quiet. The ledger's mu is held.
func (p *partition) note(now time.Time, pause time.Duration, problems ...problem) (lines []logLine) {
	p.lastTrouble, p.notBefore = now, now.Add(max(p.pace.Next(), pause))
	for _, problem := range problems {
		if !p.logged[problem.trouble] {
			p.logged[problem.trouble] = true
			lines = append(lines, logLine{p, problem})
		}
	}
	return lines
}

// dueAt returns when the next probe is due; ok is false if there are no debts. The ledger's mu is held.
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

// quietAt returns when all is quiet if nothing goes wrong before: not as long as the server has asked for a pause. The
// ledger's mu is held.
func (p *probeState) quietAt() time.Time {
	at := p.lastTrouble.Add(quietTime)
	if p.notBefore.After(at) {
		return p.notBefore
	}
	return at
}

// recovery returns the line that says that all is quiet again, at the level of what was logged before. The ledger's mu
// is held.
func (p *probeState) recovery() trouble {
	if len(p.logged) == 1 && p.logged[outcomeUnclear] {
		return outcomesKnown
	}
	return allQuiet
}

// reset makes the next trouble the first one again. The ledger's mu is held.
func (p *probeState) reset() {
	p.lastTrouble, p.logged = time.Time{}, make(map[trouble]bool)
	p.pace.Reset()
}

// probe asks the server about the oldest debts of a partition, and acts on the answers.
func (pr *prober) probe(ctx context.Context, log klog.Logger, p *partition) {
	defer pr.probeEnded(p)
	questions, problems := pr.questions(p)
	answers, err := p.askServer(ctx, questions)
	if ctx.Err() != nil {
		err = nil // the prober is told to end: that is no trouble of the server's
	}
	if err != nil {
		problems = append(problems, problem{serverSilent, questions[len(answers)].object})
	}
	for _, line := range pr.conclude(p, problems, len(questions) > maxQuestions, answers, err) {
		line.write(log, err)
	}
}

// probeEnded runs at the end of each probe. One that has panicked, and so has not concluded, is repeated after a pause.
func (pr *prober) probeEnded(p *partition) {
	pr.ledger.mu.Lock()
	if p.probing {
		p.probing = false
		p.notBefore = time.Now().Add(p.pace.Next())
	}
	pr.ledger.mu.Unlock()
	pr.scanNow()
}

// questions pays what is settled. It returns the oldest debts that the server must be asked about, one more than
// maxQuestions if there are more, and what else keeps debts open for longer than doubtAfter.
func (pr *prober) questions(p *partition) (questions []*debt, problems []problem) {
	pr.ledger.mu.Lock()
	now, at := time.Now(), p.progress()
	overdue := func(d *debt) bool { return !now.Before(d.openedAt.Add(doubtAfter)) }
	keys := pr.ledger.paySettled(nil, p.oldest(overdue), at)
	add := func(t trouble, d *debt) {
		if !slices.ContainsFunc(problems, func(other problem) bool { return other.trouble == t }) {
			problems = append(problems, problem{t, d.object})
		}
	}
	for _, d := range p.oldest(overdue) {
		switch {
		case at.listed < p.listRequested:
			add(listOverdue, d)
		case d.kind == unknownOutcome:
		case d.kind == unreadyCache:
			add(cacheNotReady, d)
		case d.hidden():
			add(objectInvalid, d)
		case len(questions) <= maxQuestions:
			questions = append(questions, d)
		}
	}
	pr.ledger.mu.Unlock()
	pr.ledger.wakeUp(keys)
	return questions, problems
}

// liveState is what the server says of the object of a debt.
type liveState struct {
	*debt
	informer.Version
	exists bool
}

// undone reports whether the cache will never show the write: the object is gone, replaced or outside of the informer's
// selectors, or the server was restored from before the write. Where versions cannot be compared only a list can tell.
func (s liveState) undone() bool {
	same := s.exists && s.UID == s.uid
	if s.kind == unseenDeletion {
		return same && !s.Deleting
	}
	older := kube.Ordered(s.ResourceVersion, s.resourceVersion) && !kube.AtLeast(s.ResourceVersion, s.resourceVersion)
	return !same || older
}

// bothGone reports whether an object that was deleted is neither at the server nor in the cache.
func (s liveState) bothGone() bool {
	has, held := s.object.cache.Version(s.object.key)
	return s.kind == unseenDeletion && !(s.exists && s.UID == s.uid) && (!held || has.UID != s.uid)
}

// askServer asks the server about the first maxQuestions debts, or up to the first that shows the cache to be behind.
// Its timeout is the longest pause that a server may ask for, since client-go's clients wait for that before they
// return.
func (p *partition) askServer(ctx context.Context, questions []*debt) (answers []liveState, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.MaxRetryAfter)
	defer cancel()
	for _, d := range questions[:min(len(questions), maxQuestions)] {
		version, exists, err := p.cache.LiveVersion(ctx, d.object.key)
		if err != nil {
			return answers, err
		}
		s := liveState{d, version, exists}
		answers = append(answers, s)
		if !s.undone() && !s.bothGone() {
			break
		}
	}
	return answers, nil
}

// conclude pays what the answers settle. It makes the informer list anew if the cache is behind, or if there are more
// debts to ask about, and returns what is to be logged.
func (pr *prober) conclude(p *partition, problems []problem, more bool, answers []liveState,
	err error) (lines []logLine) {
	pr.ledger.mu.Lock()
	now, at := time.Now(), p.progress()
	p.probing = false
	var keys []wokenKey
	for _, s := range answers {
		switch {
		case s.partition == nil: // paid meanwhile
		case s.undone():
			keys = pr.ledger.pay(keys, s.debt, at, true)
		case s.bothGone():
			keys = pr.ledger.pay(keys, s.debt, at, false)
		default:
			problems = append(problems, problem{cacheBehind, s.object})
			p.listRequested = p.cache.Relist(p.namespace,
				fmt.Errorf("the cache has not seen for %s what the server has of %s", doubtAfter, s.object.key))
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
	pr.ledger.mu.Unlock()
	pr.ledger.wakeUp(keys)
	return lines
}
