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
//   - Nothing left. When a key is unknown again the queue has no memory of it; only the rate limiter may, until an hour
//     and a minute after the longest delay that it can ask for, whether or not anything else fails or succeeds then.
//   - One time. Under one hold of the lock the clock is read once, so no key is too early for one half of a decision
//     and due for the other half.
//
// # What you owe
//
// End every claim, with the outcome that the run had, also if it panics: a claim that is not ended keeps its key from
// everybody, on purpose. A bare deferred Done is not the way, as it says that a run succeeded that failed, and so
// resets the delays of its key; the example of [Claim.Retry] shows one. Shut the queue down, or the workers wait for
// ever.
//
// A key must be equal to itself. One that contains a NaN is not, and could never be named again: the Add methods panic,
// as they do for a key that cannot be compared at all. The rate limiters treat each failure of such a key as its first.
//
// What you put into Options is called without a lock, from many goroutines. If it panics the queue logs that, at most
// once a minute, counts it in [Stats], and goes on: a key whose group is unknown is in the unnamed one, a delay that is
// unknown is 1000 s, and a time that the metrics did not take is lost. If it calls [runtime.Goexit], the goroutine that
// called the queue ends, as always; a key that was being added is added all the same, a claim that was being ended
// ends, and a key that was being handed out is queued again.
//
// # Two ways to ask for work
//
// [Queue.Take] has a context and gives a [Claim], whose end is also the outcome of the run; it is what package
// reconcile uses. [Queue.Get] and [Queue.Done] make a Queue fit wherever client-go's TypedRateLimitingInterface does.
// As these two know a run by its key alone, a Done too many can end the run of another worker that used Get; it cannot
// end a claim. The behaviour is client-go's, which a test compares, with these exceptions:
//
//   - A stray Done never queues a key twice.
//   - ShutDownWithDrain waits for what is queued as well.
//   - The default rate limiter has no bucket, in which one key that fails for ever would reserve everybody's time.
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
// priority.go, which stand for themselves; guard.go, through which all user code is called, index.go and metrics.go
// last. A limiter has a timer of its own. There is no clock to pass in: put a test in a
// [testing/synctest] bubble and time is yours.
package workqueue
