package reconciletest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// Listen serves the link over HTTP, for what cannot be given a transport: processes, and programs in other languages.
// It returns a configuration for clients; its Host is the URL, such as http://127.0.0.1:37015, of a free port of the
// loopback interface. Every process on the machine that reaches the port may do what the link's user may do. The
// listener ends with the server.
//
// Sockets work in real time, so Listen does not belong into a bubble of testing/synctest.
func (l *Link) Listen() *rest.Config {
	server := httptest.NewServer(handler{l})
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	l.server.listeners = append(l.server.listeners, func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL, QPS: -1}
}

// Handler serves the link to an HTTP server of the caller, which may ask for a token or a certificate. Faults that
// break connections abort the handler.
func (l *Link) Handler() http.Handler { return handler{l} }

// handler makes a Link an HTTP handler. A fault that breaks the connection breaks this one.
type handler struct{ *Link }

func (l handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.URL.Scheme, req.URL.Host = "http", req.Host
	resp, err := transport(l).RoundTrip(req)
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
