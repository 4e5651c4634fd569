// Package workqueue holds the keys that need attention, and gives each of them to one worker at a time.
//
//	             informer                                   you are here ->  workqueue        reconcile
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key-> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->                           |                                                   |
//	  ^                                       +------------------ Get / index lookups ------------+
//	  +------------------------------- create / update / patch / delete --------------------------+
//
// # Why keys
//
// A controller does not react to events; it looks at an object and makes it so. Between the two stands a queue of
// keys, not of events or objects, and most of what makes controllers robust follows from that. Ten changes of an
// object lead to one more look at it. A key can be tried again later without remembering what its object looked like.
// Any later change makes up for a missed one. And the memory of the queue is bounded by the number of objects, however
// slow the workers are.
//
// # The life of a key
//
//	     AddAfter (setAlarm)            Add (want)
//	   +--------------------- (unknown) ---------+
//	   |                                         |
//	   v        its time comes (ring, want)      v   Take, Get (start)
//	delayed ----------------------------------> ready -------------> active <--+
//	   ^                                         ^                   | | | |   | Add (want):
//	   |                                         | end, dirty        | | | +---+ it is dirty now
//	   |                                         | (finish, enqueue) | | |
//	   |                                         +-------------------+ | |
//	   |  DoneAfter, Retry, RetryAfter (finish, setAlarm)              | |  Done, Rest (finish, release)
//	   +---------------------------------------------------------------+ +---> (unknown)
//
// The methods in parentheses are those of core that do the step, with the lock held.
//
// A key is in the queue once, however often it is added: adding a ready key does nothing, and adding an active key
// makes it dirty, so that it becomes ready again, once, when its run ends. It is never ready and active at once.
//
// A delay is an alarm that is set for a key, and rings whatever state the key is in; so a ready or an active key may be
// delayed as well. A key has two alarms. One belongs to the adds ([Queue.AddAfter]): the earliest time asked for
// counts. The other belongs to the outcome of the latest run ([Claim.DoneAfter], [Claim.Retry], [Claim.Rest]): the next
// claim clears it, as that run will have an outcome of its own. [Queue.Cancel] clears both.
//
// # What is promised
//
// For every key, between New and ShutDown, with any number of goroutines:
//
//   - Exclusion. At most one worker has it: only a key that is idle gets into line (core.want, in core.go), and it is
//     active from core.start to core.finish. A claim ends once; the queue counts further calls
//     and ignores them (Claim.use).
//   - Once. At most one more run of it is outstanding beyond the present one (core.want).
//   - At least once. A run begins after each add, or the key is among those that [Queue.Drain] returns.
//   - No invention. No run begins without an add or an outcome that asked for it.
//   - Time. No run begins before the earliest time asked for, and a key becomes ready when the timer fires (core.ring).
//   - Order. First in, first out; with priorities and groups, within each group of a priority (line.pop).
//   - No starvation. [Options] says how often the queue can pass over a priority, and a group (line.best).
//   - Nothing left. Once a key is unknown, the queue keeps nothing of it but spare room (core.release). Only the rate
//     limiter may keep its count, until an hour and a minute after the longest delay that it can return (perKey.sweep).
//   - One time. While a method holds the lock, it reads the clock once (core.now). So one decision never takes a key
//     for too early in one place and for due in another.
//
// # What you owe
//
// End every claim with the outcome that the run had, also if the run panics: a claim that is not ended keeps its key
// from all workers, on purpose. A bare deferred Done is wrong: it reports a failed run as a success, and so resets the
// delays of its key; the example of [Claim.Retry] shows a right one. Shut the queue down, or the workers wait for ever.
//
// A key must be equal to itself. A key that contains a NaN is not, and could never be found again: the Add methods
// panic, as they do for a key that cannot be compared at all. The rate limiters treat each failure of such a key as its
// first.
//
// # Two ways to ask for work
//
// [Queue.Take] has a context and returns a [Claim], whose end is also the outcome of the run; package reconcile uses
// it. [Queue.Get] and [Queue.Done] make a Queue fit wherever client-go's TypedRateLimitingInterface does. As these two
// know a run by its key alone, a Done too many can end the run of another worker that used Get; it cannot end a claim.
// A test compares the behaviour with client-go's; it is the same, with these exceptions:
//
//   - A stray Done never queues a key twice.
//   - ShutDownWithDrain waits for what is queued as well.
//   - The default rate limiter has no bucket, in which one key that fails for ever would delay all other keys.
//   - AddAfter without a delay is an Add, and does not count as a retry.
//   - Options.Name registers no metrics; [Stats] has the figures.
//
// # What it takes
//
// A ready key takes at most 170 bytes, a delayed one 110, beyond what the key refers to: measured with a million keys
// of 32 bytes, and asserted by a test. The memory is given back when the keys are gone.
//
// # Inside
//
// A queue has one lock, one timer and no goroutine: delayed keys are in a heap whose first alarm sets the timer, and
// each worker that finds no ready key waits at a channel of its own. Read queue.go first, the surface; then claim.go,
// how a worker gets a key and gives it back; core.go, each step of a key's life; and entry.go, what the queue knows
// about a key. delay.go (the alarms), priority.go (whose turn it is) and limiter.go (the rate limiters, which have a
// timer of their own) can be read by themselves; index.go (the hash table) and metrics.go come last. There is no clock
// to pass in: in a [testing/synctest] bubble a test controls the time.
package workqueue
