package leaderelection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// A server keeps one Lease by the rules of the API: resourceVersions, conflicts, preconditions by UID, a watch in
// order. Everything an elector says to it goes through a link, and a link can fail.
type server struct {
	mu      sync.Mutex
	rv      int
	uids    int
	lease   *coordinationv1.Lease
	streams map[*stream]struct{}
	writes  map[string]int // accepted creates and updates, by link
	tries   map[string]int // all creates and updates, by link
	history []*coordinationv1.Lease
	// onWrite, if set, is called with the server's lock held after each accepted write.
	onWrite func(before, after *coordinationv1.Lease, by string)
}

func newServer() *server {
	return &server{rv: 100, streams: map[*stream]struct{}{}, writes: map[string]int{}, tries: map[string]int{}}
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (s *server) get() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

// edit changes the Lease by hand; change gets nil when there is none and returns nil to delete it.
func (s *server) edit(change func(*coordinationv1.Lease) *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.lease
	after := change(before.DeepCopy())
	if after != nil && before == nil {
		s.uids++
		after.UID = types.UID(fmt.Sprintf("uid-%d", s.uids))
	}
	s.storeLocked(after, "hand")
}

func (s *server) storeLocked(lease *coordinationv1.Lease, by string) {
	before := s.lease
	s.rv++
	kind := "MODIFIED"
	switch {
	case lease == nil && before == nil:
		return
	case lease == nil:
		gone := before.DeepCopy()
		gone.ResourceVersion = strconv.Itoa(s.rv)
		s.lease = nil
		s.history = append(s.history, gone)
		s.publishLocked("DELETED", gone)
		if s.onWrite != nil {
			s.onWrite(before, nil, by)
		}
		return
	case before == nil:
		kind = "ADDED"
	}
	lease.Namespace, lease.Name, lease.ResourceVersion = "ns", "lock", strconv.Itoa(s.rv)
	s.lease = lease
	s.history = append(s.history, lease)
	s.publishLocked(kind, lease)
	if s.onWrite != nil {
		s.onWrite(before, lease, by)
	}
}

func (s *server) publishLocked(kind string, lease *coordinationv1.Lease) {
	raw, _ := json.Marshal(typed(lease))
	frame := fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, raw)
	for st := range s.streams {
		st.send(frame)
	}
}

func typed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	lease.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	return lease
}

func (s *server) apply(req *http.Request, body []byte, by string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	method, dryRun := req.Method, req.URL.Query().Get("dryRun") == metav1.DryRunAll
	if method == http.MethodGet {
		if s.lease == nil {
			return nil, apierrors.NewNotFound(leases, "lock")
		}
		return typed(s.lease), nil
	}
	if !dryRun {
		s.tries[by]++
	}
	sent := &coordinationv1.Lease{}
	if err := json.Unmarshal(body, sent); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if d := sent.Spec.LeaseDurationSeconds; d != nil && *d <= 0 || value(sent.Spec.LeaseTransitions) < 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: leases.Group, Kind: "Lease"}, "lock", nil)
	}
	switch {
	case method == http.MethodPost && s.lease != nil:
		return nil, apierrors.NewAlreadyExists(leases, "lock")
	case method == http.MethodPost:
		s.uids++
		sent.UID = types.UID(fmt.Sprintf("uid-%d", s.uids))
	case s.lease == nil:
		return nil, apierrors.NewNotFound(leases, "lock")
	case sent.ResourceVersion != s.lease.ResourceVersion || sent.UID != "" && sent.UID != s.lease.UID:
		return nil, apierrors.NewConflict(leases, "lock", errors.New("changed"))
	}
	if dryRun {
		return typed(s.lease), nil
	}
	s.writes[by]++
	s.storeLocked(sent, by)
	return typed(s.lease), nil
}

// A link is one candidate's way to the server. Its fields may be changed at any time through set.
type link struct {
	server *server
	name   string

	mu      sync.Mutex
	state   linkState
	changed chan struct{}

	answered func(verb string) // if set before use, called when the answer to what succeeded has arrived
}

type linkState struct {
	cut       bool                            // requests hang, streams are silent, until the cut heals
	deny      map[string]bool                 // verbs that are forbidden
	status    int                             // if not 0, every request is answered with this
	there     func(verb string) time.Duration // how long a request takes to be applied; nil: no time
	back      func(verb string) time.Duration // how long its answer takes
	lose      func(verb string) bool          // whether its answer never comes
	refuse    bool                            // connection refused
	hangWatch bool                            // a watch is never answered
	garbage   bool                            // answers that are no JSON
}

func (s *server) link(name string) *link {
	return &link{server: s, name: name, changed: make(chan struct{})}
}

func (l *link) set(change func(*linkState)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.state)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) cut(cut bool) { l.set(func(s *linkState) { s.cut = cut }) }

