package reconcile

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// This file says in which parts of the caches a key needs to be sure of what it sees: see Options.Namespaces.

// elsewhere cannot be the name of a namespace. A key that needs no namespace needs this one: caches of all namespaces,
// and of objects without one, answer for it, and caches of some namespaces have nothing to say.
const elsewhere = "-"

// needed appends the namespaces that a key needs to list. The error is a panic of Options.Namespaces.
func (c *Controller) needed(list []string, key Key) ([]string, error) {
	switch {
	case c.namespaces == nil: // NamespaceAll, if the key has none
		return append(list, key.Namespace), nil
	case key.Namespace == metav1.NamespaceAll:
		list = append(list, elsewhere)
	default:
		list = append(list, key.Namespace)
	}
	err := lifecycle.Try(func() { list = append(list, c.namespaces(key)...) })
	if err != nil {
		return list, fmt.Errorf("Options.Namespaces: %w", err)
	}
	return list, nil
}

// awaitCaches lets a key wait for each cache that may not be acted on in one of these namespaces, or that its object
// names, and no longer for those that it waits for in other namespaces. It reports whether the key waits for nothing
// since then, and is in the queue again.
func (c *Controller) awaitCaches(key Key, needed []string) (woken bool) {
	l := c.ledger
	for _, n := range c.needs {
		n.await(key)
	}
	for _, in := range l.caches {
		for _, namespace := range needed {
			if !in.byName && !in.ready(namespace) {
				l.awaitReady(key, object{in, Key{Namespace: namespace}})
				if !in.byNamespace.Load() {
					break // all of it is one place
				}
			}
		}
		in.awaitNamed(key, l)
	}
	return l.open.Load() > 0 && l.awaitNoLonger(key, func(place object) bool {
		return !place.cache.byName && !place.cache.comes && !slices.Contains(needed, place.key.Namespace)
	})
}

// awaitNoLonger lets a key wait no longer for some parts of the caches to be ready. It reports whether that has put the
// key into the queue.
func (l *ledger) awaitNoLonger(key Key, of func(place object) bool) (woken bool) {
	l.mu.Lock()
	var keys []wokenKey
	if a, ok := l.accounts[key]; ok {
		for _, d := range slices.Clone(a.debts) {
			if d.kind == status.DebtNotReady && of(d.object) {
				keys = l.pay(keys, d, d.partition.progress())
			}
		}
	}
	l.mu.Unlock()
	l.wakeUp(keys)
	return len(keys) > 0
}
