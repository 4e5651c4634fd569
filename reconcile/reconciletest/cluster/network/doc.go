// Package network lets a test cut and delay the network between processes on this machine: between the members of a
// database, between an operator and its members, between an operator and the API server.
//
//	n, err := network.New()
//	...
//	pool := processnode.New(t, c, processnode.Options{Network: n, ...})
//	process, err := n.Start("operator", func() (*cluster.Process, error) { return c.Run(ctx, command) })
//	heal := n.Cut("operator", network.Pod(types.NamespacedName{Namespace: "default", Name: "etcd-0"}))
//	...
//	heal()
//
// An [End] is a pod of package processnode, a process that [Network.Start] has started, or a server that
// [Network.Listen] puts into the network, such as the API server. All other processes together are [Outside]: the test
// itself is one.
//
// # How it works
//
// Each address at which an end serves is one of a proxy in this process, which leads to the address at which the server
// really listens. So the proxy knows where a connection goes to. Where it comes from it asks the kernel: a socket has
// an inode, and /proc tells which process has it open. The programs need not know of it, their bytes may be encrypted,
// and the network needs no rights of root. It works on Linux only; elsewhere [New] returns [errors.ErrUnsupported].
//
// Other ways were not taken. Rules of a firewall and network namespaces need rights that a test often lacks. A proxy
// that is told nothing of the origin, as the libraries for faults of networks are, cuts a server off from all its
// clients at once; and where such a library drops bytes, a stream that goes on afterwards has a hole, as no stream of
// TCP ever has.
//
// # What a cut is
//
// A cut is a cable without a signal: no byte is lost, and none arrives. What was sent arrives when the cut heals, in
// order, as TCP sends again what was not acknowledged. Neither end learns of the cut but by waiting. The end of a
// connection does not arrive either. A cut one way stops the bytes of this direction, on all connections between the
// two ends.
//
// There are three differences to a real network. While the way is cut, and while the server is down, a client's connect
// succeeds, since the proxy accepts it; the connection then stays silent, or ends at once. And in a real network a
// connection that is cut one way soon stops the other way too, for want of acknowledgements; here it does not, which is
// harder for a program. And a real connection that is cut breaks after minutes, by the keep-alives of TCP or for want
// of acknowledgements; here it stays until the cut heals, or a program closes it.
//
// # Reading order
//
// network.go: the ends, Cut and Delay. port.go: one address and its connections. pipe.go: the bytes of a connection.
// origin.go: which end has dialed. socket_linux.go and socket_other.go: what the kernel says.
package network
