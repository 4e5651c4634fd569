// Package keys is the table of what a controller knows of its keys: what has named a key, what holds it, its run, its
// past, and whether it repeats itself. The state of a key, status.KeyState, is told here and nowhere else.
//
//	in    Named, Compare     a source names a key because of a change
//	      Hold, Free         a key must not run until it is freed, or until a time
//	      Begin, End         a worker takes a key, which runs or must wait; the run has ended
//	      Run.Wrote, ...     the transport tells what the run does
//	out   Begin              a key that is held, or rests in a hot loop, must wait, and for how long
//	      List, Describe     what is known of all keys, or of one
//
// The table knows neither queue nor worker: it puts no key into the queue, it starts no goroutine and calls no code of
// the user's. A [Turn] is what it needs of a worker.
//
// # The lock
//
// A function whose name ends in Locked is called with Table.mu held, or, of a Run, with the Run's.
//
// Table.mu guards the entries of all keys, and what they point to, except for a Run, which has a lock of its own. That
// one may be taken with Table.mu held, and Table.mu with the lock of a caller of Hold or Free. Nothing outside of the
// package is called with either of them held, but for the function given to Run.WhileItGoesOn.
//
//	entry   in keys while its key has a cause, is held, runs, or has a record, and as long as its stats matter
//	held    has the entries with holds, and only these; parked has the parked ones of them, by age
//	past    has the records, each in one of its two lists; an entry's record is in it
//
// # Reading order
//
// table.go, hold.go, causes.go, run.go; past.go with view.go. Hot loops: authorship.go, hotloop.go, recurrence.go. Keys
// of other processes: gone.go.
package keys
