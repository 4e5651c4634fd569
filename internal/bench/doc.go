// Command bench compares thermostat with its peers, client-go and controller-runtime, on the same input, and says for
// each workload whether we are as much faster or smaller as we want to be. Asked for the parts replicaset,
// deployment and autoscaler, it does so with the controllers for ReplicaSets, Deployments and HPAs, ours and the
// built-in ones; asked for the part controllermanager, with a whole kube-controller-manager on client-go's informers
// and on ours; asked for the part writes, with Managers whose runs all write.
//
//	go run . [-count 5] [-raw FILE] [-save FILE] [-plot FILE] [-list] [PART ...]
//
// Without a PART it runs all but replicaset, deployment, autoscaler and controllermanager, which take a real control
// plane and minutes, and writes, whose targets are not met yet.
//
// It prints one line for each thing that is measured: what it is, ours, the peer's, their ratio, the target, and
// whether that is met.
//
// # How
//
// Each workload is a Go benchmark with a sub-benchmark for each side, so that go test -bench and benchstat work on it
// as on any other: BenchmarkQueueOneKey/thermostat and BenchmarkQueueOneKey/client-go. They are in the tests of this
// package, but for those of the store without its informer, which only its own package can reach:
// informer/store_bench_test.go. This command builds the test binaries and runs the sides in turn, -count times; what
// counts is the median. The sides of a workload run in one process, one after the other, unless its memory or its CPU
// time is measured: then each has a process of its own. So has the API server of those workloads that have one.
//
// The controllers for ReplicaSets, Deployments and HPAs are compared by the tests of ours,
// examples/replicaset/sidebyside_test.go, examples/deployment/sidebyside_test.go and
// examples/autoscaler/sidebyside_test.go: as commands, with all that they do, each on a control plane of its own.
//
// The kube-controller-manager is the program in the folder controllermanager, a module of its own, which takes minutes
// to compile. It is built of a copy of client-go in which the constructor of informers is a variable, so that both
// sides are one binary; the copy is made at build time, and fails if that constructor has changed.
//
// # Why it is fair
//
// Peers are configured as their documentation recommends. The input is the same, down to the bytes, and but for the two
// commands there are no metrics, no events and no mutation detector that could be switched off. A side that could leave
// work out is made to do it: the load of the informer rows never runs so far ahead that ours could merge events, and
// they check that each one has arrived. Where the sides do not do the same:
//
//   - A plain list is asked for in pages by ours, and by client-go in one piece from the server's cache.
//   - controller-runtime always counts; and its client copies each object that it reads from the cache, unless
//     DefaultUnsafeDisableDeepCopy is set. Ours hands out what the cache holds, as client-go's listers do.
//   - A projection of ours turns a pod into any type; what a transform of client-go's keeps has to be an object, here a
//     Pod with the same facts in it.
//
// Latency is measured at half of what the peer can do; ours could do more.
//
// # Reading order
//
//	rows.go     what is measured, and the targets
//	main.go     the flags, and which rows they choose
//	run.go      how: build, run, read the figures
//	table.go    the line of each measure
//	growth.go   the table and the plot of how costs grow
//	*_test.go   the workloads, a file for each other part; pods_test.go, managed_test.go and server_test.go are their
//	            input
package main
