// Package family has the informers that come and go while a Manager runs. An informer is made when an object of some
// controller first names it, and is given up when no object names it any more.
//
//	in    User.Changed    an object names other informers than before
//	      User.Await      a worker has taken a key: must it wait for an informer that its object names?
//	      Family.Get      Reconcile asks for an informer
//	      Family.Run      the Manager runs the family
//	out   User.Open       an informer is about to run: it is to become a source of the controller
//	      User.Close      and is one no longer
//	      User.Arrived    the keys that have run without an informer are to run again
//	      User.Ready      a key is about to act on an informer
//	      debts.Ledger    lets keys wait, and settles what they wait for in an informer that is given up
//
// The package knows neither Controller nor Manager, no source and no queue. All that it has of a controller is a
// [User].
//
// # The lock
//
// Family.mu guards the informers of a family by name. An index of the informer whose objects name them may be read with
// it held (User.Named), and a goroutine may be started. No function of the user's is called with it: while one makes an
// informer, others wait for that informer (member.over).
//
//	members   has what a name stands for now: an informer that runs, or one that a goroutine is about to open
//	leaving   has those that were members and are being given up; past has what they have counted when they have left
//
// # The goroutines
//
//	name         started by                             ends when                           waited by
//	keeper of X  Family.Run                             its ctx ends                        Family.Run
//	informer X   the keeper, or a worker that is first  nothing names it, or that ctx ends  Family.Run
//
// # Reading order
//
// user.go, family.go, member.go, health.go.
package family
