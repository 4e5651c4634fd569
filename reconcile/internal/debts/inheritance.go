package debts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Inherit waits until the caches have seen what the last leader has left, or ctx ends. Caches that have not after
// DoubtAfter, 10 s, list anew, and doubted is true; seen is false if some have not even so after as long again. Caches
// with selectors list anew after a second. It returns what is left to the next leader as it was to this one: what no
// cache here is to show, or has not shown.
func (all Ledgers) Inherit(ctx context.Context, left []Legacy) (rest []Legacy, seen, doubted bool) {
	log, in := klog.FromContext(ctx), newInheritance(all.withUnknownInformers(left))
	var waiting []heir
	for _, l := range all {
		if settled := inherit(l, in); settled != nil {
			waiting = append(waiting, heir{l, settled})
		}
	}
	waiting = await(ctx, waiting, unexpectedAfter)
	for _, h := range waiting {
		h.relistSelective()
	}
	waiting = await(ctx, waiting, DoubtAfter-unexpectedAfter)
	doubted = len(waiting) > 0 && ctx.Err() == nil
	if doubted {
		for _, h := range waiting {
			h.relist(log)
		}
		waiting = await(ctx, waiting, DoubtAfter)
	}
	for _, h := range waiting {
		disinherit(h.ledger, in)
	}
	return in.rest(), len(waiting) == 0, doubted
}

// SteadyTime is how long a cache must have followed the server without a break to be trusted with what happened
// before.
const SteadyTime = 5 * time.Second

// Unsteady stands in for a missing handover: it returns an entry with Relist for each cache, or, if the Lease was
// waited for, for each that has not followed the server for SteadyTime.
func (all Ledgers) Unsteady(waited bool) (left []Legacy) {
	for _, l := range all {
		for c := range everyCache(l) {
			for _, place := range c.followedScopes() {
				h := c.HealthIn(place.Namespace)
				if !waited || h.State != informer.Live || time.Since(h.Since) < SteadyTime {
					place.Relist = true
					left = append(left, place)
				}
			}
		}
	}
	return left
}

// inheritance is what the last leader has left, and what becomes of it here.
type inheritance struct {
	entries []Legacy
	// taken says of an entry that a cache here is to show it: from then on it is among what this leader itself
	// hands over. missed says that a cache has not seen it, which the next leader's may have to.
	taken, missed []bool
}

func newInheritance(entries []Legacy) *inheritance {
	return &inheritance{entries, make([]bool, len(entries)), make([]bool, len(entries))}
}

// rest returns what the next leader is to be told as this one was.
func (in *inheritance) rest() (rest []Legacy) {
	for i, e := range in.entries {
		if !in.taken[i] || in.missed[i] {
			rest = append(rest, e)
		}
	}
	return rest
}

// withUnknownInformers returns the entries. If one is about an informer that no ledger here knows, it may have had
// another name in the last leader's process: then every cache that is known by name only must list anew, too.
func (all Ledgers) withUnknownInformers(left []Legacy) []Legacy {
	var named []Legacy
	known := make(map[string]bool)
	for _, l := range all {
		for c := range everyCache(l) {
			known[c.Name()] = true
			if !c.Learner.HasScope() {
				named = append(named, Legacy{Informer: c.Name(), Relist: true})
			}
		}
	}
	if slices.ContainsFunc(left, func(e Legacy) bool { return e.Informer != "" && !known[e.Informer] }) {
		return append(left, named...)
	}
	return left
}

// heir is a ledger that inherits something; settled is closed when its caches have seen that.
type heir struct {
	ledger  *Ledger
	settled <-chan struct{}
}

// await waits until all are settled, d has passed or ctx has ended, and returns those that are not settled.
func await(ctx context.Context, waiting []heir, d time.Duration) (left []heir) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for _, e := range waiting {
		select {
		case <-e.settled:
		case <-ctx.Done():
			select {
			case <-e.settled: // both were ready
			default:
				left = append(left, e)
			}
		}
	}
	return left
}

