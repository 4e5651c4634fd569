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
)

// A new leader's caches may lag behind what the old leader wrote just before it left: the very stale cache that TrackWrites guards against, across two
// processes. So the old one leaves word, in the Lease that it releases, of how far its writes have got in each resource, and the new one starts its workers
// when its own caches are there. A cache that is not there within parkingTime lists anew; after as long again the workers start all the same, and the log
// says so.
//
// A leader that crashes leaves no word. Then the time for which the Lease stands unchanged before anybody takes it has to do: LeaseDuration, 15 s, in which
// the caches of a standby have caught up, if its watches lag by less. But what took the leader away may have taken the standby's watches, too, an API server
// that was killed, for one: a cache that does not follow the server, or has not for [steadyTime], lists anew before the workers start.

// handover is what an [Elector] may have beside Run, as *leaderelection.Elector does: a way to leave word for the next leader, and to read what the last one
// has left.
type handover interface {
	Leave(word string)
	Left() string
}

// legacy is how far a leader's writes to one resource have got: in one namespace, if its informer follows namespaces by themselves, or in all. Relist says
// that there is something that no version tells: a deletion that was not seen, or a write whose outcome is unknown.
type legacy struct {
	Host            string `json:"host"`
	Group           string `json:"group,omitempty"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Relist          bool   `json:"relist,omitempty"`
}

func (l legacy) about(s *scope) bool {
	return l.Group == s.target.group && l.Resource == s.target.resource && (l.Namespace == s.target.namespace || l.Namespace == "" || s.target.namespace == "")
}

// steadyTime is how long a cache has to follow the server without a break, until nobody doubts that it has been told of what happened before.
const steadyTime = 5 * time.Second

// An object has room for 256 kB of annotations. Of more legacies than this it is not told in which namespaces they are.
const maxLegacies = 500

// leave returns the word to be left, which is never empty.
func (m *Manager) leave() string {
	all := []legacy{}
	add := func(l legacy) {
		same := func(other legacy) bool {
			return l.Host == other.Host && l.Group == other.Group && l.Resource == other.Resource && l.Namespace == other.Namespace
		}
		i := slices.IndexFunc(all, same)
		if i < 0 {
			all = append(all, l)
			return
		}
		if !atLeast(all[i].ResourceVersion, l.ResourceVersion) {
			all[i].ResourceVersion = l.ResourceVersion
		}
		all[i].Relist = all[i].Relist || l.Relist
	}
	for _, c := range m.opts.Controllers {
		for _, l := range c.ledger.legacies() {
			add(l)
		}
	}
	if len(all) > maxLegacies {
		apart := all
		all = nil
		for _, l := range apart {
			l.Namespace = ""
			add(l)
		}
	}
	word, err := json.Marshal(all)
	if err != nil {
		panic(err) // there is nothing in it that cannot be encoded
	}
	return string(word)
}

// inherit waits until the caches of all controllers are as far as the word says, or, without one, until they have caught up with the server. It returns false if
// ctx has ended before.
func (m *Manager) inherit(ctx context.Context, word string) bool {
	log, began := klog.FromContext(ctx), time.Now()
	var left []legacy
	if word != "" {
		if err := json.Unmarshal([]byte(word), &left); err != nil {
			log.Error(err, "What the last leader has left in the Lease cannot be read; it is taken for nothing")
			word = ""
		}
	}
	var waiting []estate
	for _, c := range m.opts.Controllers {
		all := left
		if word == "" {
			all = c.ledger.unsteady()
		}
		if settled := c.ledger.inherit(all); settled != nil {
			waiting = append(waiting, estate{c.ledger, settled})
		}
	}
	waiting = settledWithin(ctx, waiting, parkingTime)
	for _, e := range waiting {
		e.ledger.doubtLegacies(log)
	}
	waiting = settledWithin(ctx, waiting, parkingTime)
	for _, e := range waiting {
		e.ledger.disinherit()
	}
	if ctx.Err() != nil {
		return false
	}
	if len(waiting) > 0 {
		log.Error(nil, "Caches are still behind what the last leader wrote; the workers start all the same", "after", time.Since(began))
		return true
	}
	log.V(1).Info("The caches have seen what the last leader wrote", "took", time.Since(began))
	return true
}

// estate is what a controller has inherited, and when that is settled.
type estate struct {
	ledger  *ledger
	settled <-chan struct{}
}

// settledWithin waits until all are settled, d has passed or ctx has ended, and returns those that are not.
func settledWithin(ctx context.Context, waiting []estate, d time.Duration) (left []estate) {
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

// heir owns the debts that a leader takes over. No object has this name.
var heir = Key{Name: "\x00the last leader"}

// legacies returns what is to be left to the next leader.
func (l *ledger) legacies() (all []legacy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.caches {
		for _, s := range c.learner.all() {
			part := s.target.namespace
			now := c.now(part)
			if now.foreign {
				continue
			}
			left := legacy{Host: s.target.host, Group: s.target.group, Resource: s.target.resource, Namespace: part}
			for of, written := range c.written {
				// What was written to one namespace may have been followed with all, or the other way round, by then.
				here := of == part || of == metav1.NamespaceAll || part == metav1.NamespaceAll
				if here && written.rewinds == now.rewinds && !atLeast(left.ResourceVersion, written.resourceVersion) {
					left.ResourceVersion = written.resourceVersion
				}
			}
			for _, a := range l.accounts {
				left.Relist = left.Relist || slices.ContainsFunc(a.debts, func(d *debt) bool {
					return d.object.cache == c && (d.deleted || d.list > 0) && c.part(d.object.key.Namespace) == part
				})
			}
			if left.ResourceVersion != "" || left.Relist {
				all = append(all, left)
			}
		}
	}
	return all
}

// unsteady returns, for want of a word, what caches may have missed.
func (l *ledger) unsteady() (all []legacy) {
	for _, c := range l.caches {
		for _, s := range c.learner.all() {
			h := c.HealthIn(s.target.namespace)
			if h.State != informer.Live || time.Since(h.Since) < steadyTime {
				all = append(all, legacy{Host: s.target.host, Group: s.target.group, Resource: s.target.resource, Namespace: s.target.namespace, Relist: true})
			}
		}
	}
	return all
}

// inherit takes the last leader's debts over, and returns a channel that is closed when they are settled; nil if they are.
func (l *ledger) inherit(all []legacy) <-chan struct{} {
	for _, c := range l.caches {
		for _, s := range c.learner.all() {
			// The other process may know the server under another name; but if this one knows several servers, the names have to do.
			sameHost := slices.ContainsFunc(all, func(left legacy) bool { return left.about(s) && left.Host == s.target.host })
			for _, left := range all {
				if !left.about(s) || sameHost && left.Host != s.target.host {
					continue
				}
				d := &debt{owner: heir, object: object{c, Key{Namespace: s.target.namespace}}, resourceVersion: left.ResourceVersion}
				if left.Relist {
					d.list = c.Relist(s.target.namespace, nil)
				}
				l.owe(d)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[heir]
	if !ok {
		return nil
	}
	a.settled = make(chan struct{})
	return a.settled
}

// doubtLegacies lets the informers of caches that are behind list anew.
func (l *ledger) doubtLegacies(log klog.Logger) {
	l.mu.Lock()
	var behind []object
	if a, ok := l.accounts[heir]; ok {
		for _, d := range a.debts {
			behind = append(behind, d.object)
		}
	}
	l.mu.Unlock()
	for _, o := range behind {
		c, namespace := o.cache, o.key.Namespace
		log.Error(nil, "The cache is behind what the last leader wrote; its informer lists anew, and the workers wait", "informer", c.Name(),
			"health", c.HealthIn(namespace))
		l.doubt(c, namespace, fmt.Errorf("the cache has not seen for %s what the last leader wrote", parkingTime))
	}
}

// disinherit waits for the last leader's writes no longer.
func (l *ledger) disinherit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.accounts[heir]; ok {
		l.settle(slices.Clone(a.debts), func(*debt) bool { return true })
	}
}
