package plan

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOnlyReadsAndDryRunsLeaveForTheCluster is about the one place where requests go out.
func TestOnlyReadsAndDryRunsLeaveForTheCluster(t *testing.T) {
	var left []string
	cluster := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		left = append(left, r.Method+" "+r.URL.RequestURI())
	}))
	defer cluster.Close()
	client := http.Client{Transport: onlyDryRuns{http.DefaultTransport}}
	for _, request := range []string{"GET /a", "POST /a?dryRun=All", "PUT /a?dryRun=All", "DELETE /a?dryRun=All",
		"POST /a", "PUT /a?dryRun=", "DELETE /a?dryrun=All", "PATCH /a?dryRun=None", "POST /a?dryRun=All&dryRun=x"} {
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, cluster.URL+path, nil)
		require.NoError(t, err)
		if resp, err := client.Do(req); err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	require.Equal(t, []string{"GET /a", "POST /a?dryRun=All", "PUT /a?dryRun=All", "DELETE /a?dryRun=All"}, left)
}
