package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Port is an address at which an end serves.
type Port struct {
	network  *Network
	end      End
	target   string
	listener *net.TCPListener
	ctx      context.Context
	cancel   context.CancelFunc
}

// Listen makes an address of an end: connections to it lead to target, where the server listens. Both are of the form
// "127.0.0.1:80"; an address with port 0 gets a port that is free. The server sees a connection from a pod as one from
// the address of the pod.
func (n *Network) Listen(end End, address, target string) (*Port, error) {
	at, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %q: %w", end, err)
	}
	if _, err := net.ResolveTCPAddr("tcp4", target); err != nil {
		return nil, fmt.Errorf("listen for %q: target: %w", end, err)
	}
	listener, err := net.ListenTCP("tcp4", at)
	if err != nil {
		return nil, fmt.Errorf("listen for %q: %w", end, err)
	}
	p := &Port{network: n, end: end, target: target, listener: listener}
	p.ctx, p.cancel = context.WithCancel(n.ctx)
	context.AfterFunc(p.ctx, func() { listener.Close() })
	n.mu.Lock()
	n.addresses[end] = listener.Addr().(*net.TCPAddr).AddrPort().Addr()
	n.mu.Unlock()
	n.group.Go("port "+p.Address(), p.accept)
	return p, nil
}

// Address is where the port listens.
func (p *Port) Address() string { return p.listener.Addr().String() }

// Close closes the port and its connections. The address is free when it returns.
func (p *Port) Close() {
	p.cancel()
	p.listener.Close()
}

func (p *Port) accept() {
	for p.ctx.Err() == nil {
		near, err := p.listener.AcceptTCP()
		if err != nil {
			lifecycle.Sleep(p.ctx, 10*time.Millisecond) // this process may have no file descriptor left for now
			continue
		}
		p.network.group.Go("connection to "+p.Address(), func() { p.carry(near) })
	}
}

// carry carries one connection until it has ended in both directions, or the port is closed.
func (p *Port) carry(near *net.TCPConn) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { near.Close() })
	began := time.Now()
	from := p.network.origin(near)
	there := newPipe(p.network, way{from, p.end}, near)
	var readers lifecycle.Group
	defer func() { cancel(); <-readers.Done() }()
	readers.Go("client", func() { there.read(ctx) })
	if !p.connects(ctx, there, began) {
		return
	}
	far, err := p.dial(ctx, from)
	if err != nil {
		return // the server is down: so is this connection
	}
	context.AfterFunc(ctx, func() { far.Close() })
	back := newPipe(p.network, way{p.end, from}, far)
	readers.Go("server", func() { back.read(ctx) })
	var writers lifecycle.Group
	writers.Go("to the server", func() { there.write(ctx, far, cancel) })
	writers.Go("to the client", func() { back.write(ctx, near, cancel) })
	<-writers.Done()
}

// connects waits for what a handshake needs: a way there, and a way back. It returns false if the client leaves while
// the way is cut: the server then never hears of it.
func (p *Port) connects(ctx context.Context, there *pipe, began time.Time) bool {
	for _, w := range []way{there.way, {there.to, there.from}} {
		for {
			cut, _, changed := p.network.state(w)
			if !cut {
				break
			}
			select {
			case <-ctx.Done():
				return false
			case <-there.ended:
				return false
			case <-changed:
			}
		}
		if !p.network.pass(ctx, w, began) {
			return false
		}
		began = time.Now()
	}
	return true
}

// dial connects to the server, from the address of the client if it has one.
func (p *Port) dial(ctx context.Context, from End) (*net.TCPConn, error) {
	p.network.mu.Lock()
	own, ok := p.network.addresses[from]
	p.network.mu.Unlock()
	dialer := net.Dialer{}
	if ok {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0))
	}
	conn, err := dialer.DialContext(ctx, "tcp4", p.target)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
