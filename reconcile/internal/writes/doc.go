// Package writes finds out what a controller writes. Its transport reads requests and answers. It says which object was
// written, and at which version, and whether what an informer asks for may show it.
//
//	in    Track              the requests of all clients, and their answers
//	      WriterKey          a ctx has the Writer that makes requests with it
//	      WithLearner        a ctx has the Learner of the informer that makes requests with it
//	out   Debtor             a write is sent, is answered, has written this, or its outcome is unknown
//	      History            each request, for the history, with the fields that it changes
//	      Scope.MayShow      whether an informer may show what was written
//
// The package decides neither which cache has to show a write nor for how long a key waits: that is what a Debtor is
// for. It knows no controller, no key's state and no queue. It starts no goroutine, and the transport keeps nothing
// of a request once it is answered.
//
// # The lock
//
// Learner.mu guards what is known of an informer's requests. Nothing outside of the package is called with it held.
//
// # Reading order
//
// transport.go, with request.go and response.go; scope.go. For the history: record.go with paths.go.
package writes
