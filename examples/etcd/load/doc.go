// Package load has clients that read and write an etcd cluster, and check what they get: no acknowledged write is lost,
// no read goes back, and how long the cluster did not serve. The tests with real members use it, and the demo.
//
// # What is checked
//
// Each writer has one key at a time, and writes increasing numbers to it. Each write is a transaction that expects the
// revision which the writer has seen last. So a write that got no answer, and that etcd applies later, cannot overwrite
// a newer one. A linearizable read then has to return at least the highest number that was acknowledged, or read,
// before the read began. A lower number is a lost write or a stale read, and [Report.Wrong] has it at once.
//
// At the end [Load.Judge] judges everything that was seen. The history of each key must be linearizable: there must be
// an order of its requests in which each takes effect between its call and its answer, and has the answer that a single
// key would give. Package porcupine looks for that order. A write without an answer may have taken effect at any time
// after its call, or never. A watch of all keys must have each acknowledged write once, in the order of the revisions,
// and nothing that was not written, also where it broke and went on at another member.
//
// # Reading order
//
// load.go: what users call. client.go: one client. key.go: one key, its history, and what reads of it may return.
// watch.go: the watch, and what it must have. linear.go: the verdict.
package load
