package tap

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// body is an answer that knows whether it has been closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

type answering func(*http.Request) *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func TestTheTransportTakesAnAnswer(t *testing.T) {
	sent := &body{Reader: strings.NewReader("{}")}
	header := http.Header{"Content-Type": {"application/json"}, "Content-Length": {"2"}}
	code := http.StatusOK
	transport := Wrap(answering(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: code, Body: sent, Header: header.Clone(), ContentLength: 2}
	}))
	ask := func(m *mark, path string) *http.Response {
		ctx := t.Context()
		if m != nil {
			ctx, _ = marked(ctx, m.watch)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		return resp
	}
	for path, takes := range map[string]bool{
		"/api/v1/pods":                                  true,
		"/api/v1/namespaces/default/pods":               true,
		"/apis/apps/v1/deployments":                     true,
		"/apis/example.com/v1beta1/namespaces/a/things": true,
		"/k8s/clusters/c-1/api/v1/pods":                 true,
		"/api/v1/namespaces":                            true,
		"/api/v1/namespaces/default":                    false,
		"/api/v1/namespaces/default/pods/web":           false,
		"/api/v1/nodes/one":                             false,
		"/apis/apps/v1":                                 false,
		"/version":                                      false,
		"/api/v1/pods?watch=true":                       false,
	} {
		taken := ask(&mark{}, path).Body != io.ReadCloser(sent)
		require.Equal(t, takes, taken, path)
	}
	require.NotSame(t, sent, ask(&mark{watch: true}, "/api/v1/pods?watch=true").Body)
	require.Same(t, sent, ask(nil, "/api/v1/pods").Body, "it has no mark")
	code = http.StatusForbidden
	require.Same(t, sent, ask(&mark{}, "/api/v1/pods").Body, "it is an error")
	code = http.StatusOK
	header.Set("Content-Encoding", "zstd")
	require.Same(t, sent, ask(&mark{}, "/api/v1/pods").Body, "it is compressed")
	header.Del("Content-Encoding")
	header.Set("Content-Type", "application/cbor")
	require.Same(t, sent, ask(&mark{}, "/api/v1/pods").Body, "it is CBOR")
	header.Set("Content-Type", "application/json")

	resp := ask(&mark{}, "/api/v1/pods")
	require.Empty(t, resp.Header.Get("Content-Length"))
	require.EqualValues(t, -1, resp.ContentLength)
	require.False(t, sent.closed)
	require.NoError(t, resp.Body.Close())
	require.True(t, sent.closed, "a client that closes its answer closes the true one")
	_, err := resp.Body.Read(make([]byte, 1))
	require.Error(t, err)
}
