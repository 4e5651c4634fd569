package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/transport"
)

// Transports that do to a client what networks and API servers do.

// A cutter is a transport whose watches can be cut, all at once.
type cutter struct {
	mu      sync.Mutex
	watches []*cuttable
	cuts    int
}

func (c *cutter) wrap(next http.RoundTripper) http.RoundTripper { return &cutting{c, next} }

type cutting struct {
	cutter *cutter
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
	cutter *cutter
}

func (b *cuttable) Close() error {
	b.cutter.mu.Lock()
	b.cutter.watches = slices.DeleteFunc(b.cutter.watches, func(w *cuttable) bool { return w == b })
	b.cutter.mu.Unlock()
	return b.ReadCloser.Close()
}

func (c *cutter) cut() {
	c.mu.Lock()
	doomed := c.watches
	c.watches = nil
	c.cuts += len(doomed)
	c.mu.Unlock()
	for _, body := range doomed {
		body.ReadCloser.Close()
	}
}

// lossy is a transport that loses some answers: what was asked for has happened, and the client hears of an error.
type lossy struct {
	mu   sync.Mutex
	left int // how many creations of pods are still to be lost
}

func (l *lossy) wrap(next http.RoundTripper) http.RoundTripper { return &losing{l, next} }

type losing struct {
	lossy *lossy
	next  http.RoundTripper
}

func (l *losing) WrappedRoundTripper() http.RoundTripper { return l.next }

func (l *losing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/pods") {
		return resp, err
	}
	l.lossy.mu.Lock()
	defer l.lossy.mu.Unlock()
	if l.lossy.left <= 0 {
		return resp, nil
	}
	l.lossy.left--
	resp.Body.Close()
	return nil, io.ErrUnexpectedEOF
}

// slowPosts is a transport that takes its time before it sends a POST.
func slowPosts(by time.Duration) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &slow{next, by} }
}

type slow struct {
	next http.RoundTripper
	by   time.Duration
}

func (s *slow) WrappedRoundTripper() http.RoundTripper { return s.next }

func (s *slow) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost {
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-time.After(s.by):
		}
	}
	return s.next.RoundTrip(req)
}

// beLate is a transport whose watches tell everything late, though not slower.
func beLate(by time.Duration) transport.WrapperFunc {
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
