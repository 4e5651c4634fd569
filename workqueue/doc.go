// Package workqueue knows which keys need attention, and when, and gives each of them to one worker at a time.
//
//	             informer                                   you are here ->  workqueue        reconcile
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key-> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->                           |                                                   |
//	  ^                                       +------------------ Get / index lookups ------------+
//	  +------------------------------- create / update / patch / delete --------------------------+
//
// # Why keys
//
// A controller does not react to events; it looks at an object and makes it so. Between the two lies a queue of keys,
// not of events or objects, and most of what makes controllers robust follows from that. Ten changes of an object are
// one more look at it. A key can be tried again later without remembering what its object looked like. A change that
// was missed is made up for by any later one. And the memory that a queue takes is bounded by the number of objects,
// however slow the workers are.
//
// # The life of a key
//
//	     add with delay              add
//	   +---------------- (unknown) -------------+
//	   |                                        |
//	   v            its time comes              v      Take, Get
//	delayed ---------------------------------> ready ------------> active <---+
//	   ^                                        ^                  | | | |    | add: it is
//	   |                                        | done, it was     | | | +----+ dirty now
//	   |                                        |     dirty        | | |
//	   |                                        +------------------+ | |
//	   |       done, "again, later"                                  | |  done
//	   +-------------------------------------------------------------+ +-----> (unknown)
//
// A key is in the queue once, however often it is added: adding a ready key does nothing, and adding an active one
// makes it dirty, so that it is ready again, once, when its worker is done. It is never ready and active.
//
// A delay is an alarm that is set for a key, and rings whatever the key does then; so a ready or an active key may be
// delayed as well. There are two alarms: one for what others asked for ([Queue.AddAfter]), of which the earliest time
// counts, and one that the outcome of the latest run left ([Claim.DoneAfter], [Claim.Retry]), which the next claim
// clears, as its own outcome is the newer one. [Queue.Cancel] clears both.
//
// One state is missing above. With Options.Rate a key that only rate-limited adds asked for, and for which there is no
// token when its turn comes, is throttled: it steps aside and lets the others pass. When there is one it competes again,
// under its own priority and group, and the keys aside and those in line take turns.
//
// # What is promised
//
// For every key, between New and ShutDown, whatever the goroutines do:
//
//   - Exclusion. At most one worker has it. A claim ends once; further calls are counted and do nothing.
//   - Once. At most one run of it is outstanding beyond the present one.
//   - At least once. A run begins after each add, or the key is among those that [Queue.Drain] returns.
//   - No invention. No run begins that nobody asked for.
//   - Time. No run begins before the earliest time asked for, and one is ready no later than the timer fires.
//   - Order. First in, first out; with priorities and groups, within each group of a priority.
//   - No starvation. See [Options] for how often a priority, and a group, can be passed over.
//   - Nothing left. When a key is unknown again the queue has no memory of it; only the rate limiter may, for an hour.
//
// # What you owe
//
// End every claim, with the outcome that the run had, also if it panics: a claim that is not ended keeps its key from
// everybody, on purpose. A bare deferred Done is not the way, as it says that a run succeeded that failed, and so resets
// the delays of its key; the example of [Claim.Retry] shows one. Shut the queue down, or the workers wait for ever. Functions of yours that are in Options are called without a lock, from many goroutines.
//
// # Two ways to ask for work
//
// [Queue.Take] has a context and gives a [Claim], whose end is also the outcome of the run; it is what package reconcile
// uses. [Queue.Get] and [Queue.Done] make a Queue fit wherever client-go's TypedRateLimitingInterface does. As these
// two know a run by its key alone, a Done too many can end the run of another worker that used Get; it cannot end a
// claim. The behaviour is client-go's, which a test compares, with these exceptions:
//
//   - A stray Done never queues a key twice.
//   - ShutDownWithDrain waits for what is queued as well.
//   - The default rate limiter has no bucket, in which one key that fails for ever would reserve everybody's time.
//     Options.Rate charges when a key is handed out instead; a key that waits for a token is not in Len.
//   - AddAfter without a delay is an Add, and does not count as a retry.
//   - Options.Name registers no metrics; [Stats] has them, for whoever wants to.
//
// # What it takes
//
// A ready key takes at most 170 bytes, a delayed one 110, beyond what a key refers to: measured with a million keys of
// 32 bytes, and asserted by a test. The memory is given back when the keys are gone.
//
// # Inside
//
// One lock, one timer, no goroutine: what waits for time is in a heap ([time.AfterFunc] rings for its top), who waits
// for work is in a list of channels. Read queue.go first, then claim.go and entry.go, then delay.go, limiter.go and
// priority.go, which stand for themselves; index.go and metrics.go last. There is no clock to pass in: put a test in a
// [testing/synctest] bubble and time is yours.
package workqueue
