package reconcile_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// behindLag returns a configuration whose connections lead to the same server through a proxy that lets every answer
// arrive late: delayed, not slowed down.
func behindLag(t *testing.T, cfg *rest.Config, lag time.Duration) *rest.Config {
	server, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &lagProxy{listener: listener, server: server.Host, lag: lag, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, listener.Addr().String())
	}
	return cfg
}

type lagProxy struct {
	listener net.Listener
	server   string
	lag      time.Duration
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // guarded by mu
	closed bool              // guarded by mu
}

func (p *lagProxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.server)
		if err != nil {
			near.Close()
			continue
		}
		p.keep(near, far)
		p.running.Go(func() { p.copy(far, near, 0) })
		p.running.Go(func() { p.copy(near, far, p.lag) })
	}
}

func (p *lagProxy) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
		if p.closed {
			c.Close()
		}
	}
}

func (p *lagProxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// copy sends on what it reads, each piece lag after it has come.
func (p *lagProxy) copy(to, from net.Conn, lag time.Duration) {
	type piece struct {
		data []byte
		at   time.Time
	}
	pieces := make(chan piece, 10_000)
	p.running.Go(func() {
		defer to.Close()
		for piece := range pieces {
			time.Sleep(time.Until(piece.at.Add(lag)))
			if _, err := to.Write(piece.data); err != nil {
				from.Close() // ends the reader
			}
		}
	})
	defer close(pieces)
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			pieces <- piece{buffer[:n], time.Now()}
		}
		if err != nil {
			return
		}
	}
}
