package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A new leader's caches may lag behind what the old leader wrote just before it stopped: the stale cache that
// TrackWrites guards against, across two processes. So the old leader writes a handover into the Lease that it
// releases: for each resource, the latest version that it has written, or that the leader before it has handed over.
// The new leader starts its workers when its caches have reached these versions. A cache that has not within
// doubtAfter, or unexpectedAfter if its informer has selectors, lists anew. After another doubtAfter the workers start
// even so, the log says so, and what the caches have still not seen is handed over to the next leader again.
//
// Without a handover it matters how the Lease was acquired. If it was free at once, as after the release by another
// kind of leader, the last write may have just happened: every cache lists anew before the workers start. A crashed
// leader leaves no handover either, but then the Lease has not changed for LeaseDuration, 15 s, and the caches of a
// standby have caught up if its watches lag by less. What stopped the leader may have stopped the standby's watches,
// too, such as an API server that was killed: so a cache that does not follow the server, or has not done so for
// [steadyTime], lists anew here as well.

// handoverElector is an [Elector] that can hand over, such as *leaderelection.Elector. If word is empty, waited says
// that there was no leader for as long as an elector waits for a crashed one.
type handoverElector interface {
	SetHandover(word string)
	Handover() (word string, waited bool)
}

// handoverEntry says what a cache must have seen of the writes to one resource: in one namespace, if its informer
// follows namespaces one by one, or in all. The field names are part of the Lease's format.
type handoverEntry struct {
	Host      string `json:"host,omitempty"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Informer is the name of an informer whose requests do not pass TrackWrites, in place of the resource.
	Informer        string `json:"informer,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Relist says that there is a write which no version covers: an unseen deletion, or a write of unknown outcome.
	Relist bool `json:"relist,omitempty"`
	// Listed is the version of a list that has covered such a write. A cache that has not reached it lists anew.
	Listed string `json:"listed,omitempty"`
}

// entryOf returns an entry about the scope of a request, with nothing else.
func entryOf(t writes.Target) handoverEntry {
	return handoverEntry{Host: t.Host, Group: t.Group, Resource: t.Resource, Namespace: t.Namespace}
}

// subject returns the entry with nothing but what it is about.
func (l handoverEntry) subject() handoverEntry {
	return handoverEntry{Host: l.Host, Group: l.Group, Resource: l.Resource, Namespace: l.Namespace,
		Informer: l.Informer}
}

// merge returns what two entries about one subject say together.
func (l handoverEntry) merge(other handoverEntry) handoverEntry {
	l.Relist = l.Relist || other.Relist
	type pair struct{ mine, others *string }
	for _, v := range []pair{{&l.ResourceVersion, &other.ResourceVersion}, {&l.Listed, &other.Listed}} {
		switch {
		case *v.others == "" || kube.AtLeast(*v.mine, *v.others):
		case *v.mine == "" || kube.AtLeast(*v.others, *v.mine):
			*v.mine = *v.others
		default: // the two cannot be compared
			l.Relist = true
		}
	}
	return l
}

func (l handoverEntry) concerns(s *writes.Scope) bool {
	return l.Group == s.Target.Group && l.Resource == s.Target.Resource &&
		(l.Namespace == s.Target.Namespace || l.Namespace == "" || s.Target.Namespace == "")
}

// steadyTime is how long a cache must have followed the server without a break to be trusted with what happened
// before.
const steadyTime = 5 * time.Second

// maxHandoverBytes is the length of a handover for which every Lease has room: package leaderelection drops one above
// 128 KiB. If the entries need more, they are merged over all namespaces.
const maxHandoverBytes = 100 << 10

// handoverText returns the handover for the next leader: what the ledgers know, and the inherited entries that no
// ledger here knows. It is never empty.
func (m *Manager) handoverText(inherited []handoverEntry) string {
	all := []handoverEntry{}
	add := func(l handoverEntry) {
		i := slices.IndexFunc(all, func(other handoverEntry) bool { return l.subject() == other.subject() })
		if i < 0 {
			all = append(all, l)
			return
		}
		all[i] = all[i].merge(l)
	}
	for _, l := range inherited {
		add(l)
	}
	for _, c := range m.opts.Controllers {
		for _, l := range c.ledger.handoverEntries() {
			add(l)
		}
	}
	word := encodeHandover(all)
	if len(word) > maxHandoverBytes {
		apart := all
		all = []handoverEntry{}
		for _, l := range apart {
			l.Namespace = ""
			add(l)
		}
		word = encodeHandover(all)
	}
	return word
}

func encodeHandover(all []handoverEntry) string {
	word, _ := json.Marshal(all) // strings and booleans can always be encoded
	return string(word)
}

// passHandoverOn hands the last leader's handover to the next one: this process has written nothing.
func passHandoverOn(h handoverElector) {
	word, _ := h.Handover()
	h.SetHandover(word)
}

