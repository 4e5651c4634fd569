package serve

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/review"
)

const (
	reviewTimeout  = 10 * time.Second
	reviewsAtOnce  = 4
	allowedFor     = time.Minute
	refusedFor     = 10 * time.Second
	verdictsAtMost = 512
)

// accessReviews let requests pass that the API server allows. What cannot be judged is refused.
type accessReviews struct {
	client *review.Client // never changed
	slots  chan struct{}  // one value for each review that is under way
	log    lifecycle.LogLimit

	mu sync.Mutex
	// Guarded by mu. verdicts is bounded. clients has the addresses with a request that is to be reviewed.
	verdicts map[question]verdict
	clients  map[string]*clientLine
}

// clientLine lets one review of a client be under way at a time: else a client with tokens that nobody knows could take
// all slots, and keep the others out.
type clientLine struct {
	turn chan struct{} // holds a value while a review is under way
	n    int           // the requests in the line; guarded by the mu of accessReviews
}

// question is a hash of a token, a method and a path. Tokens themselves are not kept.
type question [sha256.Size]byte

// verdict is an HTTP status: 200, 401 or 403.
type verdict struct {
	code  int
	until time.Time
}

func newAccessReviews(cfg *rest.Config) (*accessReviews, error) {
	client, err := review.New(cfg)
	if err != nil {
		return nil, err
	}
	return &accessReviews{client: client, slots: make(chan struct{}, reviewsAtOnce),
		verdicts: make(map[question]verdict), clients: make(map[string]*clientLine)}, nil
}

// protect returns a handler for those whom the API server allows the method on the path.
func (a *accessReviews) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch code := a.judge(req); code {
		case http.StatusOK:
			next.ServeHTTP(w, req)
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is needed that the API server knows", code)
		case http.StatusForbidden:
			http.Error(w, "the user of this token may not "+verbOf(req)+" this path: a ClusterRole has to grant it, "+
				"with the path among its nonResourceURLs", code)
		default:
			http.Error(w, "the API server cannot be asked at the moment", http.StatusServiceUnavailable)
		}
	})
}

// verbOf is the verb that a role has to grant.
func verbOf(req *http.Request) string { return strings.ToLower(req.Method) }

// judge returns the HTTP status for a request: 200 if it may pass, and 503 if that cannot be found out.
func (a *accessReviews) judge(req *http.Request) int {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized
	}
	// Neither a method nor a header has a line feed, so this tells all three apart.
	q := question(sha256.Sum256([]byte(verbOf(req) + "\n" + req.URL.Path + "\n" + token)))
	if code, known := a.known(q); known {
		return code
	}
	ctx, cancel := context.WithTimeout(req.Context(), reviewTimeout)
	defer cancel()
	code, err := a.ask(ctx, q, token, req)
	if err != nil {
		if req.Context().Err() != nil {
			return http.StatusServiceUnavailable // nobody waits for the answer
		}
		if dropped, ok := a.log.Allow(5); ok {
			klog.FromContext(ctx).Error(err, "Access cannot be reviewed, and is refused", "path", req.URL.Path,
				"notLogged", dropped)
		}
		return http.StatusServiceUnavailable
	}
	a.remember(q, code)
	return code
}

// ask asks the API server.
func (a *accessReviews) ask(ctx context.Context, q question, token string, req *http.Request) (code int, err error) {
	line, leave := a.enter(req.RemoteAddr)
	defer leave()
	for _, room := range []chan struct{}{line.turn, a.slots} {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		case <-ctx.Done():
			return 0, errors.New("too many reviews are under way")
		}
	}
	if code, known := a.known(q); known {
		return code, nil // it was asked while this request waited
	}
	user, known, err := a.client.Token(ctx, token)
	if err != nil {
		return 0, err
	}
	if !known {
		return http.StatusUnauthorized, nil
	}
	allowed, err := a.client.User(ctx, authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extraOf(user),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: req.URL.Path, Verb: verbOf(req)},
	})
	switch {
	case err != nil:
		return 0, err
	case !allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// enter adds a request to the line of its client, until leave is called.
func (a *accessReviews) enter(remote string) (line *clientLine, leave func()) {
	client, _, err := net.SplitHostPort(remote)
	if err != nil {
		client = remote
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	line, ok := a.clients[client]
	if !ok {
		line = &clientLine{turn: make(chan struct{}, 1)}
		a.clients[client] = line
	}
	line.n++
	return line, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if line.n--; line.n == 0 {
			delete(a.clients, client)
		}
	}
}

// extraOf returns what else is known of a user. The two groups of the API have a type of their own for it.
func extraOf(user authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	return extra
}

// known returns a verdict that still holds.
func (a *accessReviews) known(q question) (code int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.verdicts[q]
	return v.code, ok && time.Now().Before(v.until)
}

// remember keeps a verdict. Where there are too many, those go that no longer hold, then the refusals, which others can
// cause at will, then all.
func (a *accessReviews) remember(q question, code int) {
	now, lasts := time.Now(), refusedFor
	if code == http.StatusOK {
		lasts = allowedFor
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, gone := range []func(verdict) bool{
		func(v verdict) bool { return !now.Before(v.until) },
		func(v verdict) bool { return v.code != http.StatusOK },
		func(verdict) bool { return true },
	} {
		if len(a.verdicts) < verdictsAtMost {
			break
		}
		maps.DeleteFunc(a.verdicts, func(_ question, v verdict) bool { return gone(v) })
	}
	a.verdicts[q] = verdict{code, now.Add(lasts)}
}
