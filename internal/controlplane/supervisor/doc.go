// Package supervisor keeps a set of child processes on a leash.
//
// A test that stops, kills and restarts API servers cannot clean up after itself when it is killed with -9. So it never
// owns those processes: it owns one supervisor, and talks to it in lines of JSON on the supervisor's standard input and
// output. The end of that input is a signal that the kernel sends in every case: it closes the pipe when the
// parent dies, however it dies. The supervisor then kills every child, waits for each, and removes its folder.
//
//	test  --requests-->  supervisor  --signals-->  etcd, apiserver, controller-manager, node, ...
//	      <--replies---              <---exits---
//	      <--events----
//
// Each child leads a process group of its own. Signals go to the whole group, so a command that starts further
// processes cannot leave them behind, and a Ctrl-C at the terminal reaches none of them by accident. SIGKILL is used at
// the end because it is the only signal that ends a stopped process. Should the supervisor itself be killed, Linux
// kills the children for it (see spawner_linux.go).
//
// Goroutines:
//
//	name      started by  ends when               waited by
//	spawner   New         Close                   Close
//	reaper    Start       its child has ended     Close
//	reader    Serve       input ends              is not waited for: a blocked read ends with the process
//	request   Serve       the request is served   Serve
package supervisor
