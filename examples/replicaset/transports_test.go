package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/transport"
)

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

// misreading is a transport that reads one text for another one of the same length.
type misreading struct {
	next     http.RoundTripper
	text, as string
}

func (m *misreading) WrappedRoundTripper() http.RoundTripper { return m.next }

func (m *misreading) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(req)
	if err == nil {
		resp.Body = &misreader{resp.Body, m}
	}
	return resp, err
}

type misreader struct {
	io.ReadCloser
	*misreading
}

func (m *misreader) Read(p []byte) (n int, err error) {
	n, err = m.ReadCloser.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], []byte(m.text), []byte(m.as)))
	return n, err
}
