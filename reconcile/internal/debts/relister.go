package debts

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A relister makes informers list anew for debts that are overdue: only a list that began after a write is sure to show
// it. There is one for each controller, and it works by partition, not by key: a thousand parked keys cost the server
// as many requests as one. Controllers that share an informer each have their own relister, whose requests the informer
// joins.
//
// The pauses between the lists of a partition grow up to maxPause. The informer itself repeats a list that fails, and
// obeys Retry-After. A trouble is logged when it begins, and again only after nothing has been wrong in the partition
// for quietTime. Two troubles are those of one key, and logged for each: an object that the cache cannot take, and a
// write that is not answered.

const (
	// The pauses are random, about 1 s, 2 s, 4 s ... 30 s.
	minPause, maxPause = 2 * time.Second, 30 * time.Second
	quietTime          = 2 * maxPause
)

// overdueState is what the relister knows of a partition. The ledger's mu guards it.
type overdueState struct {
	lookAt        time.Time // when a debt is overdue next; zero: none is
	notBefore     time.Time // the earliest time of the next look at the debts
	listRequested int       // the number of the last list that the ledger asked for
	requestedAt   time.Time // when that was
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
	cacheBehind    trouble = "Keys are parked: the cache is behind their writes; its informer lists anew"
	objectInvalid  trouble = "Keys are parked: the cache cannot take what they have written; " +
		"they wait until it can, or the object is gone"
	cacheNotReady trouble = "Keys are parked: the cache may not be acted on"
	notAnswered   trouble = "A key is parked: a write of its last call has not been answered"
	answered      trouble = "The write of a parked key has been answered"
)

// logLine is what is to be logged: a trouble, and, if it is about one, a partition, a key, an object and an error.
type logLine struct {
	*partition
	trouble trouble
	key     Key
	object  Key
	err     error
}

func (l logLine) write(log klog.Logger) {
	if l.partition != nil {
		log = log.WithValues("informer", l.cache.Name(), "health", l.cache.HealthIn(l.namespace))
		if l.namespace != metav1.NamespaceAll {
			log = log.WithValues("namespace", l.namespace)
		}
	}
	if l.key != (Key{}) {
		log = log.WithValues("key", l.key)
	}
	if l.object.Name != "" {
		log = log.WithValues("object", l.object)
	}
	if l.trouble == outcomeUnclear || l.trouble == outcomesKnown {
		log.Info(string(l.trouble))
	} else {
		log.Error(l.err, string(l.trouble))
	}
}

type relister struct {
	ledger   *Ledger       // never changed
	rescan   chan struct{} // holds a value if the partitions are to be scanned before nextScan
	nextScan time.Time     // when they are scanned next; zero: when rescan says so. Guarded by the ledger's mu
}

