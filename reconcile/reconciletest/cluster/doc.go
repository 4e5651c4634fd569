// Package cluster gives tests and demonstrations a real Kubernetes control plane: etcd, kube-apiserver and
// kube-controller-manager (without its ReplicaSet controller), and a stand-in for a node, all on this machine.
//
//	func TestSomething(t *testing.T) {
//		c := cluster.Shared(t)
//		namespace := c.Namespace(t)
//		pods := c.Client().CoreV1().Pods(namespace)
//		...
//	}
//
// [Shared] is one control plane for all tests of a process. A test that stops or kills a component takes a [Private]
// one. A program calls [Start].
//
// The first use on a machine compiles the control plane into .build at the root of the repository, which takes minutes.
// After that a control plane is ready in seconds. It is compiled again when the sources in internal/controlplane
// change.
//
// # Who ends what
//
//	test process  --stdin-->  controlplane supervise  --signals-->  etcd, apiserver, controller-manager, node, commands
//
// The supervisor ends everything, its folder included, when its standard input does. Nothing therefore outlives the
// process that started it, not even after kill -9, a timeout of go test, or a panic; and nobody has to call Close for
// that.
package cluster