// awaitHandover waits until the caches of all controllers have seen what the last leader's handover says, or, without
// one, until they have caught up with the server. It returns the entries that no ledger here knows, for the next
// leader, and false if ctx ends before.
func (m *Manager) awaitHandover(ctx context.Context, h handoverElector) (rest []handoverEntry, ok bool) {
	log, began := klog.FromContext(ctx), time.Now()
	word, waited := h.Handover()
	var left []handoverEntry
	if word != "" {
		if err := json.Unmarshal([]byte(word), &left); err != nil {
			log.Error(err, "The last leader's handover in the Lease cannot be read; all caches list anew")
			word, left, waited = "", nil, false
		}
	}
	if word == "" {
		for _, c := range m.opts.Controllers {
			left = append(left, c.ledger.unsteady(waited)...)
		}
	}
	will := newInheritance(m.withUnknownInformers(left))
	var waiting []pendingHandover
	for _, c := range m.opts.Controllers {
		if settled := c.ledger.oweHandover(will); settled != nil {
			waiting = append(waiting, pendingHandover{c.ledger, settled})
		}
	}
	waiting = waitForHandover(ctx, waiting, unexpectedAfter)
	for _, e := range waiting {
		e.relistSelective()
	}
	waiting = waitForHandover(ctx, waiting, doubtAfter-unexpectedAfter)
	doubted := len(waiting) > 0 && ctx.Err() == nil
	if doubted {
		for _, e := range waiting {
			e.relist(log)
		}
		waiting = waitForHandover(ctx, waiting, doubtAfter)
	}
	for _, e := range waiting {
		e.ledger.dropHandover(will)
	}
	switch {
	case ctx.Err() != nil:
		return nil, false
	case len(waiting) > 0:
		m.progress.caughtUp(false, time.Since(began))
		log.Error(nil, "Caches are still behind what the last leader wrote; the workers start all the same", "after",
			time.Since(began))
		return will.rest(), true
	case doubted:
		log.Info("The caches have seen what the last leader wrote", "took", time.Since(began))
	default:
		log.V(1).Info("The caches have seen what the last leader wrote", "took", time.Since(began))
	}
	m.progress.caughtUp(true, time.Since(began))
	return will.rest(), true
}

// inheritance is what the last leader has left, and what becomes of it here.
type inheritance struct {
	entries []handoverEntry
	// taken says of an entry that a cache here is to show it: from then on it is among what this leader itself
	// hands over. missed says that a cache has not seen it, which the next leader's may have to.
	taken, missed []bool
}

func newInheritance(entries []handoverEntry) *inheritance {
	return &inheritance{entries, make([]bool, len(entries)), make([]bool, len(entries))}
}

// rest returns what the next leader is to be told as this one was.
func (in *inheritance) rest() (rest []handoverEntry) {
	for i, e := range in.entries {
		if !in.taken[i] || in.missed[i] {
			rest = append(rest, e)
		}
	}
	return rest
}

// withUnknownInformers returns the entries. If one is about an informer that no controller here knows, it may have had
// another name in the last leader's process: then every cache that is known by name only must list anew, too.
func (m *Manager) withUnknownInformers(left []handoverEntry) []handoverEntry {
	var named []handoverEntry
	known := make(map[string]bool)
	for _, c := range m.opts.Controllers {
		for ca := range everyCache(c.ledger) {
			known[ca.Name()] = true
			if !ca.learner.HasScope() {
				named = append(named, handoverEntry{Informer: ca.Name(), Relist: true})
			}
		}
	}
	if slices.ContainsFunc(left, func(l handoverEntry) bool { return l.Informer != "" && !known[l.Informer] }) {
		return append(left, named...)
	}
	return left
}

// pendingHandover is a ledger with entries of a handover; settled is closed when its caches have seen them.
type pendingHandover struct {
	ledger  *ledger
	settled <-chan struct{}
}

