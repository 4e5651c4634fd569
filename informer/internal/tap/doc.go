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
// Whoever made the client may have put something behind it: a function that selects or changes what it lists, a scheme
// that decodes to other types. So the first objects of lists, and of watches, are in the stand-ins as well. If what the
// client returns is not what wire has made of them, the informer leaves all requests to the client from then on. They
// may differ in their kind and version only: then all objects get what the client has returned. And what wire cannot
// read is read by the client the next time.
//
//	transport.go   Wrap, and the stand-in for a body
//	tap.go         Tap: the requests of one informer
//	list.go        a list
//	watch.go       a watch
package tap
