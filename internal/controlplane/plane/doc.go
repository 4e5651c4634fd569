// Package plane describes one Kubernetes control plane on the loopback interface: its keys and certificates, its ports,
// the command lines of its components, and how to see that each is ready. It starts them through a supervisor and
// imports no Kubernetes code, so its supervisor stays small.
//
//	etcd  <--unix sockets--  apiserver  <--https://127.0.0.1:port--  controller-manager, clients
//
// The data folder:
//
//	admin.kubeconfig, controller-manager.kubeconfig
//	pki/    the certificate authority and everything it signed, and the key that signs service account tokens
//	etcd/   the data and the two sockets of etcd: only the owner of the folder can reach them
//	*.log   the output of each process
package plane
