// Command upgrades measures package reconcile/plan on operators that others have written, each in two published
// versions. For each it starts a control plane, lets the old version work until it is at rest, and asks for two plans:
// of the old version, which runs, and of the new one. Then it starts each of them for real, and compares: what they
// wrote by the audit log, what has changed in the cluster, and which pods are others than before.
//
//	make upgrades                         all of them; the table goes to RESULTS.md
//	cd internal/upgrades; go run . kro    one of them; -v shows the reports. kro@v0.9.3: one upgrade of it
//
// The operators are built from their Go modules, which takes some minutes of processor time each, once. Nothing of
// theirs is in this repository but the names of modules, files and flags. A pod of theirs runs nothing: the stand-in of
// package cluster says that it is ready.
//
// # What is compared
//
// A write is predicted if the plan has a change of that object, and has come if the audit log has a write of the
// operator to it that was not refused, and the object is another one than before, but for its versions, its times and
// what else no two runs have in common. A change of the status counts apart from one of the rest. The objects that both
// have written are compared field by field: that of the fork with that of the cluster.
//
// # Reading order
//
// operators.go (what is tried), build.go, plane.go (the control plane and its audit log), trial.go (the course of a
// trial), state.go and compare.go (what has changed), main.go (the table).
package main