// RunRelister has informers list anew for debts that are overdue, until ctx ends.
func (l *Ledger) RunRelister(ctx context.Context, controller string) {
	r := &l.relister
	log := klog.FromContext(ctx).WithValues("controller", controller)
	for ctx.Err() == nil {
		lines, next := r.scan()
		for _, line := range lines {
			line.write(log)
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-r.rescan:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// scanNow makes the relister scan the partitions before nextScan.
func (r *relister) scanNow() {
	select {
	case r.rescan <- struct{}{}:
	default: // it is told already
	}
}

// scanByLocked makes the relister scan the partitions at a time, or before.
func (r *relister) scanByLocked(at time.Time) {
	if r.nextScan.IsZero() || at.Before(r.nextScan) {
		r.scanNow()
	}
}

// awaitAnswerLocked looks after the writes of a parked key that are under way.
func (r *relister) awaitAnswerLocked(key Key, a *account) {
	if a.underWay > 0 && a.parked && !a.watched {
		a.watched = true
		r.ledger.unanswered = append(r.ledger.unanswered, wokenKey{key, a})
		r.scanByLocked(a.sentAt.Add(DoubtAfter))
	}
}

// scan asks for the lists that are due. It returns what is to be logged, and when the next scan is: zero if there is
// nothing to wait for. It drops the partitions that have no debts and are quiet.
func (r *relister) scan() (lines []logLine, next time.Time) {
	l := r.ledger
	l.mu.Lock()
	var keys []wokenKey
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
	for c := range everyCache(l) {
		for name, p := range c.partitions {
			if p.byAge.Len() > 0 && !later(p.dueAtLocked()) {
				keys = l.paySettledLocked(keys, p.oldestLocked(all), p.progress())
				lines = append(lines, p.lookLocked(now)...)
			}
			if p.byAge.Len() > 0 {
				later(p.dueAtLocked())
			}
			if !p.lastTrouble.IsZero() && !later(p.quietAtLocked()) {
				if len(p.logged) > 0 {
					lines = append(lines, logLine{partition: p, trouble: p.recoveryLocked()})
				}
				p.resetLocked()
			}
			if p.byAge.Len() == 0 && p.lastTrouble.IsZero() {
				delete(c.partitions, name)
			}
		}
	}
	l.unanswered = slices.DeleteFunc(l.unanswered, func(k wokenKey) bool {
		switch {
		case k.underWay == 0:
			if k.notAnswered {
				lines = append(lines, logLine{trouble: answered, key: k.key})
			}
			k.watched, k.notAnswered = false, false
			return true
		case !k.notAnswered && !later(k.sentAt.Add(DoubtAfter)):
			k.notAnswered = true
			lines = append(lines, logLine{trouble: notAnswered, key: k.key})
		}
		return false
	})
	r.nextScan = next
	l.mu.Unlock()
	l.wakeUp(keys)
	return lines, next
}

// dueAtLocked returns when the debts are to be looked at next.
func (s *overdueState) dueAtLocked() time.Time {
	if s.lookAt.Before(s.notBefore) {
		return s.notBefore
	}
	return s.lookAt
}

// lookLocked finds out why the debts that are overdue are still open, and asks for a list if that helps and none has
// been asked for since the debt was opened.
func (p *partition) lookLocked(now time.Time) (lines []logLine) {
	at := p.progress()
	var list, pause bool
	var doubt error
	p.lookAt = time.Time{}
	found := func(t trouble, d *debt, err error) {
		pause = true
		if !p.logged[t] || t == objectInvalid && !d.named {
			p.logged[t] = true
			d.named = d.named || t == objectInvalid
			lines = append(lines, logLine{p, t, d.owner, d.object.key, err})
		}
	}
	for e := p.byAge.Front(); e != nil; e = e.Next() {
		d := e.Value.(*debt)
		if d.owner == handoverOwner {
			continue // Inherit asks for its lists, and gives it up
		}
		due := d.overdueAt()
		if due.After(now) {
			p.lookFromLocked(due)
			continue
		}
		p.lookFromLocked(now)
		switch {
		case d.kind == status.DebtNotReady && now.Sub(d.openedAt) < DoubtAfter:
		case d.kind == status.DebtNotReady:
			found(cacheNotReady, d, nil)
		case d.ofObject() && d.hidden(at), d.kind == status.DebtUnknown && at.listed > d.begun:
			found(objectInvalid, d, nil)
		case p.listAskedForLocked(d, at):
			if now.Sub(p.requestedAt) >= DoubtAfter {
				found(listOverdue, d, nil)
			}
		case d.kind == status.DebtUnknown:
			list = true
			found(outcomeUnclear, d, nil)
		default:
			list = true
			if err := d.behindLocked(); err != nil {
				doubt = err
				found(cacheBehind, d, err)
			}
		}
	}
	if list {
		p.relistLocked(doubt)
	}
	p.notBefore = now.Add(minPause)
	if pause {
		p.lastTrouble = now
	}
	if pause && list {
		p.notBefore = now.Add(p.pace.Next())
	}
	return lines
}

// listAskedForLocked reports whether a list that settles the debt has been asked for, and is not complete.
func (p *partition) listAskedForLocked(d *debt, at progress) bool {
	return p.listRequested > d.begun && at.listed < p.listRequested
}

// relistLocked asks for a list.
func (p *partition) relistLocked(doubt error) {
	p.listRequested, p.requestedAt = p.cache.Relist(p.namespace, doubt), time.Now()
}

// lookFromLocked makes the next look at the debts no later than at that time.
func (s *overdueState) lookFromLocked(at time.Time) {
	if s.lookAt.IsZero() || at.Before(s.lookAt) {
		s.lookAt = at
	}
}

// quietAtLocked returns when all is quiet if nothing goes wrong before.
func (s *overdueState) quietAtLocked() time.Time { return s.lastTrouble.Add(quietTime) }

// recoveryLocked returns the line that says that all is quiet again, at the level of what was logged before.
func (s *overdueState) recoveryLocked() trouble {
	if len(s.logged) == 1 && s.logged[outcomeUnclear] {
		return outcomesKnown
	}
	return allQuiet
}

// resetLocked makes the next trouble the first one again.
func (s *overdueState) resetLocked() {
	s.lastTrouble, s.logged = time.Time{}, make(map[trouble]bool)
	s.pace.Reset()
}
