// Package apiserver is a Kubernetes API server in memory, for unit tests in virtual time. Clients of every kind (typed, dynamic, metadata, REST) talk
// to it through their own transport, in JSON or protobuf, and cannot tell it from a real one:
//
//	synctest.Test(t, func(t *testing.T) {
//		server, err := apiserver.New(apiserver.Options{})
//		clients := kubernetes.NewForConfigOrDie(server.Config())
//		...
//	})
//
// # What it promises
//
// It is no approximation. What it answers, a real server would have answered: codes and reasons, resourceVersions and their order, generations,
// managed fields, the events of watches. The corpus (corpus_test.go) is a list of requests that the tests send to both, and compare the answers. What it
// does not model it refuses, with code 501 and a message that begins with "not modelled"; so a test that passes has not passed by accident.
//
// Modelled are
//
//   - storage: one resourceVersion that each write moves by one, every version of every object, lists as they were at a version, compaction with 410,
//     pages that stay at the version of the first, restores that turn the version back
//   - watches: from a version, from now, or with the list in front; selectors, bookmarks, timeouts; each event once and in order
//   - writes: conflicts, preconditions, generated names, dry runs, writes that change nothing, generations, the status subresource, finalizers, pods
//     that take time to go, JSON, merge and strategic merge patches, server-side apply
//   - the scale subresource, and field validation, strict or with warnings
//   - custom resources, which are registered in [Options]; [ReadCRDs] makes them from their manifests, with the defaults, the pruning and the validation that
//     their schemas ask for
//   - discovery, and of OpenAPI as much as kubectl needs
//   - authorization by the roles of manifests: [ReadAccess], [Server.LinkAs]
//   - garbage collection by owner references, and the deletion of namespaces: some time after the write that is the reason for it
//   - of the built-in kinds the fields that modelled.go lists, with all of their defaults and checks; an object that sets another one, to more than
//     its zero value, is refused
//
// There is no admission but that of namespaces, and no controller but the garbage collector: no scheduler, no kubelet. A [Listener] serves processes and other
// languages over HTTP.
//
// # Time
//
// Nothing happens by itself but by the clock of the bubble. The server has no goroutine and no buffer: a request is served on the goroutine of the client,
// and a watch finds its next event in the history when somebody reads. Only the garbage collector is started by a timer. So a test decides what
// happens when, and the same test does the same each time.
//
// # Faults
//
// A [Link] is the way of one client to the server, and has the faults: requests that are delayed, refused, or served without an answer ([Link.Inject]), watches
// that bring everything late or never ([Link.DelayWatches]) or end ([Link.CutWatches]), a process that dies ([Link.Close]). The [Server] has those that
// all clients see: [Server.Compact], [Server.Restore], [Server.CutWatches].
//
// # Reading order
//
// store.go, resource.go; request.go, link.go with fault.go, serve.go, codec.go; list.go, watch.go; write.go, patch.go with managers.go, delete.go; strict.go,
// scale.go, crd.go with schema.go; collector.go; rbac.go, discovery.go with openapi.go, listen.go; builtin.go, pod.go and modelled.go.
package apiserver