func (l *link) get() (linkState, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

// open waits until the link is not cut and reports false if ctx ended first.
func (l *link) open(ctx context.Context) bool {
	for {
		state, changed := l.get()
		if !state.cut {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *link) config() *rest.Config { return &rest.Config{Host: "http://server", Transport: l} }

func verbOf(req *http.Request) string {
	switch {
	case req.Method == http.MethodPost:
		return "create"
	case req.Method == http.MethodPut:
		return "update"
	case req.URL.Query().Get("watch") == "true":
		return "watch"
	}
	return "get"
}

func (l *link) RoundTrip(req *http.Request) (response *http.Response, err error) {
	verb, ctx := verbOf(req), req.Context()
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	if l.answered != nil {
		defer func() {
			if err == nil && response.StatusCode == http.StatusOK {
				l.answered(verb)
			}
		}()
	}
	state, _ := l.get()
	if state.refuse {
		return nil, errors.New("dial tcp: connection refused")
	}
	if !l.open(ctx) {
		return nil, ctx.Err()
	}
	state, _ = l.get()
	switch {
	case state.deny[verb]:
		return answer(req, nil, apierrors.NewForbidden(leases, "lock",
			fmt.Errorf("User %q cannot %s resource %q", l.name, verb, "leases")))
	case state.status != 0:
		return answer(req, nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: "Failure",
			Code: int32(state.status), Reason: metav1.StatusReasonInternalError}})
	case state.garbage:
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader("<html>")), Request: req}, nil
	case verb == "watch" && state.hangWatch:
		<-ctx.Done()
		return nil, ctx.Err()
	case verb == "watch":
		return l.watch(req)
	}
	there, back, lost := time.Duration(0), time.Duration(0), false
	if state.there != nil {
		there = state.there(verb)
	}
	if state.back != nil {
		back = state.back(verb)
	}
	if state.lose != nil {
		lost = state.lose(verb)
	}
	if there == 0 && back == 0 && !lost {
		object, err := l.server.apply(req, body, l.name)
		return answer(req, object, err)
	}
	// In flight: what was sent is applied even if the sender has given up meanwhile.
	type outcome struct {
		object any
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		time.Sleep(there)
		object, err := l.server.apply(req, body, l.name)
		if lost {
			return
		}
		time.Sleep(back)
		done <- outcome{object, err}
	}()
	select {
	case o := <-done:
		if !l.open(ctx) {
			return nil, ctx.Err()
		}
		return answer(req, o.object, o.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func answer(req *http.Request, object any, err error) (*http.Response, error) {
	code := http.StatusOK
	if err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			return nil, err
		}
		code = int(status.ErrStatus.Code)
		st := status.ErrStatus
		st.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		object = &st
	}
	raw, _ := json.Marshal(object)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(raw)), Request: req}, nil
}

// A stream is one watch: the body of its answer. It needs no goroutine.
type stream struct {
	link   *link
	ctx    context.Context
	frames chan []byte
	rest   []byte
	once   sync.Once
	closed chan struct{}
}

func (l *link) watch(req *http.Request) (*http.Response, error) {
	st := &stream{link: l, ctx: req.Context(), frames: make(chan []byte, 100000), closed: make(chan struct{})}
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ := strconv.Atoi(req.URL.Query().Get("resourceVersion"))
	if from == 0 && s.lease != nil {
		from = 1 // the synthetic event of a watch from no version
	}
	if s.lease != nil && from < s.rv {
		if now, _ := strconv.Atoi(s.lease.ResourceVersion); now > from {
			raw, _ := json.Marshal(typed(s.lease))
			st.frames <- fmt.Appendf(nil, `{"type":"MODIFIED","object":%s}`+"\n", raw)
		}
	}
	if s.lease == nil && from > 0 && from < s.rv { // deleted since
		raw, _ := json.Marshal(typed(s.history[len(s.history)-1]))
		st.frames <- fmt.Appendf(nil, `{"type":"DELETED","object":%s}`+"\n", raw)
	}
	s.streams[st] = struct{}{}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: st,
		Request: req}, nil
}

func (st *stream) send(frame []byte) { st.frames <- frame }

func (st *stream) Read(p []byte) (int, error) {
	for len(st.rest) == 0 {
		select {
		case st.rest = <-st.frames:
			if st.rest == nil {
				return 0, io.EOF
			}
			for {
				state, changed := st.link.get()
				if !state.cut {
					break
				}
				select {
				case <-changed:
				case <-st.closed:
					return 0, io.EOF
				case <-st.ctx.Done():
					return 0, st.ctx.Err()
				}
			}
		case <-st.closed:
			return 0, io.EOF
		case <-st.ctx.Done():
			return 0, st.ctx.Err()
		}
	}
	n := copy(p, st.rest)
	st.rest = st.rest[n:]
	return n, nil
}

func (st *stream) Close() error {
	st.once.Do(func() {
		st.link.server.mu.Lock()
		delete(st.link.server.streams, st)
		st.link.server.mu.Unlock()
		close(st.closed)
	})
	return nil
}

// endStreams ends every watch, as a server does from time to time.
func (s *server) endStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.send(nil)
	}
}

// muteStreams makes every watch silent for ever without ending it.
func (s *server) muteStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.streams)
}

// push sends one frame to every watch, whatever it is.
func (s *server) push(frame string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.send([]byte(frame + "\n"))
	}
}

func uniform(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most) + 1))
}
