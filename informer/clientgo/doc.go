// Package clientgo is for code that is written against client-go's informers. It has constructors with the names,
// signatures and types of package k8s.io/client-go/tools/cache, and what they make runs on package informer. Replace
// the constructor: listers, generated factories and all other code that takes a cache.SharedIndexInformer, a
// cache.Indexer or a cache.Store works as before.
//
//	pods := clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
//
//	factory.InformerFor(&corev1.Pod{}, func(client kubernetes.Interface,
//		resync time.Duration) cache.SharedIndexInformer {
//		return clientgo.NewSharedIndexInformer(podsOf(client), &corev1.Pod{}, resync, indexers)
//	})
//
// and, the other way round, [NewClient] lets package informer list and watch through a cache.ListerWatcher.
//
// # Wire
//
// A client of client-go decodes a list as a whole, each object for itself, before an informer sees the first of them.
// With [Wire] the informer reads the bytes itself, object by object while they arrive, and what objects have in common
// is in memory once:
//
//	cfg = clientgo.Wire(cfg) // once, before clients are made of it
//
// Of 150,000 pods each takes 3.7 kB of the heap where client-go's takes 8.1, and the peak of the process is less than
// half. A manager of controller-runtime is made with the configuration and with cache.Options.NewInformer; a factory
// takes NewSharedIndexInformer as above; so do the dynamic client and the one for metadata, each with its own example
// object.
//
// The ListerWatcher and its client are called as always. The informer marks the context of the request, and the
// transport of the configuration recognizes it: it leaves the answer to the informer, and gives the client a list of
// the same kind and version, or a watch that lasts as long. Typed objects, unstructured ones and metadata, JSON and
// protobuf, pages, streamed lists and bookmarks are read so. Every answer but 200 is the client's, and so is what
// breaks a connection in the middle of an answer. Objects have the kind and version that the client would give them, or
// none.
//
// The first hundred objects of lists, and of watches, are decoded by the client as well. The informer leaves its
// requests to the client, as if there were no Wire, if it returns something else than was sent: if the ListerWatcher
// selects or changes objects, or gathers several lists or watches, or if its client decodes to another type than the
// example object. It does so, too, if the requests do not arrive at the transport with their context, and for answers
// in CBOR. One line of the log says so for each informer. A ListerWatcher that leaves the first hundred as they are,
// and changes others, is not found out: it must not be used with Wire.
//
// An answer that cannot be decoded, in whole or in one object, fails as a whole, as with client-go; the client reads
// the next one, so that the error is its own. A single object may have no more than 16 MB and a list no more than 16
// GB.
//
// Objects of the cache are read-only, as client-go's are, but whoever changes one nevertheless changes others that
// share memory with it. A transform function may change them: they share once it has returned, as far as it has left
// them as they were, and strings only if they are unstructured. It must not hand them to another goroutine.
//
// # Packed
//
// With [PackedInformers], or packed.Informers, which says how, an informer holds bytes, and decodes an object when
// somebody asks for it. It is for programs that cache much and read little of it. Stores, indexers, listers and
// handlers are as before, but what they hand out is another object each time, unless it was asked for lately, and it
// takes time: package informer/packed says how much.
//
// # Whose contract
//
// Where client-go documents what happens, that is what happens here, also where package informer promises more:
//
//   - Nothing is merged. Each change that the server sends changes the cache, and each handler is told of each change
//     of the cache: an object that is created and changed at once is OnAdd and OnUpdate. So what has come and waits for
//     the store, because of a slow index function, grows without bound, and so does what waits for a slow handler.
//   - What a list or watch repeats is an update with an equal resourceVersion, for handlers that resync, and for all if
//     the informer does not.
//   - A handler that panics ends the process, unless utilruntime.ReallyCrash is false: then it is not called again
//     with that event. It is not called again either with an event on which it has called runtime.Goexit.
//   - An object is in the store under the name that the transform function leaves it.
//   - What is written to the store by hand stays until the next list is complete, which undoes it.
//   - The store's version, LastStoreSyncResourceVersion, moves with each change that a watch sends and each bookmark.
//     A list moves it once, when the store holds all of it, although its objects come into the store one by one.
//   - A WatchErrorHandler is told of lists and watches that fail, with these exceptions: a streamed list that is
//     replaced by a plain one, a list at a version that has expired and is repeated, a watch that does not begin
//     because the connection is refused or the server is busy (429).
//   - The feature gate WatchListClient, and the variable KUBE_FEATURE_WatchListClient, are asked when an informer
//     starts.
//   - If the watch has missed the deletion of an object, OnDelete gets a cache.DeletedFinalStateUnknown, by value.
//   - RemoveEventHandler does not wait. A second Run warns and returns. Run returns when every handler has.
//
// What client-go leaves open, or gets wrong, is as in package informer: an object that was deleted and created again
// under its name is OnDelete, then OnAdd, never an OnUpdate from one to the other; older data than the cache holds is
// not taken; an object that the transform function fails on is tried again; an index function that fails, or panics,
// does not end the process: the object is not found in that index, and a write to the store by hand returns the error.
// Handlers are told nothing of what is written to the store by hand, nor when a list undoes it. Objects are spread over
// the resync period, and do not come all at once. Of the metrics, only the store's resourceVersion is published, and
// only to a provider that was passed to the constructor.
//
// Errors about keys do not show the object, which may be a Secret. errors.As finds the cache.KeyError that holds it.
//
// # What it costs
//
// An informer of this package keeps a second table, by key strings, since that is what a cache.Indexer is: reads,
// writes by hand and indexes are its own. With 150,000 pods and three indexes the two take 235 bytes a pod beside the
// objects, where client-go takes 283 and an informer.SharedIndexInformer 134.
//
// # Before client-go 0.36
//
// With client-go 0.34 or 0.35 this package is built with the tag client_go_0_35:
//
//	go build -tags client_go_0_35 ./...
//
// Then there are no HasSyncedChecker, no metric and no Transaction, for which these versions have no types.
//
// # Reading order
//
// client.go, wire.go, informer.go, packing.go, store.go, handler.go, controller.go, reporting.go, since_0_36.go and
// before_0_36.go.
package clientgo
