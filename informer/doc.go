// Package informer keeps a copy of what a Kubernetes API server holds, follows every change, and tells those who ask.
//
// A controller reads far more than it writes. It would be slow, and unkind to the server, to ask each time; so it lists
// a kind of object once, watches it from there on, and reads from memory. That copy is the cache that every controller
// believes. This package is about when it may be believed.
//
//	       .------------------------ this package -------------------------.
//	       |                                                               |  workqueue        reconcile
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key---------> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->  (1)              (2)     |           (3)              |                   (4)            |
//	  ^    |                                  +------------------ Get / index lookups ------------------------+
//	  |    '---------------------------------------------------------------'                                  |
//	  +------------------------------- create / update / patch / delete --------------------------------------+
//
// # Vocabulary
//
//   - An object has a [Key], its namespace and name, which others may use after it, and a UID, which nobody will.
//   - Each change of an object gives it a new resourceVersion. Versions of one resource rise; a list has one, too.
//   - The reflector lists and watches. Listing again, because a watch cannot be resumed, is a relist. A bookmark is the
//     server saying "nothing new up to this version". A streamed list is a watch that begins with what exists.
//   - A delta is one step in the life of a key; the DeltaFIFO holds those that the store has not taken yet.
//   - The indexer is the store: objects by key, and, for each [Index], by what a function says of them.
//   - A [Handler] is told [Event] values: Added, Updated, Deleted. The initial state is what the first list held or,
//     for one who joins late, the store.
//
// # The life of one object
//
// Somebody creates the pod "web". The server writes version 41 and sends ADDED down every watch. The reflector decodes
// the event, lets Options.Transform trim the pod, and puts a delta into the FIFO; it never waits for anybody, since a
// watcher that does not read is cut off. Another goroutine pops all deltas at once, computes the pod's index values,
// takes the store's lock, and only then are pod and indexes changed, together. Now each handler gets an Added event
// into its own buffer.
//
// The pod changes twice, versions 44 and 47, while the store is busy. In the FIFO 47 replaces 44: nobody will miss a
// state that is over. Handlers are told Updated, with the state they saw last as Old and 47 as New.
//
// Then the connection breaks, "web" is deleted and created again, and the server forgets what happened in between. The
// reflector resumes at 47, is answered 410 Gone, and lists. The list holds a "web" with another UID, so the old one
// must have been deleted: handlers are told Deleted, with FinalStateUnknown because nobody saw its last state, then
// Added. What the list does not hold any more is Deleted in the same way. What has not changed is not told again.
//
// # Guarantees
//
// For a handler h, a key k, and the sequence of the events of k that h is called with:
//
//	order         (Added Updated* Deleted)*, all of one round with one UID, resourceVersions rising. Calls that end in a panic do not count, nor
//	              does a resync, for those who want one: it repeats the state before it. A server that changes an object and keeps its version
//	              gets an Updated with the same one; the lists of such a server are believed when they say that nothing has changed. What a Rescope
//	              has taken away may come back as it was.
//	Old           of an Updated is the New of the event before it.
//	truth         every New is a state that the server held.
//	cache first   when h is called, Get(k) answers with that state or a later one.
//	convergence   if the server can be reached and k no longer changes, the last event tells its state, and Get agrees.
//	sync          Synced is closed when the store has held everything of one consistent list, in each namespace if there are several;
//	              Registration.Synced, when h has returned from all of it.
//	snapshot      each read (Get, All, a lookup) sees one moment of the whole store.
//
// In plain words: a handler sees a subsequence of the truth, in order, and is told of the present sooner or later. It
// is not told of every state: what was replaced before anybody looked is gone, unless a handler wants it
// (HandlerOptions.Every). Whoever needs a count of changes, or their causes, must not look for them here. Between keys
// there is no order. The cache always lags a little; what was just written may not be in it.
//
// When the server cannot be reached the cache keeps answering, and [Health] says that it is stale, since when, and why.
// An object whose present state cannot be taken, because Options.Transform fails on it or, with [REST], because it
// cannot be decoded, keeps its last good state, and [SharedIndexInformer.Invalid] says why; nobody is told that it was
// deleted.
//
// Where not even its name can be read it may be any. Then what a list does not contain is kept, too: if there is
// anything of that kind, the cache is stale for that reason, Fresh says so, and it is listed again, after half a minute
// at first and about every five minutes later, until there is a list that can be read.
//
// Whatever fails is tried again in one way: after a time that grows to 30 s, or as long as the server asks for in
// Retry-After, 5 minutes at most. [SharedIndexInformer.Relist] ends the former wait early, and the end of Run's context
// each. A server that does not stream lists is listed by pages, whatever it says instead, unless that is that it wants
// to be asked later.
//
// The cache is stale, too, when the goroutine that feeds it has been in one call for three minutes, of the client or
// its transport, of Options.Transform, an index function or an inline handler: a timer looks at it from outside.
//
// A panic of such code, or its end of the goroutine (runtime.Goexit, and so t.FailNow), is an error of that call.
//
// The store never goes back in time, whatever a server that lags may say, with one exception: if the cluster itself has
// gone back, restored from a backup, the store follows it: after each connection that was lost the server is asked for
// its version, with a list of one object, if there is a way to list one. Handlers then see resourceVersions fall once,
// and Health.Rewinds counts.
//
// # Several namespaces
//
// [New] makes an informer of what one client lists. One that [NewNamespaced] has made follows several namespaces, each
// by a list-watch of its own, for a program that may not list the whole cluster. They
// share the store, the handlers and the bounds, and otherwise have nothing to do with each other: a namespace that is
// refused, behind or restored from a backup leaves the others alone. So versions are reached, lists are complete and
// caches are fresh in a namespace, and the methods that tell of that take one. Of two namespaces there is no common
// moment, as there is none of two resources.
//
// [SharedIndexInformer.Rescope] changes the namespaces and the selectors while the informer runs. Handlers are told of
// the difference, and of nothing else.
//
// # What you owe
//
//   - Never change an object that you were given: it is everybody's. Copy it first.
//   - Let a handler be quick, or at least return. However slow it is, it delays nobody else and what waits for it is
//     bounded, but it will see less. Inline handlers and index functions run inside the informer: these must be quick.
//   - Look at the state, not at the event. An event says that it is worth looking.
//
// # Goroutines
//
//	name       started by           ends when                      waited for by
//	reflector  Run, Rescope         Run's context ends, or its     Run
//	                                namespace is out of scope
//	store      Run                  Run's context ends             Run
//	lister     reflector            its list or watch ends         the reflector
//	verifier   with a reflector,    with that                      Run
//	           if asked for
//	handler    Run, AddHandler      the same, or Remove            Run, Remove
//	request    lister, verifier,    the answer to a list begins    the same
//	           Live
//	splitter   the same             the answer to its request ends the same; only with REST
//	decoder    splitter             its few objects are decoded    the same
//
// There is no other. Run returns once they have ended, or after Options.StopGrace with [ErrStuck], which names those
// that are still inside of somebody's code.
//
// The reflector has the FIFO behind it because a server closes a watch that is not read; a handler has its buffer in
// front of it because one that is slow must not hold up the others. Both buffers are merged by key, so neither outgrows
// what exists, unless HandlerOptions.Every forbids it.
//
// # Testing code that uses an informer
//
// Inside a bubble of testing/synctest time is free, and synctest.Wait returns when every event has been handled. A fake
// clientset of client-go will do. It cannot stream a list. A client that says so, by a method
// IsWatchListSemanticsUnSupported as client-go's reflector looks for, is believed, and so is the client of one resource
// that is of a package named fake; others need Options.DisableWatchList. The objects of a fake have no versions, or
// such as the test has set, so what it creates is taken as it comes. The server in memory of package
// reconcile/reconciletest has all that the fakes lack. Without a bubble, [SharedIndexInformer.WaitUntil] waits until the
// cache shows what the test has written.
//
// # Reading order
//
//	object.go      what is held: Key, Object, item
//	client.go      where it comes from
//	reflector.go   list and watch, as a state machine; stream.go and pagedlist.go, the two ways to list, one of which goes on as the watch; page.go, a page
//	               that is on its way
//	rest.go        the same by the bytes, which internal/wire makes objects of
//	quarantine.go  what came and could not be taken
//	deltafifo.go   what the store has not taken yet
//	listwatch.go   one list-watch, with all that is its own
//	indexer.go     the store, around the table of internal/store; index.go, its lookups
//	writer.go      how the one becomes the other, and who is told
//	handler.go     Event, Handler, Filter; listener.go, the buffer and goroutine of each
//	retry.go       what a handler panicked on; resync.go and rotation.go, what it wants to be reminded of
//	mutation.go    who changed a cached object
//	informer.go    New, Run and the rest of the surface; scope.go, several namespaces, and how they and the selectors change
//	health.go      what an informer knows about itself, and how little of it is logged; pulse.go, which of its goroutines
//	               no longer moves
//	gate.go        how long a server that has asked for it is left alone
//	live.go        questions past the cache, among them what a server has lost; relist.go, the cache anew
//
// What can go wrong, which test shows what then happens, and what client-go does on the same script, is printed by
//
//	go test -run TestRows -v ./informer
//
// Package informer/clientgo is all of this in the shape of client-go's informers.
package informer
