package leaderelection

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// A proxy is one candidate's way to the real API server. It can stall, which is what a cut cable looks like: connections stay, new ones are
// accepted, and nothing comes through; and it can break every connection at once.
type proxy struct {
	listener net.Listener
	server   string

	mu      sync.Mutex
	stalled chan struct{} // guarded by mu; nil while traffic flows, else closed when it flows again
	conns   map[net.Conn]struct{}
	copies  sync.WaitGroup
}

func newProxy(t *testing.T, config *rest.Config) (*proxy, *rest.Config) {
	u, err := url.Parse(config.Host)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, server: u.Host, conns: map[net.Conn]struct{}{}}
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.stall(false)
		p.reset()
		p.copies.Wait()
	})
	through := rest.CopyConfig(config)
	through.Host = "https://" + l.Addr().String()
	return p, through
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.server)
		if err != nil { // the server is down: so is this connection
			near.Close()
			continue
		}
		p.mu.Lock()
		p.conns[near], p.conns[far] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.copies.Go(func() { p.copy(near, far) })
		p.copies.Go(func() { p.copy(far, near) })
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			<-stalled
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) stall(stall bool) {
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

func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}