// inherit turns the entries about caches of this ledger into debts. It returns a channel that is closed when these
// debts are paid; nil if there are none.
func inherit(l *Ledger, in *inheritance) <-chan struct{} {
	all := in.entries
	for c := range everyCache(l) {
		owe := func(i int, namespace string, selective bool) {
			left := all[i]
			if !c.canShow(namespace) { // others need not wait
				c.listAfter(namespace)
				in.missed[i] = true
				return
			}
			in.taken[i] = true
			d := &debt{owner: handoverOwner, kind: status.DebtChange, object: object{c, Key{Namespace: namespace}},
				resourceVersion: left.ResourceVersion, selective: selective, inherited: i}
			now := c.progress(namespace)
			if left.Relist || left.Listed != "" && !kube.AtLeast(now.resourceVersion, left.Listed) {
				d.kind = status.DebtUnknown
				l.owe(d)
				listFor(l, d, nil)
				return
			}
			l.mu.Lock()
			now.mark(c.shown, c.scopeName(namespace), left.Listed)
			l.mu.Unlock()
			if d.resourceVersion != "" {
				l.owe(d)
			}
		}
		for i, left := range all {
			if left.Informer != "" && left.Informer == c.Name() {
				owe(i, left.Namespace, false)
			}
		}
		for _, s := range c.Learner.Scopes() {
			// The other process may know the server by another name. But if an entry has this name, only it counts.
			sameHost := slices.ContainsFunc(all,
				func(left Legacy) bool { return left.concerns(s) && left.Host == s.Target.Host })
			for i, left := range all {
				if left.concerns(s) && !(sameHost && left.Host != s.Target.Host) {
					owe(i, s.Target.Namespace, c.byName || s.LabelSelector+s.FieldSelector != "")
				}
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[handoverOwner]
	if !ok {
		return nil
	}
	a.allPaid = make(chan struct{})
	return a.allPaid
}

// canShow reports whether the cache may come to show what is waited for in a namespace: it has been complete, and if it
// comes and goes the server does not refuse it.
func (c *Cache) canShow(namespace string) bool {
	h := c.HealthIn(namespace)
	return c.byName || h.State == "" || h.Listed > 0 && !barred(c, namespace)
}

// inherited returns what the caches have not seen of the inheritance.
func inherited(l *Ledger) []*debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.accounts[handoverOwner]; ok {
		return slices.Clone(a.debts)
	}
	return nil
}

// relistSelective has the informers that have selectors list anew if their caches are behind the inheritance: there may
// be no event of what the last leader wrote.
func (h heir) relistSelective() {
	for _, d := range inherited(h.ledger) {
		if d.selective {
			listFor(h.ledger, d, nil)
		}
	}
}

// relist has the informers of caches that are behind the inheritance list anew.
func (h heir) relist(log klog.Logger) {
	for _, d := range inherited(h.ledger) {
		c, namespace := d.object.cache, d.object.key.Namespace
		log.Error(nil, "The cache is behind what the last leader wrote; its informer lists anew, and the workers wait",
			"informer", c.Name(),
			"health", c.HealthIn(namespace))
		listFor(h.ledger, d, fmt.Errorf("the cache has not seen for %s what the last leader wrote", DoubtAfter))
	}
}

// listFor asks for a list that settles a debt, unless it has been asked for.
func listFor(l *Ledger, d *debt, doubt error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := d.partition; p != nil && !p.listAskedForLocked(d, p.progress()) {
		p.relistLocked(doubt)
	}
}

// disinherit stops waiting for the last leader's writes.
func disinherit(l *Ledger, in *inheritance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.accounts[handoverOwner]; ok {
		for _, d := range slices.Clone(a.debts) {
			in.missed[d.inherited] = true
			l.payLocked(nil, d, d.partition.progress())
		}
	}
}
