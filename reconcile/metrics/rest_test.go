package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestRequestsAreShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	collector := New()
	collector.RESTClients()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	_, err := client.CoreV1().Pods("secret-namespace").Get(t.Context(), "secret-name", metav1.GetOptions{})
	require.Error(t, err)

	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	host := strings.TrimPrefix(server.URL, "http://")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rest_client_requests_total Requests to API servers, by what came of them.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="403",host="`+host+`",method="GET"} 1
`), "rest_client_requests_total"))
	families, err := registry.Gather()
	require.NoError(t, err)
	text := ""
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		text += f.String()
	}
	require.True(t, names["rest_client_request_duration_seconds"])
	require.True(t, names["rest_client_rate_limiter_duration_seconds"])
	require.NotContains(t, text, "secret", "no names of objects")
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
