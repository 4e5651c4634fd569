package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// theFirst is the one collector of this process that client-go tells of its requests, however often the test runs.
var theFirst = sync.OnceValue(func() *Collector {
	collector := New(Options{})
	collector.RESTClients()
	return collector
})

func TestRequestsAreShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	collector := theFirst()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	_, err := client.CoreV1().Pods("secret-namespace").Get(t.Context(), "secret-name", metav1.GetOptions{})
	require.Error(t, err)

	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	host := strings.TrimPrefix(server.URL, "http://")
	require.Equal(t, 1.0, testutil.ToFloat64(collector.rest.results.WithLabelValues("403", http.MethodGet, host)))
	families, err := registry.Gather()
	require.NoError(t, err)
	text := ""
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		text += f.String()
	}
	require.True(t, names["rest_client_requests_total"])
	require.True(t, names["rest_client_request_duration_seconds"])
	require.True(t, names["rest_client_rate_limiter_duration_seconds"])
	require.NotContains(t, text, "secret", "no names of objects")
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
