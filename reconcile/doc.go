// Package reconcile calls a function of yours, a [Reconciler], for every object whose state may differ from the
// desired one, until the two agree.
//
//	            informer                                          workqueue        reconcile  <- you are here
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key-> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->                           |                                                   |
//	  ^                                       +------------------ Get / index lookups ------------+
//	  +------------------------------- create / update / patch / delete --------------------------+
//
// This says what a user of the package relies on. How it is kept, by which function, and in which order to read the
// code is in internals.md.
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
// such as [GenerationChanged]. [WatchesChan] makes a source of a channel. [Needs] makes sources of informers that come
// and go while the Manager runs: those of the kinds, or namespaces, that objects name. A [Manager] runs the informers
// of its controllers, waits until the caches are complete, campaigns for leadership if there is an [Elector], and runs
// the workers while it leads. It is a place for the rest of a program as well: functions that run beside the workers or
// only while it leads, health checks, HTTP handlers. The package's example shows all of it in one program. Package
// program has a main function that finds the API server and ends at a signal.
//
// What most Reconcilers do to objects (conditions, status, finalizers, owner references, creations, server-side apply)
// is in package objects, which is below this one in the tree and imports none of it.
//
// # What is promised
//
//   - Calls for one key never overlap. None begins before the caches are complete, after the context has ended, or
//     without leadership.
//   - After the last change of an object, a call for its key begins that sees this change or a later one.
//   - With [ClientConfig], no call for a key begins before the caches show what the calls before it wrote. Nothing but
//     the cache ends the wait, and no worker is held meanwhile. If an event does not show a write within 10 s, the
//     informer lists anew; if the answer was lost, at once. Your code needs no expectations.
//   - A new leader starts with caches that show what the leaders before it wrote. If a cache has not come that far
//     after 20 s, the workers start even so, and the log says so, as an error. After a crash it is so if watches lag by
//     less than LeaseDuration.
//   - With the Shards of package sharding in the place of an [Elector] all processes work at once, each on its share of
//     the keys. What is said here of a leader holds for each slice of the keys; that package says what differs.
//   - Where an informer follows several namespaces one by one, one that is behind holds back the keys that need it:
//     its own, those of which Options.Namespaces says so, and otherwise those without a namespace. A name in an
//     [informer.Referenced] that is not known holds back the keys that name it; so does an informer of a [Dynamic] that
//     is not complete. If its kind is not installed or is refused, Reconcile is called and told so.
//   - Reconcile is not called for a key whose object is invalid; Options.Invalid is. So a key that Get does not find,
//     in a cache given to [For], is that of an object which does not exist. In any other cache ask
//     [informer.SharedIndexInformer.Invalid], too, before you take an object for gone.
//   - A key that fails comes back after 5 ms, then 10 ms, and so on up to 1,000 s: see [Reconciler]. One in a hot loop,
//     which only its own runs bring up, is slowed down after twenty repetitions, by up to 5 minutes, and named in the
//     log; [Options].AllowHotLoops switches that off.
//   - Keys that only the first list or a resync names wait behind those that a change names. None waits for ever.
//   - A panic of Reconcile is an error of its key. An object that makes another function of yours panic, such as a
//     condition, is an invalid one. A panic anywhere else ends the process. A call that does not return keeps its key,
//     and another worker takes over.
//   - /readyz fails while a cache is not Live, and while the process could not lead. [Manager.Run] returns when
//     everything that it started has ended, or says what has not.
//
// The file internals.md has these promises in full.
//
// # Own writes
//
// A write of a call that a cache does not show yet is a debt of the call's key. A key with debts is parked: it is not
// reconciled although sources name it, and it is queued again when its last debt is paid. The end of a debt brings back
// only a key that was parked, or a write of which was undone; any other key runs when something names it. So return the
// error of a write: a key whose Reconcile swallows it may not come back.
//
// Mostly the wait is as long as the watch takes to bring the write: milliseconds. Where the watch is broken it is 10 s
// and the time of a new list. No time limit ends it: a call that cannot see what the last one wrote would do it again.
// So a key stays parked as long as the write has no answer, the list fails, or the cache cannot take the object.
// [Controller.Why] says which of these it is, and so does the log after 10 s. [status.Stats] counts the keys in Parked.
//
// Not waited for, as the answer does not tell what has become of the object: a binding and an eviction. A write of an
// Event by one of its two groups is not waited for in a cache of the other.
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
// # How it works
//
// See internals.md: a glossary, the promises in full, the life of a debt, the locks, the goroutines, and the order in
// which to read the files.
package reconcile
