package testbed

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/transport"
)

// What networks do to a client.

// Cutter is a transport whose watches can be cut, all at once.
type Cutter struct {
	mu      sync.Mutex
	watches []*cuttable
	cuts    int
}

// Cuts returns how many watches were cut.
func (c *Cutter) Cuts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// Wrap puts the cutter around a transport.
func (c *Cutter) Wrap(next http.RoundTripper) http.RoundTripper { return &cutting{c, next} }

type cutting struct {
	cutter *Cutter
	next   http.RoundTripper
}

func (c *cutting) WrappedRoundTripper() http.RoundTripper { return c.next }

func (c *cutting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil || req.URL.Query().Get("watch") == "" {
		return resp, err
	}
	body := &cuttable{ReadCloser: resp.Body, cutter: c.cutter}
	resp.Body = body
	c.cutter.mu.Lock()
	defer c.cutter.mu.Unlock()
	c.cutter.watches = append(c.cutter.watches, body)
	return resp, nil
}

type cuttable struct {
	io.ReadCloser
	cutter *Cutter
}

func (b *cuttable) Close() error {
	b.cutter.mu.Lock()
	b.cutter.watches = slices.DeleteFunc(b.cutter.watches, func(w *cuttable) bool { return w == b })
	b.cutter.mu.Unlock()
	return b.ReadCloser.Close()
}

// Cut ends all watches.
func (c *Cutter) Cut() {
	c.mu.Lock()
	doomed := c.watches
	c.watches = nil
	c.cuts += len(doomed)
	c.mu.Unlock()
	for _, body := range doomed {
		body.ReadCloser.Close()
	}
}

// All is the fault that all watches are cut.
func (c *Cutter) All() Fault {
	return Fault{"all watches cut", func() error { c.Cut(); return nil }}
}

// BeLate returns a transport whose watches bring every event later by that time, though not more slowly.
func BeLate(by time.Duration) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &late{next, by} }
}

type late struct {
	next http.RoundTripper
	by   time.Duration
}

func (l *late) WrappedRoundTripper() http.RoundTripper { return l.next }

func (l *late) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") != "" {
		body := &lateBody{ReadCloser: resp.Body, by: l.by, chunks: make(chan lateChunk, 10_000)}
		go body.pump() // ends when the body does, by error or by Close
		resp.Body = body
	}
	return resp, err
}

type lateBody struct {
	io.ReadCloser
	by     time.Duration
	chunks chan lateChunk
	rest   []byte
}

type lateChunk struct {
	data []byte
	err  error
	at   time.Time
}

func (b *lateBody) pump() {
	defer close(b.chunks)
	for {
		buffer := make([]byte, 32<<10)
		n, err := b.ReadCloser.Read(buffer)
		b.chunks <- lateChunk{buffer[:n], err, time.Now()}
		if err != nil {
			return
		}
	}
}

func (b *lateBody) Read(p []byte) (int, error) {
	var err error
	if len(b.rest) == 0 {
		chunk, ok := <-b.chunks
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(chunk.at.Add(b.by)))
		b.rest, err = chunk.data, chunk.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) > 0 {
		err = nil
	}
	return n, err
}
