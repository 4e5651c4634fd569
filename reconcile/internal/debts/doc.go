// Package debts knows what a controller has written and its caches do not show yet, and lets the keys wait that must
// not run before they do. [debt.settledLocked] is the only judge of that. internals.md of package reconcile has the
// life of a debt as a picture.
//
//	in    Debtor             the transport of package writes tells what becomes of a key's writes
//	      Saw, Reached       an informer has told of an object, or has come to a version
//	      AwaitReady, ...    a key needs a part of a cache that may not be acted on yet
//	      Park               a worker has taken a key: must it wait?
//	      Join, GiveUp       a cache comes, or goes
//	      Ledgers.Inherit    what the last leader has left
//	      Tracking           the informers have made their first requests: do all of them take part?
//	out   keys.Table         holds the keys that are parked
//	      enqueue, unparked  the two functions given to New: a key runs again, now that nothing is missing
//	      arrived            that given to Join: so do the keys that have run without a cache, which is complete now
//	      Informer.Relist    the informer is asked for a list, if a write is not shown in time
//	      Owed               what a key waits for
//	      Ledgers.Left       what the next leader's caches must have seen
//
// The package knows neither worker nor run, and nothing of the queue but these functions. Of a cache it knows what
// an [Informer] tells, and calls nothing else of the informer's. It does not know what a handover looks like on the
// Lease.
//
// # The locks
//
// Ledger.mu guards the debts of a controller, in all of its caches. The package calls these functions and the log
// without it; a cache may be read with it held, for an informer tells the ledger of what has happened without holding a
// lock of its store. So whether an event or the answer to the write comes first is decided here: owe looks at the cache
// with the lock held, under which Saw pays. Ledgers do not wait for each other: one lock of them is held at a time.
//
// A function whose name ends in Locked is called with Ledger.mu held, or, of coming, with coming.mu.
//
// Three small locks may be taken with it held: coming.mu, for the list of the caches that come and go, and after it
// writes.Learner.mu; and Cache.afterMu, for the parts of a cache that wait for a list.
//
// # The goroutine
//
// RunRelister is one, for each controller while it leads: it asks for the lists that are due. The package starts none.
//
// # Reading order
//
// debt.go; ledger.go with cache.go and partition.go; debtor.go; ready.go with coming.go; relister.go. What a leader
// leaves to the next one: legacy.go, inheritance.go. Do all informers take part? tracking.go.
package debts
