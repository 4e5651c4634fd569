package traces

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// maxWrites is how many writes a Tracer keeps for links. One takes about 300 bytes.
const maxWrites = 10_000

// version is an object as a write has left it. A cause does not have the resource, and does not need it: no two objects
// of a server have the same version.
type version struct{ namespace, name, resourceVersion string }

// writeSpans are the spans of the latest writes.
type writeSpans struct {
	limit int // never changed

	mu sync.Mutex
	// Guarded by mu. Each version in spans is once in order, which is a ring when it is full: next is the oldest.
	spans map[version]trace.SpanContext
	order []version
	next  int
}

func newWriteSpans(limit int) *writeSpans {
	return &writeSpans{limit: limit, spans: make(map[version]trace.SpanContext)}
}

// add keeps a span. A write that changes nothing has the version of the write before it, and takes its place.
func (s *writeSpans) add(v version, span trace.SpanContext) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.spans[v]; !ok {
		if len(s.order) < s.limit {
			s.order = append(s.order, v)
		} else {
			delete(s.spans, s.order[s.next])
			s.order[s.next] = v
			s.next = (s.next + 1) % s.limit
		}
	}
	s.spans[v] = span
}

func (s *writeSpans) get(v version) (span trace.SpanContext, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	span, ok = s.spans[v]
	return span, ok
}
