package members

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeard(t *testing.T) {
	const counts = `# TYPE etcd_network_peer_received_bytes_total counter
etcd_network_peer_received_bytes_total{From="0"} 1.5e+06
etcd_network_peer_received_bytes_total{From="d7e28c8de7be142e"} 42
`
	for what, c := range map[string]struct {
		status int
		body   string
		want   map[uint64]float64
		err    string
	}{
		"two members":         {200, counts, map[uint64]float64{0: 1.5e6, 0xd7e28c8de7be142e: 42}, ""},
		"nothing received":    {200, "# TYPE other counter\nother 1\n", map[uint64]float64{}, ""},
		"an error":            {503, counts, nil, "503 Service Unavailable"},
		"no metrics":          {200, "<html>", nil, "metrics of"},
		"an ID that is none":  {200, "etcd_network_peer_received_bytes_total{From=\"a-1\"} 1\n", nil, "invalid syntax"},
		"a part of an answer": {200, counts[:len(counts)-4], nil, "metrics of"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/metrics", r.URL.Path)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		heard, err := Client{}.Heard(t.Context(), server.URL)
		server.Close()
		require.Equal(t, c.want, heard, what)
		if c.err == "" {
			require.NoError(t, err, what)
		} else {
			require.ErrorContains(t, err, c.err, what)
		}
	}
}
