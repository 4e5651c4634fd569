package informer

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// overPipes serves HTTP in virtual time: real connections, but for the network.
func overPipes(t *testing.T, handler http.Handler) *http.Transport {
	t.Helper()
	conns, closed := make(chan net.Conn), make(chan struct{})
	server := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipes{conns, closed}) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-served
	})
	return transport
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

// One refusal holds back everybody, and they do not come back all at once.
func TestTheGateHoldsEverybodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		served := map[string][]time.Duration{}
		transport := overPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served[r.Host] = append(served[r.Host], time.Since(began))
			if r.URL.Path == "/busy" {
				w.Header().Set("Retry-After", "20")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		var gate Gate
		client := &http.Client{Transport: gate.Wrap(transport)}
		get := func(ctx context.Context, url string) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("x"))
			require.NoError(t, err)
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		require.NoError(t, get(t.Context(), "http://one/"))
		require.NoError(t, get(t.Context(), "http://one/busy"))
		require.NoError(t, get(t.Context(), "http://two/"), "another host is not meant")
		require.Zero(t, time.Since(began))

		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _ = get(t.Context(), "http://one/") })
		}
		impatient, cancel := context.WithTimeoutCause(t.Context(), time.Second, errPicky)
		defer cancel()
		require.ErrorContains(t, get(impatient, "http://one/"), "asked for a pause")
		require.Equal(t, time.Second, time.Since(began), "the context ends the wait")
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, served["one"], 52)
		at := map[time.Duration]bool{}
		for _, d := range served["one"][2:] {
			require.GreaterOrEqual(t, d, 20*time.Second)
			require.LessOrEqual(t, d, 30*time.Second)
			at[d] = true
		}
		require.Greater(t, len(at), 40)
		require.Empty(t, gate.closed)
	})
}

// However long a server asks to be left alone, in seconds or beyond the largest number of nanoseconds, it is asked
// again.
func TestGateObeysForFiveMinutesAtMost(t *testing.T) {
	for _, asked := range []string{"301", "2147483647", "9223372037", "99999999999999999999"} {
		synctest.Test(t, func(t *testing.T) {
			var gate Gate
			transport := gate.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/busy" {
					resp := answerBytes(r, http.StatusTooManyRequests, "", nil)
					resp.Header.Set("Retry-After", asked)
					return resp, nil
				}
				return answerBytes(r, http.StatusOK, "", nil), nil
			}))
			get := func(path string) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://one"+path, nil)
				require.NoError(t, err)
				_, err = transport.RoundTrip(r)
				require.NoError(t, err)
			}
			began := time.Now()
			get("/busy")
			get("/")
			require.GreaterOrEqual(t, time.Since(began), 5*time.Minute, asked)
			require.LessOrEqual(t, time.Since(began), 450*time.Second+time.Second, asked)
		})
	}
}

// Time at the gate is not the server's silence: nobody gives up streaming for it.
func TestInformersWaitAtTheGate(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &overHTTP{api: newPodAPI(), protobuf: true}
			s.api.Create(pod("a"))
			began, refused := time.Now(), false
			var asked []time.Duration
			var gate Gate
			transport := gate.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
				asked = append(asked, time.Since(began))
				if !refused {
					refused = true
					resp := answerBytes(r, http.StatusServiceUnavailable, "text/plain", nil)
					resp.Header.Set("Retry-After", "240")
					return resp, nil
				}
				return s.RoundTrip(r)
			}))
			// Somebody else is refused.
			resp, err := (&http.Client{Transport: transport}).Get("http://server/")
			require.NoError(t, err)
			resp.Body.Close()

			inf, err := New[*corev1.Pod](podsOver(t, transport), Options[*corev1.Pod]{DisableWatchList: !streaming})
			require.NoError(t, err)
			run(t, inf)
			synced(t, inf)
			synctest.Wait()
			require.NoError(t, inf.Health().LastError)
			require.GreaterOrEqual(t, asked[1], 240*time.Second)
			require.Equal(t, 1, inf.Health().Lists)
		})
	}
}

func TestTheGateIsInvisibleToClientGo(t *testing.T) {
	next := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errPicky })
	wrapped := new(Gate).Wrap(next)
	_, err := wrapped.(interface{ WrappedRoundTripper() http.RoundTripper }).WrappedRoundTripper().RoundTrip(nil)
	require.ErrorIs(t, err, errPicky)
}
