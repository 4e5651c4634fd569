// Mutate asks whether the tests of a package would notice a bug. It changes the package in small ways, one at a time,
// and runs the tests: a change that makes one fail is killed, one that does not survives, and each survivor is a
// missing test or a change that changes nothing.
//
//	go run ./mutate -dir ../.. workqueue leaderelection                  # in internal/tools; or make mutate
//	go run ./mutate -dir ../.. -at delay.go:114 workqueue                # only what is on that line
//	go run ./mutate -dir ../.. -since HEAD~20 informer                   # only what is on lines that changed since
//	go run ./mutate -dir ../.. -tests reconcile reconcile/internal/keys  # with the tests of another package too
//
// # How
//
// All mutants of a package are compiled into one test binary, and with -tests into one of each package named there; an
// environment variable says which of them is active. Compiling each mutant by itself takes up to 12 seconds of a core
// and 40 MB of the build cache, which is more than its tests take.
//
//	find      list the mutants of the package, or of the lines since a commit             find.go, skip.go, since.go
//	weave     make a < b (activeMutant(7) && (a <= b) || !activeMutant(7) && (a < b))    weave.go
//	compile   build the test binaries, without the mutants that do not compile             compile.go
//	choose    leave out tests that need more than their process, fail, or take long      tests.go
//	record    run each test alone, to see which mutants it comes across                  tests.go
//	run       try a seeded sample, each mutant with the tests that come across it        run.go
//	report    print the scores, and each survivor with its line before and after         report.go
//
// The score is the share of mutants that are killed, out of those that are tried. A mutant that lets a test run for
// more than four times as long as without it, and 4 s, counts as killed, unless the test is as slow without it by then,
// as on a machine that is busy: then there is more time. One that no test comes across is not tried: the report counts
// it apart. Survivors are no error: the exit code is 0.
//
// The work tree is only read. What is compiled goes to a temporary directory, the report to .build/mutants, with a
// line for each mutant that says which test killed it.
//
// # What is changed
//
// Conditions of if and of switch (never, always), comparisons, terms of && and || (one is dropped), !, + - * /, ++
// and --, true and false, whole numbers (one more), an err that is returned (nil), statements (deleted: assignments,
// calls, defer, go, sends, break, continue, return without a value) and whole functions (which return zeros at once).
//
// Some changes are left out since others on the same line are harder to notice: && for ||, and != for == where it is
// all of an if's condition. Log lines, the texts of panics and errors, String methods, locks and generated code are
// not changed.
package main
