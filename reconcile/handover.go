package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// A new leader's caches may lag behind what the old leader wrote just before it left: the very stale cache that
// TrackWrites guards against, across two processes. So the old one leaves word, in the Lease that it releases, of how
// far the writes have got in each resource: its own and, as it may have written nothing, those that it was told of in
// the same way. The new one starts its workers when its own caches are there. A cache that is not there within
// doubtAfter lists anew; after as long again the workers start all the same, the log says so, and what was not seen is
// passed on to the next leader once more.
//
// Without a word it depends on how the Lease was taken. Where it was free at once, as when a leader of another kind
// has released it, the last write may have happened a moment ago: every cache lists anew before the workers start. A
// leader that crashes leaves no word, either, but then the Lease has stood unchanged for LeaseDuration, 15 s, in which
// the caches of a standby have caught up, if its watches lag by less. What took the leader away may have taken the
// standby's watches, too, an API server that was killed, for one: so a cache that does not follow the server, or has
// not for [steadyTime], lists anew here as well.

// handover is what an [Elector] may have beside Run, as *leaderelection.Elector does: a way to leave word for the next
// leader, and to read what the last one has left. Without a word, waited says that nobody has led for as long as a
// crashed leader is waited for.
type handoverElector interface {
	SetHandover(word string)
	Handover() (word string, waited bool)
}

// legacy is how far the writes to one resource have got: in one namespace, if its informer follows namespaces by
// themselves, or in all.
type handoverEntry struct {
	Host      string `json:"host,omitempty"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Informer is the name of an informer whose requests do not pass TrackWrites, in place of the resource.
	Informer        string `json:"informer,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Relist says that there is something that no version tells: a deletion that was not seen, or a write whose
	// outcome is unknown.
	Relist bool `json:"relist,omitempty"`
	// Listed is the version of a list that has shown such a thing. A cache that has not got there lists anew.
	Listed string `json:"listed,omitempty"`
}

// place is what a legacy is about.
func (l handoverEntry) subject() handoverEntry {
	return handoverEntry{Host: l.Host, Group: l.Group, Resource: l.Resource, Namespace: l.Namespace, Informer: l.Informer}
}

// and returns what two legacies of one place say together.
func (l handoverEntry) merge(other handoverEntry) handoverEntry {
	l.Relist = l.Relist || other.Relist
	type pair struct{ mine, others *string }
	for _, v := range []pair{{&l.ResourceVersion, &other.ResourceVersion}, {&l.Listed, &other.Listed}} {
		switch {
		case *v.others == "" || kube.AtLeast(*v.mine, *v.others):
		case *v.mine == "" || kube.AtLeast(*v.others, *v.mine):
			*v.mine = *v.others
		default: // of two that cannot be compared nobody knows which one is later
			l.Relist = true
		}
	}
	return l
}

func (l handoverEntry) concerns(s *scope) bool {
	return l.Group == s.target.group && l.Resource == s.target.resource &&
		(l.Namespace == s.target.namespace || l.Namespace == "" || s.target.namespace == "")
}

// steadyTime is how long a cache has to follow the server without a break, until nobody doubts that it has been told
// of what happened before.
const steadyTime = 5 * time.Second

// maxWord is the length of a word, in bytes, that every Lease has room for: package leaderelection drops one above 128
// KiB. Where the legacies take more, the word does not tell in which namespaces they are.
const maxHandoverBytes = 100 << 10

// leave returns the word to be left, which is never empty: what the ledgers know of, and what was inherited beside.
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
	word, err := json.Marshal(all)
	if err != nil {
		panic(err) // there is nothing in it that cannot be encoded
	}
	return string(word)
}

// passOn leaves the next leader the word that was there for this process, which has written nothing.
func passHandoverOn(h handoverElector) {
	word, _ := h.Handover()
	h.SetHandover(word)
}

