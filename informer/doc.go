// Package informer keeps a copy of what a Kubernetes API server holds, follows every change, and tells handlers.
//
// A controller reads far more than it writes. A request for each read would be slow and would load the server; so a
// controller lists a kind of object once, watches it from there on, and reads from memory. That copy is the cache. This
// package says what you can rely on when you read it, and when you cannot.
//
//	       .---------------------- this package ---------------------.
//	       |                                                         |  workqueue         reconcile
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key---> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->  (1)              (2)     |           (3)        |                   (4)            |
//	  ^    |          '<-- stored(key) -------+--------------- Get / index lookups ---------------------+
//	  |    '---------------------------------------------------------'                                  |
//	  +---------------------------- create / update / patch / delete -----------------------------------+
//
// Names in parentheses are of functions, for those who read the code; the reading order at the end has the files.
//
// # Vocabulary
//
//   - An object has a [Key], its namespace and name, which another object may have after it, and a UID, which no other
//     object ever has.
//   - Each change of an object gives it a new resourceVersion. Versions of one resource rise; a list has one, too.
//   - The reflector lists and watches. A relist is a second list, because the watch cannot be resumed. A bookmark is an
//     event by which the server says "nothing new up to this version". A streamed list is a watch that begins with the
//     objects that exist.
//   - A delta is one step in the life of a key; the DeltaFIFO holds those that are not yet in the store.
//   - The indexer is the store: objects by key, and, for each [Index], by the values of an index function.
//   - A [Handler] is told [Event] values: Added, Updated, Deleted. The initial state is what the first list held or,
//     for a handler that is added later, what the store held then.
//
// # The life of one object
//
// A user creates the pod "web". The server gives it version 41 and sends ADDED down every watch (stream.go). The
// reflector checks the event's version (watching.receive), decodes the pod, lets Options.Transform trim it
// (enqueuer.itemOf), and puts a delta into the FIFO (deltaFIFO.add). It never waits for the store, because the server
// closes a watch that is not read. The goroutine of the store takes all deltas at once (feed, deltaFIFO.pop). It
// computes the pod's index values (writer.plan), takes the store's lock, and changes the pod and the indexes together
// (writer.commit). Then each handler gets an Added event into its own buffer (writer.tell, listener.push), and its own
// goroutine calls it (listener.deliver).
//
// The pod changes twice, versions 44 and 47, while the store is busy. In the FIFO 47 replaces 44. Handlers are told
// Updated, with the state that they saw last as Old and 47 as New.
//
// Then the connection breaks, "web" is deleted and created again, and the server forgets what happened in between. The
// reflector resumes at 47, is answered 410 Gone, and lists. The list holds a "web" with another UID, so the old one
// must have been deleted: handlers are told Deleted, with FinalStateUnknown because its last state is not known, then
// Added. What the list does not hold any more is Deleted in the same way (writer.sweep). Handlers are not told of what
// has not changed (writer.known).
//
// # Guarantees
//
// For a handler h, a key k, and the sequence of the events of k that h is called with:
//
//	order         (Added Updated* Deleted)*, all of one round with one UID, resourceVersions rising (see merge).
//	              Exceptions: calls that end in a panic do not count; a resync repeats the state before it; an object
//	              that changes and keeps its version is an Updated with the same one; what a Rescope has removed, or
//	              has left with its slice, may come back with the version that it had.
//	Old           of an Updated is the New of the event before it (merge).
//	truth         every New is a state that the server held.
//	cache first   when h is called, Get(k) answers with that state or a later one (writer.commit before writer.tell).
//	convergence   if the server can be reached and k no longer changes, the last event tells its state; Get agrees.
//	sync          Synced is closed when the store has held everything of one consistent list, of each namespace if there
//	              are several (writer.sync); Registration.Synced, when h has returned from all of it (listener.deliver).
//	snapshot      each read (Get, All, a lookup) sees one moment of the whole store.
//
// In other words: a handler sees a subsequence of the true states, in order, and the present state sooner or later. It
// does not see every state: one that was replaced before the handler was called is skipped, unless
// HandlerOptions.Every is set. So do not count changes, or look for their causes, in events. Between keys there is no
// order. The cache always lags a little: what you have just written may not be in it.
//
// # When something fails
//
//   - The server cannot be reached: the cache keeps answering, and [Health] says that it is Stale, since when, and why.
//   - A watch fails, by a 503 or a dropped connection: the next watch resumes where it was. What leads to a new list is
//     in the table of fault.go (reflector.failed, leadsToList): an expired version (410), a resource that is not found
//     (404), an answer that cannot be true or decoded, and a watch that is refused twice in a row for another reason.
//     After a list, handlers are told only of what differs from the store (writer.known).
//   - No watch can be had, whatever the server answers: after 5 minutes the reflector lists instead, page by page, and
//     lists again after pauses of up to 5 minutes. After three such lists the cache is Failed for that reason, or
//     Denied, and it is as old as the latest list (reflector.failed).
//   - A connection is dead, and nothing says so: if a watch has brought two bookmarks within two minutes, a watch that
//     is silent for as long is given up. After three such watches, or without bookmarks, it is given up after as long
//     as it was to live, at most 10 minutes (watching.longest). A list follows the second watch in a row that has
//     brought nothing at all.
//   - Each watch lives for a while, brings nothing and ends before its time, as behind a proxy that holds events back:
//     a list follows after 5 minutes of that (watching.ended).
//   - The Role or the CustomResourceDefinition is missing: the cache is Denied or Missing, and the reflector keeps
//     asking, so it is enough that the Role or the definition arrives later.
//   - Only the right to watch is missing: the cache is Denied, and as old as the latest list. The first one comes after
//     5 minutes, because a streamed list is a watch, or at once with a client that cannot stream lists or with
//     Options.DisableWatchList.
//   - An object cannot be stored, because Options.Transform or an index function fails on it, with an error or a panic,
//     or because a [Resource] cannot decode it: the store keeps its last good state, and no handler is told that it was
//     deleted. [SharedIndexInformer.Invalid] says why, and has the metadata of the present state. The reason names the
//     field and its Go type if the object is JSON, and never quotes a value. HandlerOptions.Invalid is called when the
//     answer changes (writer.tellInvalidChanges).
//   - A list has an object that cannot be decoded and whose name cannot be read: it may be any object, so no deletion
//     is inferred from that list (writer.withheld). If the store keeps an object for that reason, the cache is Stale,
//     Fresh returns the reason, and the reflector lists again until a list can be read: after 10 to 20 s at first, and
//     after 10 s to 5 min 10 s later.
//   - The answer to a list ends too early: no deletion is inferred from it, the cache is Stale, or not yet complete if
//     it was the first list, and the list is tried again (reflector.failed). A [Resource] reads object by object, so
//     the store may have what came before the end.
//   - Any list or watch fails: it is tried again after a time that grows to 30 s, or as long as the server asks for in
//     Retry-After, at most 5 minutes. [SharedIndexInformer.Relist] ends the first of these waits early; the end of
//     Run's context ends both. A clientset of client-go waits for Retry-After itself, inside of its request, up to ten
//     times; the reflector gives up a watch that is not answered for 30 s, and a list for 2 minutes, and then does not
//     know of a longer Retry-After. A [Resource] leaves the wait to the reflector, and a [Gate] keeps it for all
//     clients.
//   - A streamed list fails: the reflector tries a plain list, in pages, because a server that does not stream lists
//     may answer with any error. For the first 5 minutes it does not where a plain list would fail, too
//     (hitsPlainLists): the server refuses (401, 403), does not know the resource (404), asks the client to come back
//     later (429, 503, a timeout, Retry-After), or cannot be reached.
//   - The client, its transport, Options.Transform, an index function or an inline handler does not return: if the
//     reflector or the store is in one call for three minutes, the cache is Stale, and not fresh. Health.StuckHandler
//     names any other handler (pulse.watch): its events merge, and nothing waits for it but Run at its end, see
//     [Options].StopGrace. The verifier and callers of Live only wait.
//   - A handler panics or ends its goroutine (runtime.Goexit, and so t.FailNow): see [Handler]. A panic of the client,
//     its transport or a method of an object ends the process, and nothing but a handler may end its goroutine.
//   - A server lags: the store rejects data older than its own. There is one exception: if the cluster itself has gone
//     back, restored from a backup, the store follows it. To find out, the reflector requests a list of one object, for
//     its version, after each connection that was lost, if the server allows a list. Handlers then see resourceVersions
//     fall once, and Health.Rewinds counts.
//   - A server changes objects and keeps their versions: a watch shows such a change, a list does not.
//
// # Several namespaces
//
// [New] makes an informer of what one client lists. [NewNamespaced] makes one that follows several namespaces, for a
// program that may not list the whole cluster. Each namespace has a list-watch of its own (listwatch.go). They share
// the store and the handlers, and are independent otherwise: a namespace that is refused, behind or restored from a
// backup does not affect the others. So the methods about versions, complete lists and freshness take a namespace.
// Two namespaces have no common moment, as two resources have none.
//
// [SharedIndexInformer.Rescope] changes the namespaces and the selectors while the informer runs. Handlers are told of
// the difference only.
//
// # Only what is named
//
// [NewReferenced] makes a cache of those objects only that are named, with a list-watch for each name (referenced.go,
// part.go). It is for the few Secrets that a program's objects name, of the many that a cluster has: a selector cannot
// say which these are. An object is followed from when something names it until nothing does. [Referenced.Get] returns
// an error for an object that is not named or not known yet, so "there is none" is always what the server has said.
//
// If more than Options.MaxWatches objects of a namespace are named, one watch follows the metadata of the whole
// namespace, and each named object is listed by its name when its metadata shows another version (guide.go). Nothing
// else changes: a list by name has a version, so all that is known of an object still comes from the server's answers
// about that object. Where the metadata of the namespace may not be listed and watched, each object keeps its watch.
//
// # A share of the objects
//
// Where several replicas of a program share the work, each of its informers may keep a share of the objects:
// Options.Shard, of which package reconcile/sharding has some, cuts them into slices by a hash. The server sends all
// objects; those of other slices are left out after their metadata, so memory and the time for decoding fall with the
// share (shard.go).
//
// Slices come and go while the informer runs. Objects of one that comes are listed beside the watch (filling.go), so
// the cache is Live meanwhile and follows the others; [Sharded].Wait says when it has the slice. Objects of one that
// goes are Deleted, with Event.Left set: nothing has happened to them. So an object that Get does not find does not
// exist only if it is in the share. What a program reads for the keys of its own slices is.
//
// # What you owe
//
//   - Never change an object that you were given: all readers share it. Copy it first.
//   - Let a handler be quick, or at least return. A slow one delays no other handler, but it sees less: if more than
//     1,024 events wait for it, and more than two for each object of the store, they are merged by key. Inline handlers
//     and index functions run on the informer's goroutine: these must be quick.
//   - Look at the state, not at the event. An event says only that it is worth looking.
//
// # Goroutines
//
//	name       started by           ends when                      waited for by
//	reflector  Run, Rescope         Run's context ends, or its     Run
//	                                namespace is out of scope
//	store      Run                  Run's context ends             Run
//	lister     reflector            its list or watch ends         the reflector
//	           slices that come     their list is complete, or     the reflector
//	                                another list begins
//	verifier   with a reflector,    with that                      Run
//	           if asked for
//	handler    Run, AddHandler      the same, or Remove            Run, Remove, if it returns
//	inline     store, AddHandler,   the handler has returned from  the same
//	handler    Rescope              the events in hand
//	request    lister, verifier,    the answer to a list begins    the same
//	           Live
//	guide      store                Run's context ends, or less    Run; a whole informer, of metadata
//	                                is named
//	splitter   the same             the answer to its request ends the same; only with a Resource
//	decoder    splitter             the same                       the same; only with a Resource, for a large
//	                                                                   answer
//
// There is no other. Run returns once they have ended, or after Options.StopGrace with [ErrStuck], which names those
// that are still in user code.
//
// State, freshness and progress in [Health] are those of the store: what has arrived and waits for the store, or has
// arrived with half of a list, changes none of them (listWatchHealth).
//
// The FIFO stands behind the reflector because a server closes a watch that is not read. A buffer stands in front of
// each handler because a slow one must not delay the others. Both are merged by key, so neither outgrows what exists,
// unless HandlerOptions.Every forbids it.
//
// # Testing code that uses an informer
//
// Inside a bubble of testing/synctest time is free, and synctest.Wait returns when every event has been handled. A
// fake clientset of client-go works, though it cannot stream a list. The informer finds that out from the method
// IsWatchListSemanticsUnSupported, which client-go's reflector calls too, or from the name of the client's package,
// fake; other clients that cannot stream need Options.DisableWatchList. The objects of a fake clientset have no
// resourceVersion, or one that the test has set, so the informer stores them as they come. The server in memory of
// package reconcile/reconciletest has all that the fakes lack. Without a bubble, [SharedIndexInformer.WaitUntil]
// waits until the cache shows what the test has written.
//
// # Reading order
//
// Along the way of an object, then what surrounds it:
//
//	object.go      what is stored: Key, Object, item
//	client.go      where objects come from: Client
//	tapped.go      a client that is somebody else's, whose answers internal/tap reads
//	listwatch.go   a list-watch: a reflector, its FIFO, its health; one for each namespace
//	reflector.go   when to list, when to watch, when to try again: a state machine
//	fault.go       which error leads to what
//	list.go        a plain list, page by page
//	stream.go      a watch, and a list that is streamed by one
//	receive.go     from an object that has arrived to a delta, or to a later try
//	invalid.go     what cannot be taken into the store: Invalid, and the handlers that are told
//	deltafifo.go   what is not in the store yet
//	writer.go      from the FIFO to the store, and to the handlers
//	indexer.go     the store, around the table of internal/store
//	index.go       lookups: AddIndex
//	handler.go     Event, Handler, AddHandler
//	listener.go    the buffer and the goroutine of a handler
//	retry.go       events that a handler has failed on
//	resync.go      events that repeat the state, in turns
//	informer.go    New, Options, Run, and what can be read
//	wait.go        WaitForSync, WaitForResourceVersion, WaitUntil
//	scope.go       several namespaces: NewNamespaced, Rescope
//	health.go      what the informer knows about its cache
//	weight.go      what the store takes of the heap: Health.Bytes, with internal/weigh
//	pulse.go       which goroutine no longer moves
//	part.go        what one list-watch has: a namespace, an object, everything
//	referenced.go  only what is named: NewReferenced, AddReferences
//	guide.go       many names in a namespace: its metadata in place of a watch for each name
//	shard.go       a share of the objects: Options.Shard
//	filling.go     the objects of slices that come, beside the watch
//	live.go        what the server holds now: Live, and Options.VerifyEvery
//	mutation.go    which object of the cache was changed: Options.DetectMutations, with internal/fingerprint
//	resource.go    a client for any Go type: NewResource
//	endpoint.go    its requests, and what a server's error leaves out
//	format.go      how it encodes objects, with their kind
//	verbs.go       Get, Create, Update, Patch, Delete
//	apply.go       Apply, for apply configurations
//	subresource.go scale, binding, eviction, token: NewSubresource
//	rest.go        List and Watch by the bytes, of which internal/wire makes objects
//	cached.go      NewCached: a client and an informer in one call
//	group.go       NewGroup: the caches of a program, with one error at the end
//	gate.go        leaving a server alone that has asked for it
//
// The rows of faults, the test of each, and what client-go does on the same script, are printed by
//
//	go test -run TestRows -v ./informer
//
// Package informer/clientgo has the same in the shape of client-go's informers.
package informer
