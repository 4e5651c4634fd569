package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// reviewer answers reviews: it knows the tokens prometheus and visitor, and lets prometheus get /metrics.
type reviewer struct {
	mu sync.Mutex
	// Guarded by mu.
	asked    []string
	breaks   func(path string) (*http.Response, error) // nil: it works
	received authorizationv1.SubjectAccessReviewSpec   // the last one
}

func (r *reviewer) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	r.asked = append(r.asked, path)
	if r.breaks != nil {
		if resp, err := r.breaks(path); resp != nil || err != nil {
			return resp, err
		}
	}
	switch path {
	case "tokenreviews":
		return encoded(req, func(review *authenticationv1.TokenReview) {
			review.Status.Authenticated = review.Spec.Token == "prometheus" || review.Spec.Token == "visitor"
			review.Status.User = authenticationv1.UserInfo{Username: review.Spec.Token, UID: "7",
				Groups: []string{"all"},
				Extra:  map[string]authenticationv1.ExtraValue{"pod": {"a", "b"}}}
		})
	default:
		return encoded(req, func(review *authorizationv1.SubjectAccessReview) {
			r.received = review.Spec
			about := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && about.Path == "/metrics" && about.Verb == "get"
		})
	}
}

// encoded answers with what answer makes of the body of a request.
func encoded[T any](req *http.Request, answer func(*T)) (*http.Response, error) {
	review := new(T)
	if err := json.NewDecoder(req.Body).Decode(review); err != nil {
		return nil, err
	}
	answer(review)
	body, err := json.Marshal(review)
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body))}, err
}

func (r *reviewer) take() (asked []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, r.asked = r.asked, nil
	return asked
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// guarded returns a handler for requests to a Server whose access is reviewed, about a Manager that runs.
func guarded(t *testing.T, api http.RoundTripper) http.HandlerFunc {
	t.Helper()
	served := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		require.True(t, Reviewed(req.Context()))
		io.WriteString(w, "served")
	})
	s, m := newServer(t, Options{
		Address: "0", TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}, Metrics: served,
		Handlers: map[string]http.Handler{"/debug/": served}, AccessReviews: &rest.Config{Transport: api},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	synctest.Wait()
	return func(w http.ResponseWriter, req *http.Request) {
		s.endpoints.ServeHTTP(w, req.WithContext(about(req.Context(), s, m)))
	}
}

// asking returns a function that makes each request from another address, and returns the code of the answer.
func asking(t *testing.T, handler http.Handler) func(path, authorization string) int {
	var clients atomic.Int32
	return func(path, authorization string) int {
		req := httptest.NewRequest("GET", path, nil).WithContext(t.Context())
		req.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", clients.Add(1))
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		require.Equal(t, w.Code == 200, strings.Contains(w.Body.String(), "served") || w.Body.String() == "ok\n")
		require.NotContains(t, w.Body.String(), "prometheus")
		return w.Code
	}
}

func TestOnlyThoseMayReadWhomTheAPIServerAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reviewer{}
		ask := asking(t, guarded(t, api))
		for _, open := range []string{"/healthz", "/readyz"} {
			require.Equal(t, 200, ask(open, ""), "probes have no token")
		}
		for _, none := range []string{"", "Bearer", "Bearer ", "Basic cHJvbWV0aGV1czo=", "prometheus"} {
			require.Equal(t, 401, ask("/metrics", none))
		}
		require.Empty(t, api.take())
		both, one := []string{"tokenreviews", "subjectaccessreviews"}, []string{"tokenreviews"}
		require.Equal(t, 200, ask("/metrics", "Bearer prometheus"))
		require.Equal(t, both, api.take())
		require.Equal(t, authorizationv1.SubjectAccessReviewSpec{
			User: "prometheus", UID: "7", Groups: []string{"all"},
			Extra:                 map[string]authorizationv1.ExtraValue{"pod": {"a", "b"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		}, api.received)
		require.Equal(t, 200, ask("/metrics", "bearer prometheus"))
		require.Empty(t, api.take(), "it is remembered")
		require.Equal(t, 403, ask("/debug/pprof/heap", "Bearer prometheus"), "each path is asked about")
		require.Equal(t, both, api.take())
		require.Equal(t, 403, ask("/metrics", "Bearer visitor"))
		require.Equal(t, both, api.take())
		require.Equal(t, 401, ask("/metrics", "Bearer stranger"))
		require.Equal(t, 401, ask("/metrics", "Bearer stranger"))
		require.Equal(t, one, api.take())

		time.Sleep(11 * time.Second) // refusals are forgotten first: a Role may have come
		require.Equal(t, 403, ask("/metrics", "Bearer visitor"))
		require.Equal(t, both, api.take())
		require.Equal(t, 200, ask("/metrics", "Bearer prometheus"))
		require.Empty(t, api.take())
		time.Sleep(50 * time.Second)
		require.Equal(t, 200, ask("/metrics", "Bearer prometheus"))
		require.Equal(t, both, api.take(), "a token may have been revoked")
	})
}

