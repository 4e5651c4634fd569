// Package reconcile makes it so: it calls a function of yours, a [Reconciler], for every object that may not be as it
// should be, until it is.
//
//	            informer                                          workqueue        reconcile  <- you are here
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key-> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->                           |                                                   |
//	  ^                                       +------------------ Get / index lookups ------------+
//	  +------------------------------- create / update / patch / delete --------------------------+
//
// # The loop
//
// Every controller in Kubernetes is this loop: observe what is, compare it with what is wanted, act on the difference,
// report. Three properties make it work, and your Reconcile has to have them.
//
//   - Level-triggered. Reconcile is given a key, never an event. It looks at the state as it is now, whatever happened
//     in between; ten changes may lie behind one call, or none.
//   - Idempotent. It is called again after an error, after a restart, and for no reason. When everything is as it
//     should be, it writes nothing.
//   - Convergent. Each call brings the world nearer to what is wanted, or fails and is called again, less and less
//     often.
//
// # The parts
//
// A [Controller] has one Reconciler, a queue of keys and a number of workers. Its sources are informers whose changes
// name keys: [For] the object's own key, [Owns] its owner's, [Watches] whatever a function of yours says; of one that
// is only read, [DependsOn], no key is named. [WatchesChan] is a source that is a channel. A [Manager] runs the informers of
// its controllers, waits until the caches are complete, campaigns for leadership if there is an elector, and runs the
// workers while it leads. The example of the package has it all in one program.
//
// What most Reconcilers do to objects (conditions, status, finalizers, owner references, creations, server-side apply)
// is in package objects, which is below this one in the tree and imports none of it.
//
// # What is promised
//
//   - No two calls for one key at a time, and no call before the caches are complete, after the context has ended, or
//     without leadership.
//   - After the last change of an object, a call for its key begins that sees this change or something later.
//   - With [TrackWrites]: no call for a key before the caches that its controller depends on have seen what the last
//     call wrote. Such a key is parked, and holds no worker. When a cache has not seen a write for 10 s the server is
//     asked, whether anything names the key or not: if the object is gone, replaced or out of the informer's sight, or
//     the server was restored from before the write, the wait is over; if not, the cache is behind: it is Stale, its
//     informer lists anew, and the key stays parked until then, since acting on it could do harm. A write whose answer
//     was lost is waited for in the same way: a new list tells whether it has happened. There is no bookkeeping of
//     expectations in your code.
//   - The server is asked, and new lists are asked for, once for each cache and namespace of a controller, with pauses
//     that grow to 30 s and are as long as it asks for: however many keys are parked there.
//   - A key whose write has become an object that a cache cannot take, see [informer.SharedIndexInformer.Invalid],
//     stays parked until the cache can, or nothing of that name is left: no call for it could see what the last one
//     wrote, and the next would do it again. The log says so.
//   - A new leader's workers start when its caches have seen what the leaders before it wrote, if the last one released
//     its Lease and left word: see [Elector]. Without word from it all caches are listed anew first. After a crash the
//     time for which the Lease is waited for has to do, under the assumption that watches lag by less than
//     LeaseDuration; caches that do not follow the server then, or have only just begun to, are listed anew first.
//   - No call while a cache is older than its informer's MaxStaleness, where that is set: the key is parked.
//   - Of an informer that follows several namespaces by themselves, see [informer.NewNamespaced], all this holds in the
//     namespace of the key, and of what was written: one that is refused or behind keeps only its own keys waiting, and
//     those that have no namespace. A namespace that is added while the controller runs is complete in each cache that
//     has it before a key there is called for; so add it to those first whose objects name no keys. What was written in
//     one that has been taken away is waited for no longer.
//   - A key that fails comes back after 5 ms, then 10 ms, and so on up to 1,000 s; success resets that. See
//     [Reconciler] for the table.
//   - A key that goes in circles is slowed down and named in the log after twenty runs: by a second and more, up to
//     five minutes. In a circle what it does recurs, and nobody but its own runs brings it up: it writes the same
//     fields of the same objects again and again, deletes what it has made, or asks for RequeueAfter below 100 ms. Or
//     somebody else undoes what it writes, and it writes that again. To make objects, to delete them, or to move
//     numbers step by step is progress, however many runs it takes. Whatever else anybody does brings the key up at
//     once. [Options].AllowHotLoops switches this off.
//   - A panic of Reconcile is an error, and so is runtime.Goexit, with which t.FailNow ends a goroutine. Neither loses
//     a key or a worker, wherever the loop calls your code: in functions of sources, in methods of errors, a
//     RateLimiter or a Recorder. The last two are replaced by their defaults then.
//   - A call that takes longer than Options.Timeout finds its context ended. One that does not return even so keeps its
//     key, and another worker takes its place; /healthz fails when there are more of those than workers.
//   - Run returns when everything that it started has ended, and if something has not, it says what.
//
// # The life of a debt
//
// A write of a call that a cache does not show yet is a debt of the call's key. A key with debts is not reconciled,
// although sources name it: it is parked. A parked key holds no worker, nothing polls it, and it is put back into the
// queue when its last debt is paid.
//
//	a request that Reconcile makes with its ctx                            tracker.RoundTrip
//	  |
//	  +- it is a dry run, or refused ---------------------> no debt        dryRun, refused
//	  +- answered: in each cache that will show the object --+             ledger.wrote
//	  +- the answer is lost: in each cache of the resource --+             ledger.lostAnswer
//	                                                         |
//	       the cache shows the write already: no debt <------+             ledger.owe
//	                                                         v
//	  a worker takes the key and parks it --------------> open             ledger.park
//	                                                         |
//	  an event shows the object, or that it has left --------+             ledger.saw
//	  the cache reaches the version, or completes a list, ---+             ledger.reached
//	    and holds the object, or a selector rules it out     |
//	  the outcome is unknown: the informer lists anew, ------+             partition.relistUnknown
//	    at once, and reached settles the debt                |
//	  10 s have passed: the prober asks the server ----------+             ledger.probe
//	    gone, replaced, ruled out, undone: paid              |
//	    the server has it: the cache is Stale, its informer  |
//	    lists anew, and reached settles the debt             v
//	                                                       paid            debt.settled, ledger.pay
//	                                                         |
//	  the key is queued, and runs <----- it was the last ----+             ledger.wakeUp
//
// What holds a key back, and for how long:
//
//	a creation or a change   until the cache holds the object at that version or a later one, or has reached the version
//	                         without the object: it came and went, or is outside of the informer's selectors
//	a deletion               until the cache holds the object with a deletionTimestamp, or has held it and no longer
//	                         does; if the cache has never held it, until it reaches a version at which the object still
//	                         existed, or completes a list that began later, or the server does not have it either
//	an unknown outcome       until a list that began after the write is complete
//	an unready cache         until the cache is complete, and no older than its informer's MaxStaleness; no write is
//	                         needed for this one
//
// Any of them ends, too, when the cluster has gone back to an older state, and when the informer no longer follows the
// namespace. Mostly the wait is as long as the watch takes to bring the write: milliseconds. Where the watch is broken
// it is 10 s and the time of a new list. No time limit ends it: a call that cannot see what the last one wrote would do
// it again. So a key stays parked as long as the server cannot be asked, the new list fails, or the cache cannot take
// the object; the log says which of these it is, [Stats] counts the keys in Parked, and its LongestParked says for how
// long the first of them has waited.
//
// A version is reached, and a list complete, in one partition of a cache: in a namespace that the informer follows by
// itself, or in all of them. Versions that are not numbers can only be compared for equality: there a list that began
// after the write settles the debt, too.
//
// # What you owe
//
// Objects from an informer are shared: copy one (DeepCopy) before you change it. Make requests with the ctx of the
// call. Do not hold what you have read for the next call: read it again. And put what others must see into the cluster,
// not into the memory of the process. Why a key has been called up, [Causes] tells: for logs, not for decisions.
//
// # How to test
//
// There are three ways, and most controllers need the first two. Package reconcile/reconciletest has a complete example
// of each, to be pasted into a test file: unit, in memory, and cluster.
//
//   - A unit test calls Reconcile with a plain ctx. Its client is a fake clientset of client-go, and its informers are
//     made from that and run. It tests decisions: what Reconcile asks for in a given state. A fake clientset has no
//     conflicts, no defaults, no garbage collection and no rights. It has no transport either, so [TrackWrites] sees
//     nothing, and [Wrote] and [Deleted] return an error, since the ctx is not that of a call by the loop. So the test
//     itself waits, before the next call, until the cache shows what this one wrote: by synctest.Wait in a bubble, or
//     by the informer's WaitUntil.
//   - The server in memory, reconciletest.NewServer, answers as a real server does, with conflicts, defaults,
//     server-side apply, garbage collection and the rights of your manifests, or says that it does not model what was
//     asked for. The whole loop runs against it, as in main, in the time of a testing/synctest bubble; and the test
//     decides which request fails, and how, which watch is late, and when the process dies. This is where a controller
//     shows that it is level-triggered and idempotent.
//   - A real control plane, of package reconcile/reconciletest/cluster, runs in real time. It is for what only a real
//     server does: its other controllers, admission, validation of every field.
//
// # Logging
//
// The loop logs with klog, and with the logger that the ctx of [Manager.Run] carries, if there is one. Reconcile finds
// its own by klog.FromContext(ctx): it has the names of the controller and the key. A failure is logged as an error
// each time, with what comes next; what is lost for a while, such as a cache's connection or a key that goes in
// circles, when it begins and when it ends, at one level; each run and its causes at verbosity 4. No line shows an
// object or a value of one.
//
// # The goroutines
//
//	name                       started by    ends when                                         waited by
//	informer X (and its own)   Manager.Run   everything below it has ended                     Manager.Run
//	HTTP server                Manager.Run   the same                                          Manager.Run
//	channel X of controller Y  Manager.Run   the Manager is told to stop, or X is closed       Manager.Run
//	worker of controller X     Manager.act   leadership ends, or the Manager is told to stop   Manager.act
//	prober of controller X     Manager.act   the same                                          Manager.act
//	probe of informer Y for X  prober        the server has answered, or the prober is to end  Manager.act
//
// Calls of your code that may end their goroutine have one of their own, which the caller waits for: functions of
// Watches and WatchesChan, a RateLimiter or Recorder of yours, a log sink.
//
// They stop in this order: workers first, so that none looks at a cache which nobody keeps up to date. When the Manager
// is told to stop, calls that are under way may finish, within DrainTimeout, and the lease is kept for them; when
// leadership is lost their context ends at once.
//
// # Reading order
//
// reconciler.go, source.go, controller.go, worker.go with guard.go, run.go; track.go with request.go, response.go and
// scope.go; debt.go, ledger.go with cache.go, prober.go; causes.go, hotloop.go with recurrence.go and
// fields.go, manager.go, handover.go, stats.go.
package reconcile
