// Package netproxy is a proxy in front of a server that a test can disturb. It breaks connections, at once or in the
// middle of an answer, lets them fall silent without an end, as a cut cable or a stopped process does, slows them down,
// and leads them to another server. For a server that a test starts, ReservePort has a port.
package netproxy

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy copies bytes both ways between its clients and a server. It ends with the test. Its methods are safe for
// concurrent use.
type Proxy struct {
	listener net.Listener
	copies   sync.WaitGroup

	mu sync.Mutex // guards the fields below; methods named ...Locked are called with it held

	server   string
	conns    map[net.Conn]struct{} // both ends of each connection
	accepted int
	stalled  chan struct{} // nil while traffic flows, else closed when it flows again
	cut      bool          // then conns is empty
	quota    int           // how many bytes may still come from the server before all connections break; zero: no limit
	delay    time.Duration
}

// New starts a proxy to a server. network is "tcp" or "unix", as in package net, and holds for both the proxy and the
// server.
func New(t testing.TB, network, server string) *Proxy {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "proxy-") // that of t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, server: server, conns: map[net.Conn]struct{}{}}
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Cut(true) // also what was accepted meanwhile
		p.Stall(false)
		p.copies.Wait()
	})
	return p
}

// ForConfig starts a proxy to an API server, and returns the configuration of a client that goes through it. Clients
// with other configurations share no connection with that client.
func ForConfig(t testing.TB, config *rest.Config) (*Proxy, *rest.Config) {
	t.Helper()
	p := New(t, "tcp", hostOf(t, config))
	through := rest.CopyConfig(config)
	through.Host = "https://" + p.Address()
	through.Dial = (&net.Dialer{}).DialContext // a configuration with a dialer of its own has a transport of its own
	return p, through
}

func hostOf(t testing.TB, config *rest.Config) string {
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Lead breaks all connections; new ones go to another API server.
func (p *Proxy) Lead(t testing.TB, config *rest.Config) {
	t.Helper()
	host := hostOf(t, config)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = host
	p.breakLocked()
}

// LeadNew is [Proxy.Lead] for new connections only: existing ones stay where they are.
func (p *Proxy) LeadNew(t testing.TB, config *rest.Config) {
	t.Helper()
	host := hostOf(t, config)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = host
}

// Stall lets nothing through in either direction, until it is called with false: connections stay, new ones are
// accepted.
func (p *Proxy) Stall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stall && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !stall && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// Cut breaks all connections, and new ones at once, until it is called with false.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		p.breakLocked()
	}
}

// Break breaks all connections. New ones work.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breakLocked()
}

// BreakAfter breaks all connections once this many more bytes have come from the server.
func (p *Proxy) BreakAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quota = bytes
}

// Delay delays all bytes in both directions by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Accepted returns the number of connections accepted so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) breakLocked() {
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	p.quota = 0
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		server := p.server
		p.mu.Unlock()
		far, err := net.Dial(p.listener.Addr().Network(), server)
		if err != nil { // the server is down: so is this connection
			near.Close()
			continue
		}
		p.mu.Lock()
		if p.cut {
			near.Close()
			far.Close()
		} else {
			p.accepted++
			p.conns[near], p.conns[far] = struct{}{}, struct{}{}
			p.copies.Go(func() { p.copy(far, near, false) })
			p.copies.Go(func() { p.copy(near, far, true) })
		}
		p.mu.Unlock()
	}
}

// copy ends, and ends the connection, when either end does.
func (p *Proxy) copy(to, from net.Conn, answers bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		to.Close()
		from.Close()
		delete(p.conns, to)
		delete(p.conns, from)
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		stalled, delay := p.stalled, p.delay
		p.mu.Unlock()
		if stalled != nil {
			<-stalled
		}
		time.Sleep(delay)
		last := false
		if answers {
			n, last = p.spend(n)
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
		if last {
			p.Break()
		}
	}
}

// spend returns how many of the bytes that have come from the server may pass, and whether they are the last.
func (p *Proxy) spend(bytes int) (pass int, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.quota == 0:
		return bytes, false
	case bytes >= p.quota:
		return p.quota, true
	default:
		p.quota -= bytes
		return bytes, false
	}
}