// waitForHandover waits until all are settled, d has passed or ctx has ended, and returns those that are not settled.
func waitForHandover(ctx context.Context, waiting []pendingHandover, d time.Duration) (left []pendingHandover) {
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

// handoverEntries returns what the next leader's caches must have seen.
func (l *ledger) handoverEntries() (all []handoverEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range everyCache(l) {
		all = append(all, c.handoverEntries(l)...)
	}
	return append(all, l.coming.entries()...)
}

// handoverEntries returns what the next leader's cache must have seen. The mu of the cache's ledger is held.
func (c *cache) handoverEntries(l *ledger) (all []handoverEntry) {
	for _, left := range c.followedScopes() {
		part := left.Namespace
		now := c.progress(part)
		if now.unfollowed && !c.byName { // what is named may be another matter in the next leader's process
			continue
		}
		// A write to one namespace may have been followed with all namespaces at that time, or the other way round.
		here := func(of string) bool { return overlap(of, part) }
		for of, written := range c.written {
			if here(of) && !now.rewound(written) {
				left = left.merge(handoverEntry{ResourceVersion: written.resourceVersion})
			}
		}
		for of, shown := range c.shown {
			if here(of) && !now.rewound(shown) {
				left = left.merge(handoverEntry{Listed: shown.resourceVersion})
			}
		}
		for of := range c.unversioned {
			if here(of) {
				left.Relist = true
			}
		}
		for t := range l.underWay {
			if c.mayShow(t, part) {
				left.Relist = true
			}
		}
		for _, a := range l.accounts {
			left.Relist = left.Relist || slices.ContainsFunc(a.debts, func(d *debt) bool {
				return d.object.cache == c && (d.kind == status.DebtDeletion || d.kind == status.DebtUnknown) &&
					here(c.scopeName(c.placeOf(d.object.key)))
			})
		}
		if left != left.subject() {
			all = append(all, left)
		}
	}
	return all
}

// followedScopes returns an entry without versions for each scope that the informer lists and watches. If its requests
// do not pass TrackWrites, only its name is known.
func (c *cache) followedScopes() (all []handoverEntry) {
	for _, s := range c.learner.Scopes() {
		all = append(all, entryOf(s.Target))
	}
	if len(all) == 0 {
		return []handoverEntry{{Informer: c.Name()}}
	}
	return all
}

// mayShow reports whether a scope of the cache may show a write to the target. If the informer's requests do not pass
// TrackWrites, it may show any.
func (c *cache) mayShow(t writes.Target, scope string) bool {
	return !c.learner.HasScope() || slices.Contains(c.learner.MayHold(t), scope)
}

// unsteady stands in for a missing handover: it returns an entry with Relist for each cache, or, if the Lease was
// waited for, for each that has not followed the server for steadyTime.
func (l *ledger) unsteady(waited bool) (all []handoverEntry) {
	for c := range everyCache(l) {
		for _, place := range c.followedScopes() {
			h := c.HealthIn(place.Namespace)
			if !waited || h.State != informer.Live || time.Since(h.Since) < steadyTime {
				place.Relist = true
				all = append(all, place)
			}
		}
	}
	return all
}

// oweHandover turns the entries about caches of this ledger into debts. It returns a channel that is closed when these
// debts are paid; nil if there are none.
func (l *ledger) oweHandover(will *inheritance) <-chan struct{} {
	all := will.entries
	for c := range everyCache(l) {
		owe := func(i int, namespace string, selective bool) {
			left := all[i]
			if !c.canShow(namespace) { // others need not wait
				c.listAfter(namespace)
				will.missed[i] = true
				return
			}
			will.taken[i] = true
			d := &debt{owner: handoverOwner, kind: status.DebtChange, object: object{c, Key{Namespace: namespace}},
				resourceVersion: left.ResourceVersion, selective: selective, inherited: i}
			now := c.progress(namespace)
			if left.Relist || left.Listed != "" && !kube.AtLeast(now.resourceVersion, left.Listed) {
				d.kind = status.DebtUnknown
				l.owe(d)
				l.relist(d, nil)
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
		for _, s := range c.learner.Scopes() {
			// The other process may know the server by another name. But if an entry has this name, only it counts.
			sameHost := slices.ContainsFunc(all,
				func(left handoverEntry) bool { return left.concerns(s) && left.Host == s.Target.Host })
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
func (c *cache) canShow(namespace string) bool {
	h := c.HealthIn(namespace)
	return c.byName || h.State == "" || h.Listed > 0 && !barred(c, namespace)
}

// handoverDebts returns what the caches have not seen of the handover.
func (l *ledger) handoverDebts() []*debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.accounts[handoverOwner]; ok {
		return slices.Clone(a.debts)
	}
	return nil
}

// relistSelective has the informers that have selectors list anew if their caches are behind the handover: there may be
// no event of what the last leader wrote.
func (e pendingHandover) relistSelective() {
	for _, d := range e.ledger.handoverDebts() {
		if d.selective {
			e.ledger.relist(d, nil)
		}
	}
}

// relist has the informers of caches that are behind the handover list anew.
func (e pendingHandover) relist(log klog.Logger) {
	for _, d := range e.ledger.handoverDebts() {
		c, namespace := d.object.cache, d.object.key.Namespace
		log.Error(nil, "The cache is behind what the last leader wrote; its informer lists anew, and the workers wait",
			"informer", c.Name(),
			"health", c.HealthIn(namespace))
		e.ledger.relist(d, fmt.Errorf("the cache has not seen for %s what the last leader wrote", doubtAfter))
	}
}

// relist asks for a list that settles a debt, unless it has been asked for.
func (l *ledger) relist(d *debt, doubt error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := d.partition; p != nil && !p.listAskedFor(d, p.progress()) {
		p.relist(doubt)
	}
}

// dropHandover stops waiting for the last leader's writes.
func (l *ledger) dropHandover(will *inheritance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.accounts[handoverOwner]; ok {
		for _, d := range slices.Clone(a.debts) {
			will.missed[d.inherited] = true
			l.pay(nil, d, d.partition.progress())
		}
	}
}
