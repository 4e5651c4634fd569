package tap

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
)

// wrapped is true once a transport of this process has been wrapped. Before that no informer says that its requests do
// not pass through one.
var wrapped atomic.Bool

// Wrap returns a transport that lets an informer read the answers to the requests that it has marked.
func Wrap(next http.RoundTripper) http.RoundTripper {
	wrapped.Store(true)
	return &transport{next}
}

type transport struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if m, marked := req.Context().Value(markKey{}).(*mark); marked && err == nil && m.wants(req) && readable(resp) {
		m.take(resp)
	}
	return resp, err
}

// readable reports whether an answer is one that wire can read: not CBOR, and not compressed any more.
func readable(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (media == runtime.ContentTypeJSON || media == runtime.ContentTypeProtobuf) &&
		resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == ""
}

// mark is what the context of a request carries. It stands for one answer.
type mark struct {
	watch bool
	taken chan struct{} // closed once body and standIn are set

	mu sync.Mutex
	// Guarded by mu. again is true if another answer could have been taken after the first one: then the client made
	// more than one of them.
	again   bool
	body    io.ReadCloser
	standIn *standIn
}

type markKey struct{}

// marked returns a context that lets a transport take the first answer to a list or watch.
func marked(ctx context.Context, watch bool) (context.Context, *mark) {
	m := &mark{watch: watch, taken: make(chan struct{})}
	return context.WithValue(ctx, markKey{}, m), m
}

// wants reports whether a request lists or watches a collection. In place of a table wire has nothing to offer.
func (m *mark) wants(req *http.Request) bool {
	watches := req.URL.Query().Get("watch")
	return req.Method == http.MethodGet && collection.MatchString(req.URL.Path) &&
		m.watch == (watches == "true" || watches == "1") && !strings.Contains(req.Header.Get("Accept"), "as=Table")
}

// collection matches the path of a collection, also below the path of a proxy.
var collection = regexp.MustCompile(`/(api/v\d\w*|apis/[^/]+/v\d\w*)/(namespaces/[^/]+/)?[^/]+$`)

// take lets wire have the body of an answer, and puts the stand-in in its place.
func (m *mark) take(resp *http.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.body != nil {
		m.again = true
		return
	}
	m.body = resp.Body
	m.standIn = &standIn{close: resp.Body.Close}
	m.standIn.changed.L = &m.standIn.mu
	resp.Body, resp.ContentLength = m.standIn, -1
	resp.Header.Del("Content-Length")
	close(m.taken)
}

// count returns how many answers there were to take: none, one, or more than that, as two.
func (m *mark) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.again:
		return 2
	case m.body != nil:
		return 1
	}
	return 0
}

// standIn is the body that the client reads. It ends when the informer says so.
type standIn struct {
	close func() error // of the true body

	mu      sync.Mutex
	changed sync.Cond
	// Guarded by mu. err is not nil after the end.
	content bytes.Buffer
	err     error
}

func (s *standIn) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.content.Len() == 0 && s.err == nil {
		s.changed.Wait()
	}
	if s.content.Len() > 0 {
		return s.content.Read(p)
	}
	return 0, s.err
}

// Close is the client's: it ends the true answer as well.
func (s *standIn) Close() error {
	s.end(nil, http.ErrBodyReadAfterClose)
	return s.close()
}

// write adds to what the client reads, and does not wait for it.
func (s *standIn) write(content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.content.Write(content)
		s.changed.Broadcast()
	}
}

// end ends what the client reads: with an error, or io.EOF.
func (s *standIn) end(last []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.content.Write(last)
		s.err = err
		s.changed.Broadcast()
	}
}
