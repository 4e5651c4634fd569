package reconciletest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// Listener serves a link over HTTP, for what cannot be given a transport: processes, and programs in other languages.
// It works in real time, so it does not belong into a bubble of testing/synctest: a socket does not count as waiting
// there.
type Listener struct{ server *httptest.Server }

// Listen serves the link at a free port of the loopback interface until Close. The connection is plain HTTP; whoever
// reaches the port may do what the link may do.
func (l *Link) Listen() *Listener { return &Listener{httptest.NewServer(l)} }

// URL is where the server is, such as http://127.0.0.1:37015.
func (l *Listener) URL() string { return l.server.URL }

// Config returns a configuration for clients over the socket. They have no rate limit.
func (l *Listener) Config() *rest.Config { return &rest.Config{Host: l.server.URL, QPS: -1} }

// Close breaks all connections, and returns when every request has ended.
func (l *Listener) Close() {
	l.server.CloseClientConnections()
	l.server.Close()
}

// ServeHTTP makes a Link an HTTP handler. A fault that breaks the connection breaks this one.
func (l *Link) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.URL.Scheme, req.URL.Host = "http", req.Host
	resp, err := l.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	control := http.NewResponseController(w)
	if err := control.Flush(); err != nil { // the headers of a watch go out before its first event
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}
