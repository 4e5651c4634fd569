package leaderelection

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// A network carries real net/http over net.Pipe: real connections, in virtual time. Its connections can freeze: then
// nothing comes back and nothing arrives, without any end, while new ones work.
type network struct {
	listener *pipes
	http     *http.Server
	served   sync.WaitGroup

	mu     sync.Mutex
	conns  []*pipe
	dialed int
}

func newNetwork(s *server) *network {
	n := &network{listener: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
	l := s.link("wire")
	n.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := l.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer response.Body.Close()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(response.StatusCode)
		flush := http.NewResponseController(w).Flush
		_ = flush()
		buffer := make([]byte, 64<<10)
		for {
			m, err := response.Body.Read(buffer)
			if _, werr := w.Write(buffer[:m]); err != nil || werr != nil {
				return
			}
			_ = flush()
		}
	})}
	n.served.Go(func() { _ = n.http.Serve(n.listener) })
	return n
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	p := &pipe{Conn: near, thawed: make(chan struct{}), closed: make(chan struct{})}
	select {
	case n.listener.conns <- far:
	case <-n.listener.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, p)
	n.dialed++
	return p, nil
}

// freeze makes every present connection dead.
func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.conns {
		p.freeze()
	}
}

func (n *network) close() {
	n.http.Close()
	n.mu.Lock()
	for _, p := range n.conns {
		p.Close()
	}
	n.mu.Unlock()
	n.served.Wait()
}

// A pipe is the near end of a connection.
type pipe struct {
	net.Conn
	mu     sync.Mutex
	frozen bool
	thawed chan struct{} // never closed: what waits for it waits for Close
	once   sync.Once
	closed chan struct{}
}

func (p *pipe) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

func (p *pipe) isFrozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if p.isFrozen() {
		<-p.closed
		return 0, io.ErrClosedPipe
	}
	return n, err
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.isFrozen() {
		return len(b), nil // into a buffer that nobody reads
	}
	return p.Conn.Write(b)
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}

// pipes is a net.Listener.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