// inherit waits until the caches of all controllers are as far as the last leader's word says, or, without one, until
// they have caught up with the server. It returns what of that the ledgers do not know of, for the next leader, and
// false if ctx has ended before.
func (m *Manager) awaitHandover(ctx context.Context, h handoverElector) (rest []handoverEntry, ok bool) {
	log, began := klog.FromContext(ctx), time.Now()
	word, waited := h.Handover()
	var left []handoverEntry
	if word != "" {
		if err := json.Unmarshal([]byte(word), &left); err != nil {
			log.Error(err, "What the last leader has left in the Lease cannot be read; all caches list anew")
			word, left, waited = "", nil, false
		}
	}
	if word == "" {
		for _, c := range m.opts.Controllers {
			left = append(left, c.ledger.unsteady(waited)...)
		}
	}
	left = m.withUnknownInformers(left)
	taken := make([]bool, len(left))
	var waiting []pendingHandover
	for _, c := range m.opts.Controllers {
		if settled := c.ledger.oweHandover(left, taken); settled != nil {
			waiting = append(waiting, pendingHandover{c.ledger, settled})
		}
	}
	waiting = waitForHandover(ctx, waiting, doubtAfter)
	doubted := len(waiting) > 0 && ctx.Err() == nil
	if doubted {
		for _, e := range waiting {
			e.ledger.relistForHandover(log)
		}
		waiting = waitForHandover(ctx, waiting, doubtAfter)
	}
	for _, e := range waiting {
		e.ledger.dropHandover()
	}
	switch {
	case ctx.Err() != nil:
		return nil, false
	case len(waiting) > 0:
		log.Error(nil, "Caches are still behind what the last leader wrote; the workers start all the same", "after",
			time.Since(began))
		return left, true
	case doubted:
		log.Info("The caches have seen what the last leader wrote", "took", time.Since(began))
	default:
		log.V(1).Info("The caches have seen what the last leader wrote", "took", time.Since(began))
	}
	for i, l := range left {
		if !taken[i] {
			rest = append(rest, l)
		}
	}
	return rest, true
}

// recognised returns the legacies, and where one is of an informer that no controller here knows, since it may have
// had another name in the last leader's process, that all caches have to list anew that are known by name only.
func (m *Manager) withUnknownInformers(left []handoverEntry) []handoverEntry {
	var named []handoverEntry
	known := make(map[string]bool)
	for _, c := range m.opts.Controllers {
		for _, ca := range c.ledger.caches {
			known[ca.Name()] = true
			if !ca.learner.hasScope() {
				named = append(named, handoverEntry{Informer: ca.Name(), Relist: true})
			}
		}
	}
	if slices.ContainsFunc(left, func(l handoverEntry) bool { return l.Informer != "" && !known[l.Informer] }) {
		return append(left, named...)
	}
	return left
}

// estate is what a controller has inherited, and when that is settled.
type pendingHandover struct {
	ledger  *ledger
	settled <-chan struct{}
}

// settledWithin waits until all are settled, d has passed or ctx has ended, and returns those that are not.
func waitForHandover(ctx context.Context, waiting []pendingHandover, d time.Duration) (left []pendingHandover) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for _, e := range waiting {
		select {
		case <-e.settled:
		case <-ctx.Done():
			left = append(left, e)
		}
	}
	return left
}

// handoverOwner owns the debts that a leader takes over. No object has this name.
var handoverOwner = Key{Name: "\x00the last leader"}

// legacies returns what is to be left to the next leader.
func (l *ledger) handoverEntries() (all []handoverEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.caches {
		for _, left := range c.followedScopes() {
			part := left.Namespace
			now := c.progress(part)
			if now.unfollowed {
				continue
			}
			// What was written to one namespace may have been followed with all, or the other way round, by then.
			here := func(of string) bool {
				return of == part || of == metav1.NamespaceAll ||
					part == metav1.NamespaceAll
			}
			for of, written := range c.written {
				if here(of) && c.stillValid(written, of, now) {
					left = left.merge(handoverEntry{ResourceVersion: written.resourceVersion})
				}
			}
			for of, shown := range c.shown {
				if here(of) && c.stillValid(shown, of, now) {
					left = left.merge(handoverEntry{Listed: shown.resourceVersion})
				}
			}
			for _, a := range l.accounts {
				left.Relist = left.Relist || slices.ContainsFunc(a.debts, func(d *debt) bool {
					return d.object.cache == c && (d.kind == unseenDeletion || d.kind == unknownOutcome) &&
						here(c.scopeName(d.object.key.Namespace))
				})
			}
			if left != left.subject() {
				all = append(all, left)
			}
		}
	}
	return all
}