// TestWhatCannotBeReviewedIsRefused: an API server that is down, or refuses the reviews, or answers with an error.
func TestWhatCannotBeReviewedIsRefused(t *testing.T) {
	for name, breaks := range map[string]func(path string) (*http.Response, error){
		"down": func(string) (*http.Response, error) { return nil, errors.New("connection refused") },
		"no right to review tokens": func(path string) (*http.Response, error) {
			return status(http.StatusForbidden), nil
		},
		"no right to review access": func(path string) (*http.Response, error) {
			if path == "tokenreviews" {
				return nil, nil
			}
			return status(http.StatusForbidden), nil
		},
		"nonsense": func(string) (*http.Response, error) {
			return &http.Response{StatusCode: 201, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"status":`))}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &reviewer{breaks: breaks}
				ask := asking(t, guarded(t, api))
				require.Equal(t, 503, ask("/metrics", "Bearer prometheus"))
				api.mu.Lock()
				api.breaks = nil
				api.mu.Unlock()
				require.Equal(t, 200, ask("/metrics", "Bearer prometheus"), "a failure is not remembered")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var waiting atomic.Int32
		ask := asking(t, guarded(t, silent{&waiting}))
		began := time.Now()
		done := make(chan int)
		for i := range 3 * reviewsAtOnce {
			go func() { done <- ask("/metrics", fmt.Sprint("Bearer ", i)) }()
		}
		synctest.Wait()
		require.EqualValues(t, reviewsAtOnce, waiting.Load(), "a flood of tokens is not passed on")
		for range 3 * reviewsAtOnce {
			require.Equal(t, 503, <-done)
		}
		require.Equal(t, reviewTimeout, time.Since(began))
	})
}

// TestAClientWithTokensThatNobodyKnowsKeepsNoOtherOut: its reviews are made one at a time.
func TestAClientWithTokensThatNobodyKnowsKeepsNoOtherOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting atomic.Int32
		api, slow := &reviewer{}, silent{&waiting}
		handler := guarded(t, transport(func(req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			req.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte("random")) {
				return slow.RoundTrip(req)
			}
			return api.RoundTrip(req)
		}))
		ask := func(address, token string) int {
			req := httptest.NewRequest("GET", "/metrics", nil).WithContext(t.Context())
			req.RemoteAddr = address
			req.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			return w.Code
		}
		done := make(chan int)
		for i := range 3 * reviewsAtOnce {
			go func() { done <- ask(fmt.Sprint("10.0.0.1:", 1000+i), fmt.Sprint("random ", i)) }()
		}
		synctest.Wait()
		require.EqualValues(t, 1, waiting.Load())
		began := time.Now()
		require.Equal(t, 200, ask("10.0.0.2:1", "prometheus"))
		require.Zero(t, time.Since(began))
		for range 3 * reviewsAtOnce {
			require.Equal(t, 503, <-done)
		}
		require.Equal(t, 200, ask("10.0.0.1:1", "prometheus"))
	})
}

func status(code int) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no"))}
}

// silent does not answer.
type silent struct{ waiting *atomic.Int32 }

func (s silent) RoundTrip(req *http.Request) (*http.Response, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// TestVerdictsAreBounded: however many tokens are tried, few are remembered, and those that were allowed stay longest.
func TestVerdictsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accessReviews{verdicts: make(map[question]verdict)}
		a.remember(question{1}, http.StatusOK)
		for i := range 5 * verdictsAtMost {
			a.remember(question{2, byte(i), byte(i >> 8)}, http.StatusUnauthorized)
			require.LessOrEqual(t, len(a.verdicts), verdictsAtMost)
		}
		_, ok := a.known(question{1})
		require.True(t, ok)
		for i := range verdictsAtMost {
			a.remember(question{3, byte(i), byte(i >> 8)}, http.StatusOK)
			require.LessOrEqual(t, len(a.verdicts), verdictsAtMost)
		}
	})
}

// TestMetricsWithRealTokens serves them over HTTPS, with certificates from files, for service accounts of a real API
// server.
func TestMetricsWithRealTokens(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	account := func(rules ...rbacv1.PolicyRule) *rest.Config {
		cfg, err := cluster.ClusterServiceAccount(t.Context(), namespace, rules...)
		require.NoError(t, err)
		return cfg
	}
	manager := account(
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"},
			Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"},
			Verbs: []string{"create"}})
	prometheus := account(rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})

	certFile, keyFile, roots := certificateFilesOf(t)
	config, err := TLSFromFiles(certFile, keyFile)
	require.NoError(t, err)
	s, m := newServer(t, Options{
		Address: "127.0.0.1:0", TLS: config, AccessReviews: manager,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }),
	})
	stop := start(t, s, m)
	t.Cleanup(func() { require.NoError(t, stop()) })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	get := func(path, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+s.Address()+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	code, body := get("/metrics", prometheus.BearerToken)
	require.Equal(t, 200, code, body)
	require.Equal(t, "up 1\n", body)
	code, body = get("/metrics", manager.BearerToken)
	require.Equal(t, 403, code, body)
	code, body = get("/metrics", prometheus.BearerToken+"x")
	require.Equal(t, 401, code, body)
	code, body = get("/healthz", "")
	require.Equal(t, 200, code, body)
}

// certificateFilesOf writes a certificate for this machine, and returns a pool that trusts it.
func certificateFilesOf(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	cert, key := certificate(t, 1)
	certFile, keyFile = writeFile(t, "tls.crt", cert), writeFile(t, "tls.key", key)
	roots = x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(cert))
	return certFile, keyFile, roots
}
