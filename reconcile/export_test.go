package reconcile

import (
	"context"

	"github.com/thermostat-go/thermostat/workqueue"
)

// This file is all that the tests of the public API see of the inside: what is left behind, and a run on a goroutine of
// the test.

// StuckAfter is how long a call may go on after its context has ended.
const StuckAfter = stuckAfter

// Queue returns the queue of the keys.
func (c *Controller) Queue() *workqueue.Queue[Key] { return c.queue }

// Busy returns how many keys the table knows more of than their past.
func (c *Controller) Busy() int { return c.keys.Busy() }

// Owes reports whether a key waits for a cache.
func (c *Controller) Owes() bool { return c.ledger.Owes() }

// Gone returns the keys of other processes that no object of a cache names.
func (c *Controller) Gone() []Key { return c.gone.All() }

// Alive returns an error if workers are missing.
func (c *Controller) Alive() error { return c.alive() }

// Handle reconciles the key of a claim, within a ctx, as a worker does.
func (c *Controller) Handle(ctx context.Context, claim workqueue.Claim[Key]) {
	handle, _ := c.Worker(ctx, nil)
	handle(claim)
}

// Worker makes a worker of the goroutine that calls it, for one claim. checkStuck is what its timer calls.
func (c *Controller) Worker(ctx context.Context, startReplacement func()) (handle func(workqueue.Claim[Key]),
	checkStuck func()) {
	w := newWorker(c, ctx, ctx, startReplacement)
	return func(claim workqueue.Claim[Key]) {
		defer w.stuckTimer.Stop()
		w.handle(claim)
	}, w.checkStuck
}
