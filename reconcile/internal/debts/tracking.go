package debts

import (
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// Tracking knows whether the informers of a process make their requests through TrackWrites. It is a mistake if those
// of some do and those of others do not: it would show as duplicate objects some day. If none does, the program does
// not use TrackWrites. Safe for concurrent use.
type Tracking struct {
	Ledgers Ledgers     // of all controllers; set before the first call
	some    atomic.Bool // at least one does
}

// Check looks at all caches. The error joins those of informers that do not, if others do.
func (t *Tracking) Check(log klog.Logger) error {
	some := false
	var missing []error
	for l, c := range t.caches {
		passed, unread := c.Learner.Tracked()
		if !passed {
			missing = append(missing, untracked(l, c))
			continue
		}
		some = true
		if !c.Learner.HasScope() {
			log.Info("An informer asks for what is no collection of a Kubernetes API, so writes there are not waited "+
				"for, unless Wrote and Deleted tell of them",
				"controller", l.Controller, "informer", c.Name(), "address", unread)
		}
	}
	t.some.Store(some)
	if len(missing) > 0 && !some {
		log.Info("No informer makes its requests through TrackWrites, so own writes are waited for only where Wrote " +
			"and Deleted tell of them: make all clients from what reconcile.ClientConfig returns")
		return nil
	}
	return errors.Join(missing...)
}

// CheckComing is Check for a cache that comes and goes, once its informer has made requests.
func (t *Tracking) CheckComing(l *Ledger, c *Cache) error {
	passed, _ := c.Learner.Tracked()
	switch {
	case !passed && t.some.Load():
		return untracked(l, c)
	case !passed || t.some.Swap(true):
		return nil
	}
	var missing []error // it is the first one that does
	for l, other := range t.caches {
		if passed, _ := other.Learner.Tracked(); !passed {
			missing = append(missing, untracked(l, other))
		}
	}
	return errors.Join(missing...)
}

// caches yields the caches whose informers have had an answer to a request. Such a request has passed TrackWrites, if
// any ever will. A list that has begun may not have been sent yet, and an informer that follows no object or no
// namespace yet asks for nothing.
func (t *Tracking) caches(yield func(*Ledger, *Cache) bool) {
	for _, l := range t.Ledgers {
		for _, c := range l.Caches() {
			h := c.Health()
			if h.Lists > 0 && (h.Listed > 0 || h.LastError != nil) && !yield(l, c) {
				return
			}
		}
	}
}

func untracked(l *Ledger, c *Cache) error {
	return fmt.Errorf("controller %s depends on informer %s, whose requests do not pass TrackWrites as those of other "+
		"informers do: make its client from what reconcile.ClientConfig returns, too", l.Controller, c.Name())
}
