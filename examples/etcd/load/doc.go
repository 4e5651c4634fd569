// Package load has clients that read and write an etcd cluster, and check what they get: no acknowledged write is lost,
// no read goes back, and how long the cluster did not serve. The tests with real members use it, and the demo.
//
// # What is checked
//
// Each writer has one key, and writes increasing numbers to it. Each write is a transaction that expects the revision
// which the writer has seen last. So a write that got no answer, and that etcd applies later, cannot overwrite a newer
// one. A linearizable read then has to return at least the highest number that was acknowledged, or read, before the
// read began. A lower number is a lost write or a stale read, and [Report.Wrong] has it.
//
// # Reading order
//
// load.go: what users call. client.go: one client. register.go: one key, and what reads of it may return.
package load
