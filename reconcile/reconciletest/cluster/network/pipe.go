package network

import (
	"bytes"
	"context"
	"net"
	"time"
)

// pipe has the bytes of one direction of a connection. A goroutine reads, and another one writes what has passed.
type pipe struct {
	network *Network
	way
	source *net.TCPConn
	chunks chan chunk    // closed at the end
	ended  chan struct{} // closed when the source sends nothing more
}

type chunk struct {
	bytes []byte
	sent  time.Time
}

// newPipe has room for 64 chunks that wait. A source that sends more has to wait itself, as it does for a peer that
// does not read.
func newPipe(n *Network, w way, source *net.TCPConn) *pipe {
	return &pipe{n, w, source, make(chan chunk, 64), make(chan struct{})}
}

// read returns when the source sends nothing more, or ctx has ended.
func (p *pipe) read(ctx context.Context) {
	defer close(p.chunks)
	defer close(p.ended)
	buffer := make([]byte, 32<<10)
	for {
		n, err := p.source.Read(buffer)
		if n > 0 {
			select {
			case p.chunks <- chunk{bytes.Clone(buffer[:n]), time.Now()}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write hands over what has passed. When the source has ended it tells the other end so, which may still send; it
// breaks the whole connection when that end has gone.
func (p *pipe) write(ctx context.Context, to *net.TCPConn, breakAll func()) {
	for c := range p.chunks {
		if !p.network.pass(ctx, p.way, c.sent) {
			return
		}
		if _, err := to.Write(c.bytes); err != nil {
			breakAll()
			return
		}
	}
	if p.network.pass(ctx, p.way, time.Now()) {
		_ = to.CloseWrite() // fails if the other end has gone
	}
}
