package sharding

import (
	"net/http"

	"github.com/thermostat-go/thermostat/internal/election"
)

// Fence wraps a transport so that it writes only what this replica may write; what a write is, [leaderelection's fence]
// says. A request whose context comes from [Shards.Enter] is sent while that work may go on, and is cut off when its
// time ends. Any other write is sent while this replica owns any slice that [Shards.Inherit] has opened, since nobody
// can tell to which one it belongs. So whoever knows nothing of slices cannot write at all. A write at any other time
// fails with [ErrNotOwned], and its error has a method NotSent() bool.
//
// What was sent before may still be applied after it: a process that is paused at the worst moment has one request in
// flight on each of its connections. The API server checks no epochs, so give updates a resourceVersion as a
// precondition.
//
// [leaderelection's fence]: https://pkg.go.dev/github.com/thermostat-go/thermostat/leaderelection#Elector.Fence
func (s *Shards) Fence(next http.RoundTripper) http.RoundTripper { return &fence{s, next} }

type fence struct {
	shards *Shards
	next   http.RoundTripper
}

// WrappedRoundTripper lets helpers of apimachinery find the transport below.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }

func (f *fence) RoundTrip(req *http.Request) (*http.Response, error) {
	if !election.Writes(req) {
		return f.next.RoundTrip(req)
	}
	s := f.shards
	w, _ := req.Context().Value(workKey{s}).(*work)
	s.mu.Lock()
	tenure, may := s.tenure, anyOpen(s.works) && s.r.valid(s.now())
	if w != nil {
		tenure, may = w.ctx, may && s.works[w.slice] == w && w.ctx.Err() == nil
	}
	s.mu.Unlock()
	if !may {
		return nil, election.Refuse(req, ErrNotOwned)
	}
	return election.RoundTrip(tenure, f.next, req, ErrNotOwned)
}

func anyOpen(works map[int]*work) bool {
	for _, w := range works {
		if w.open {
			return true
		}
	}
	return false
}
