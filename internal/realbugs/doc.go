// Command realbugs runs reconciletest.Check on controllers that others have released: for each of the bugs that
// README.md names, on the version that has it and on the one that has its fix; and on releases in which no bug is
// known, about which Check has to be silent. Their code is not changed.
//
//	make realbugs                          all of them; the table goes to RESULTS.md
//	cd internal/realbugs; go run . jobset  one program; -v shows what Check prints, -logs reads the last run's
//
// A test of a program is a folder of testdata, as its owner would write it; what differs between the two versions, such
// as the name of a field, is in a folder of the version. The command makes a module of it, which requires the release
// and lies below the release's own path, so that the test may import what is internal there. Compiling one takes some
// minutes of processor time, once. Of the libraries of Kubernetes and of controller-runtime it takes the versions that
// this repository tests with, and not the ones of the release, so that they are compiled once for all.
//
// A controller of Kubernetes itself is linked twice, since package reconciletest/builtin needs 1.37: an older one is
// required under another path, released.test/kubernetes, and what it imports of Kubernetes is 1.37's.
//
// # Reading order
//
// programs.go and releases.go (what is tried), build.go (the modules), run.go (a test, and what it has found), main.go
// (the tables), controllers.go (controllers that are right).
package main
