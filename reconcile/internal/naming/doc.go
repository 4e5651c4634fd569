// Package naming finds out which keys a change of an object names, with the functions of a source that the user has
// given, and does so even if one of them panics.
//
//	in    Namer.Handle          the informer tells of a change
//	      Namer.HandleInvalid   an object cannot be taken into the store, or can be again
//	      Namer.AskAgain        the informer has reached a version: some time has passed
//	      Namer.Each            all keys are named anew, as a share of the keys has come to this process
//	out   keys.Table.Named      a key is named, and why
//	      Namer.Add             it is to be queued
//	      debts.Ledger.Saw      the cache shows a state of an object, which may be what a key waits for
//	      Invalid.Of            nobody knows which keys an object names, or whether an update of it is worth a look
//
// The package knows no queue, no worker and no Controller.
//
// # The lock
//
// A Namer has none: but for Each, it belongs to the informer's goroutine. Invalid.mu guards the objects that workers
// and people ask about. Nothing outside of the package is called with it held.
//
// # Reading order
//
// namer.go, panicking.go, invalid.go.
package naming
