// Package reconcile calls a function of yours, a [Reconciler], for every object whose state may differ from the
// desired one, until the two agree.
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
// name keys: [For] names the object's own key, [Owns] the key of its owner, [Watches] the keys that a function of yours
// returns, and [DependsOn] none, for an informer that is only read. A [Condition] says which updates are worth a look,
// such as [GenerationChanged]. [WatchesChan] makes a source of a channel. A
// [Manager] runs the informers of its controllers, waits until the caches are complete, campaigns for leadership if
// there is an [Elector], and runs the workers while it leads. It is a place for the rest of a program as well:
// functions that run beside the workers or only while it leads, health checks, HTTP handlers. The package's example
// shows all of it in one program. Package program has a main function that finds the API server and ends at a signal.
//
// What most Reconcilers do to objects (conditions, status, finalizers, owner references, creations, server-side apply)
// is in package objects, which is below this one in the tree and imports none of it.
//
// # What is promised
//
// The functions that keep a promise stand in parentheses.
//
//   - Calls for one key never overlap (workqueue.Queue.Take). No call begins before the caches are complete
//     (Manager.waitForCaches), after the context has ended (worker.handle), or without leadership (Manager.campaign).
//   - After the last change of an object, a call for its key begins that sees this change or a later one (addSource).
//   - With [TrackWrites], no call for a key begins before the caches that its controller depends on show what the calls
//     before it wrote (ledger.park). Such a key is parked and holds no worker. Nothing but the cache ends the wait
//     (debt.settled). If an event does not show a write within 10 s, even if no source names the key meanwhile, the
//     informer lists anew (relister.scan): the cache is behind, and Stale until the list is complete. A write whose
//     answer was lost takes such a list at once. Your code needs no expectations.
//   - However many keys are parked, each cache and namespace of a controller lists once for all of them. The pauses
//     between such lists grow to 30 s (partition.look).
//   - Reconcile is never called for a key whose object is invalid (worker.reconcile): the cache could not decode its
//     present state, so Get returns an old state or none, and the object is not gone; or a condition panicked on it.
//     Options.Invalid is called in its place. So a key that Get does not find, in a cache given to [For], is that of an
//     object which does not exist. In any other cache ask [informer.SharedIndexInformer.Invalid], too, before you take
//     an object for gone.
//   - A key that has written an object which a cache cannot take stays parked until the cache can take it, or the
//     object is gone: no call could see what the last one wrote, and the next one would write it again. The log says
//     so. The key's own object does not park it: Options.Invalid sees the metadata of what was written (debt.hidden).
//   - Keys that only the first list names, or a resync, wait behind those that a change names, and a change raises a
//     key that waits. None waits for ever: of a lower priority every eleventh key at least is handed out, if there are
//     two priorities (Controller.add). Options has priorities and groups of your own.
//   - If the last leader released its Lease with a handover, see [Elector], a new leader's workers start when its
//     caches have seen what the leaders before it wrote (Manager.awaitHandover). A cache that has not after 10 s, or 1
//     s if its informer has selectors, lists anew; after another 10 s the workers start even so, and the log says so,
//     as an error. Without a handover all caches are listed anew first. After a crash there is no handover, but the new
//     leader has waited for LeaseDuration: that is enough if watches lag by less. A cache that has not been Live for 5
//     s by then is listed anew first. The handover is about the caches of all controllers, whoever of them has written,
//     and it has the writes of ManagerOptions.WhileLeading, too (debtor.note). Where the writer's controller does not
//     have the cache, a lost answer, or a deletion whose answer does not tell the last version, costs the next leader a
//     list of it.
//   - No call begins while a cache is older than its informer's MaxStaleness, if that is set: the key is parked
//     (ledger.park).
//   - If an informer follows several namespaces one by one, see [informer.NewNamespaced], all this holds for the
//     namespace of the key and of what was written: a namespace that is incomplete or behind holds back only its own
//     keys, and keys without a namespace. At the start the workers wait for all namespaces. A namespace that the server
//     refuses later does not hold back its keys by that alone: the cache is Denied there and keeps what it has, and
//     only own writes and MaxStaleness park the keys. No call is made for a key in an added namespace before it is
//     complete in each cache that has it; so add it first to caches whose objects name no keys. The loop no longer
//     waits for writes in a namespace that has been removed.
//   - No call begins for a key before the cache of an [informer.Referenced] knows each object that the key's object
//     names (ledger.park, see [References]). A name that is refused holds back the keys that name it, and neither other
//     keys nor /readyz.
//   - A key that fails comes back after 5 ms, then 10 ms, and so on up to 1,000 s; success resets the delay
//     (worker.finish). See [Reconciler] for the table.
//   - A key in a hot loop is slowed down, and named in the log, after twenty repetitions: by 1 s and more, up to 5
//     minutes (package internal/keys). In a hot loop only the key's own runs bring it up, and they repeat
//     themselves: they write the same fields of the same objects again, delete what they created, or ask for a
//     RequeueAfter below 100 ms. Or another writer undoes what the key writes, and it writes that again: that is
//     noticed after about 32 writes, because fields are compared from the tenth on. To create objects, to delete them,
//     or to move a number step by step towards zero is progress, however many runs it takes. To move a number up is
//     progress for 1,000 steps: after that it looks like a counter of runs. Any other change that names the key brings
//     it up at once. [Options].AllowHotLoops switches the detection off.
//   - A panic of Reconcile is an error, and so is runtime.Goexit, with which t.FailNow ends a goroutine (worker.call).
//     Neither loses a key or a worker. An object on which a function of a source or a
//     condition panics is invalid for that source, and harms no other object: see [Watches]. A panic anywhere else, as
//     in a log sink, a Recorder, a RateLimiter or a runnable, is a bug of the program and ends the process.
//   - The context of a call ends after Options.Timeout. A call that does not return even so keeps its key, and another
//     worker takes over (worker.checkStuck). /healthz fails when there are more such calls than workers.
//   - /readyz fails while a first list is missing, and while any cache is not Live (Manager.notReady). One namespace
//     that the server refuses makes the process unready for all of them; the workers go on. Everybody may read it, so
//     it shows kinds of errors, such as 403 Forbidden, and not their texts.
//   - [Manager.Run] returns when everything that it started has ended. If something does not end in time, Run's error
//     says what.
//   - A process is not ready while it could not lead: while the server refuses access to the Lease, say. It asks again
//     within 5 s after access is granted (Manager.notReady).
//
// # The life of a debt
//
// A write of a call that a cache does not show yet is a debt of the call's key. A key with debts is not reconciled,
// although sources name it: it is parked. A parked key holds no worker, nothing polls it, and it is put back into the
// queue when its last debt is paid. The end of a debt brings back only a key that was parked, or a write of which was
// undone; any other key runs when something names it. Not noticed is that a change of an object was undone which the
// cache has never held, if a field selector decides whether it should. So return the error of a write: a key whose
// Reconcile swallows it may not come back.
//
//	a request that Reconcile makes with its ctx                            tracker.RoundTrip
//	  |
//	  +- it is sent: the key waits for the answer                          debtor.sends
//	  +- it is a dry run, or refused ---------------------> no debt        dryRun, refused
//	  +- answered: in each cache that may show the object ---+             debtor.wrote
//	  +- the answer is lost: in each cache of the resource --+             debtor.lostAnswer
//	                                                         |
//	       the cache shows the write already: no debt <------+             ledger.owe
//	                                                         v
//	  a worker takes the key and parks it --------------> open             ledger.park
//	                                                         |
//	  an event of the object has come -----------------------+             ledger.saw
//	  the cache has reached a version, or completed a list --+             ledger.reached
//	    (for a write that is overdue the informer lists      |             partition.look
//	    anew; for a lost answer it does so at once)          |
//	                                                         v
//	       the cache shows the write, or never will ----> paid             debt.settled, ledger.pay
//	                                                         |
//	  a parked key is queued, and runs <- it was the last ---+             ledger.wakeUp
//
// What a key waits for, by what the answer to the write says (newWrite):
//
//	the object at a version     until the cache holds the object at that version or a later one; or has reached that
//	                            version and does not hold it: the object has gone since, or is not selected
//	the object is gone          until the cache does not hold it and has reached the object's last version. If the
//	                            answer does not tell that, until the object has left the cache; what the cache has
//	                            never held may be about to come: until a list is complete
//	nothing, or no answer       until a list is complete
//
// A list that began after the write ends each of them, as it shows what is, also if the cluster has gone back to an
// older state. So does the end of a namespace in the informer's scope. Nothing else does.
//
// An answer that shows an object with a deletionTimestamp, and with neither finalizers nor a grace period left, says
// that the object is gone, also if it answers a PUT or PATCH: the server has deleted it with the last finalizer. Only a
// namespace may have stayed, and so may an object whose collection was deleted. Nothing is known to be wrong with the
// cache then, and it lists anew after 1 s.
//
// An object that the informer does not select now may have been selected before, and the cache may be about to show
// that. So the key waits for this cache, too, until it has reached the version; if neither events of other objects nor
// a bookmark bring the version within 1 s, the informer lists anew. Only a new object that is not selected is not
// waited for. One case cannot be told: while a key deletes an object and the answer has no version, as for custom
// resources, others take the object out of the selection and back in. The cache that shows it leave may show it once
// more.
//
// Mostly the wait is as long as the watch takes to bring the write: milliseconds. Where the watch is broken it is 10 s
// and the time of a new list. No time limit ends it: a call that cannot see what the last one wrote would do it again.
// So a key stays parked as long as the write has no answer, the list fails, or the cache cannot take the object.
// [Controller.Why] says which of these it is. The log says so after 10 s: it names each key of the first and of the
// last kind, and one key of each cache and namespace whose list does not come. [Controller.Stats] counts the keys in
// Parked, and its LongestParked says for how long the first of them has waited.
//
// A version is reached, and a list complete, in one partition of a cache: in a namespace that the informer follows by
// itself, or in all of them. A server whose versions are not numbers allows no other comparison than equality.
//
// Not waited for, as the answer does not tell what has become of the object: a binding and an eviction. If the leader
// has made one, the next leader's caches list anew, unless the leader's has listed since and they have come as far. A
// write of an Event by one of its two groups is not waited for in a cache of the other.
//
// # What you owe
//
// Objects from an informer are shared: copy one (DeepCopy) before you change it. Make requests with the ctx of the
// call. Make the clients from what [ClientConfig] returns, with the Elector if there is one: a Manager cannot wrap
// clients that exist. The loop ends the ctx of its calls when leadership is lost, but only the Elector's fence refuses
// a write that is made with another ctx. Do not keep what you have read for the next call: read it again. Store state
// in the cluster, not in the memory of the process. [Causes] reports why a key is reconciled: for logs, not for
// decisions.
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
// The library logs with klog. Reconcile finds its logger with klog.FromContext(ctx): it has the names of the controller
// and the key as "controller" and "key"; that of a runnable has "runnable".
//
// klog.SetSlogLogger(logger), as the first line of main, sends every line to a logger of log/slog, and
// klog.SetLogger(zapr.NewLogger(logger)) to one of zap; the lines of client-go go there, too. A logger for one Manager
// goes into the ctx of its Run, with klog.NewContext; the few lines that are written where there is no ctx, about
// functions of sources that panicked, still go to klog's own. Verbosity 4 is slog.LevelDebug, and verbosity 1 is one
// below slog.LevelInfo.
//
//	errors       each failure of a key, with what comes next; a panic of your code; and what keeps a controller from
//	             its work for a while: a cache that does not follow its server, an object that cannot be taken into a
//	             cache, a hot loop, keys that are parked for long
//	info         what the process does: it campaigns, leads, stops; what it waits for at the start, every 10 s; failed
//	             tries of an election; writes that are not waited for: see [TrackWrites]
//	verbosity 1  the workers start, the caches are complete, the health of a cache changes in the ordinary way
//	verbosity 2  each list or watch that failed, connections to a server of package serve that failed
//	verbosity 4  each run of a key with its causes; keys that are parked, and no longer are
//
// A condition that lasts is logged when it begins and when it ends, both times as an error or both as info. The library
// logs no object and no value of one. But it logs the texts of errors: those that your Reconcile returns, and those of
// the API server, which may quote values.
//
// # The goroutines
//
//	name                       started by    ends when                                         waited by
//	informer X (and its own)   Manager.Run   everything below it has ended                     Manager.Run
//	ManagerOptions.Serve       Manager.Run   the same                                          Manager.Run
//	runnable X, of Throughout  Manager.Run   it returns; its ctx ends with the informers       Manager.Run
//	channel X of controller Y  Manager.Run   the Manager is told to stop, or X is closed       Manager.Run
//	runnable X, of Beside      runBeside     it returns; its ctx ends after the workers        runBeside
//	runnable X, WhileLeading   runWorkers    it returns; its ctx ends as for a worker          runWorkers
//	worker of controller X     runWorkers    leadership ends, or the Manager is told to stop   runWorkers
//	relister of controller X   runWorkers    the same                                          runWorkers
//
// Workers stop before informers, so that none reads a cache that is no longer updated. When the Manager is told to
// stop, calls that are under way may go on for DrainTimeout, and the Lease is kept for them. When leadership is lost,
// their context ends at once.
//
// # Reading order
//
// The way of a key: reconciler.go, source.go with references.go, condition.go and panicking.go, controller.go, then
// package internal/keys, which has the table of what is known of the keys; worker.go with stuck.go and usercode.go,
// run.go. Own writes: clientconfig.go, track.go with request.go, response.go and leading.go; scope.go, debtor.go,
// debt.go, ledger.go with cache.go, relister.go; writerecord.go with changedpaths.go and updatepaths.go, and package
// internal/diff. The process: manager.go, runnable.go, campaign.go, handover.go, health.go. What can be asked:
// stats.go, inspect.go with stage.go; package status has the types, and Why as text. Package objects, with a reading
// order of its own, comes last: the loop does not need it, and most Reconcilers do.
package reconcile
