// Package tap reads lists and watches of a client that is somebody else's with package wire. The client has a transport
// of [Wrap], and is called with a context that carries a mark:
//
//	informer --ctx with a mark--> client --request--> transport --> server
//	    ^                           |                     |
//	    |                        answer <-- stand-in <----+---- body
//	    +------ objects <-- wire <------------------------------+
//
// The transport finds the mark in the request's context, lets wire have the body of the answer, and gives the client a
// stand-in: a list of the same kind and version without items, which comes when the true one has ended, or a watch
// without events that lasts as long as the true one. So an error of the connection is an error of the client, too.
// Everything but an answer of the status 200 passes unchanged.
//
// Whoever made the client may have put something behind it: a function that changes what it lists, a scheme that
// decodes to other types. So the first object of the first list and of the first watch is in the stand-in as well. If
// what the client returns is not what wire has made of the object, the informer leaves all requests to the client from
// then on. It may differ in its kind and version only: then the objects get those that the client returned. And what
// wire cannot read is read by the client the next time.
//
//	transport.go   Wrap, and the stand-in for a body
//	tap.go         Tap: the requests of one informer
//	list.go        a list
//	watch.go       a watch
package tap
