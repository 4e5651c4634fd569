package reconcile

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
)

// This file says in which parts of the caches a key needs to be sure of what it sees: see Options.Namespaces.

// needed appends the namespaces that a key needs to list. The error is a panic of Options.Namespaces.
func (c *Controller) needed(list []string, key Key) ([]string, error) {
	switch {
	case c.namespaces == nil: // NamespaceAll, if the key has none
		return append(list, key.Namespace), nil
	case key.Namespace == metav1.NamespaceAll:
		list = append(list, debts.Elsewhere)
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
	for _, n := range c.needs {
		n.await(key)
	}
	for _, r := range c.references {
		r.await(key)
	}
	return c.ledger.AwaitNamespaces(key, needed)
}