// followed returns what the informer of a cache asks for, without a word about it. Of one whose requests do not pass
// TrackWrites no more is known than its name.
func (c *cache) followedScopes() (all []handoverEntry) {
	for _, s := range c.learner.allScopes() {
		t := s.target
		all = append(all, handoverEntry{Host: t.host, Group: t.group, Resource: t.resource, Namespace: t.namespace})
	}
	if len(all) == 0 {
		return []handoverEntry{{Informer: c.Name()}}
	}
	return all
}

// stands reports whether a mark of a namespace is of the cluster as it is, which has not gone back to an older state
// since. now is that of the part to which it belongs if the namespace is followed no longer.
func (c *cache) stillValid(m mark, namespace string, now progress) bool {
	if own := c.progress(namespace); !own.unfollowed {
		now = own
	}
	return m.rewinds == now.rewinds
}

// unsteady returns, for want of a word, what caches may have missed: all of them, or, if the Lease was waited for,
// those that have not followed the server for that long.
func (l *ledger) unsteady(waited bool) (all []handoverEntry) {
	for _, c := range l.caches {
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

// inherit takes the last leader's debts over, and returns a channel that is closed when they are settled; nil if they
// are. It notes in taken which of them are about caches of this ledger, which then knows of them.
func (l *ledger) oweHandover(all []handoverEntry, taken []bool) <-chan struct{} {
	for _, c := range l.caches {
		take := func(i int, namespace string) {
			left := all[i]
			taken[i] = true
			d := &debt{owner: handoverOwner, object: object{c, Key{Namespace: namespace}}, resourceVersion: left.ResourceVersion}
			now := c.progress(namespace)
			if left.Relist || left.Listed != "" && !kube.AtLeast(now.resourceVersion, left.Listed) {
				d.kind, d.list = unknownOutcome, c.Relist(namespace, nil)
			} else {
				l.mu.Lock()
				c.noteShown(namespace, mark{left.Listed, now.rewinds})
				l.mu.Unlock()
			}
			if d.kind == unknownOutcome || d.resourceVersion != "" {
				l.owe(d)
			}
		}
		for i, left := range all {
			if left.Informer != "" && left.Informer == c.Name() {
				take(i, left.Namespace)
			}
		}
		for _, s := range c.learner.allScopes() {
			// The other process may know the server under another name; but if this one knows several servers, the
			// names have to do.
			sameHost := slices.ContainsFunc(all,
				func(left handoverEntry) bool { return left.concerns(s) && left.Host == s.target.host })
			for i, left := range all {
				if left.concerns(s) && !(sameHost && left.Host != s.target.host) {
					take(i, s.target.namespace)
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

// doubtLegacies lets the informers of caches that are behind list anew.
func (l *ledger) relistForHandover(log klog.Logger) {
	l.mu.Lock()
	var behind []object
	if a, ok := l.accounts[handoverOwner]; ok {
		for _, d := range a.debts {
			behind = append(behind, d.object)
		}
	}
	l.mu.Unlock()
	for _, o := range behind {
		c, namespace := o.cache, o.key.Namespace
		log.Error(nil, "The cache is behind what the last leader wrote; its informer lists anew, and the workers wait",
			"informer", c.Name(),
			"health", c.HealthIn(namespace))
		l.relistBehind(c, namespace, fmt.Errorf("the cache has not seen for %s what the last leader wrote", doubtAfter))
	}
}

// disinherit waits for the last leader's writes no longer.
func (l *ledger) dropHandover() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.accounts[handoverOwner]; ok {
		for _, d := range slices.Clone(a.debts) {
			l.pay(nil, d, d.partition.progress(), false)
		}
	}
}
