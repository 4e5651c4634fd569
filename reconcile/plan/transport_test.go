package plan

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
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

// TestDryRunsHaveAPaceAndALimit has a cluster that answers at once at first, and then never.
func TestDryRunsHaveAPaceAndALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := true
		cluster := roundTripper(func(req *http.Request) (*http.Response, error) {
			if !answers {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})
		b, err := newBase(t.Context(), &rest.Config{Host: "http://cluster", Transport: cluster}, newRecorder())
		require.NoError(t, err)
		begin := time.Now()
		for range 100 {
			_, err := b.dryRun(t.Context(), http.MethodPost, "/api/v1/pods", nil)
			require.NoError(t, err)
		}
		require.InDelta(t, 3, time.Since(begin).Seconds(), 0.01, "40 at once, and 20 a second")
		answers, begin = false, time.Now()
		_, err = b.dryRun(t.Context(), http.MethodPost, "/api/v1/pods", nil)
		require.True(t, apierrors.IsServiceUnavailable(err), err)
		require.InDelta(t, 30, time.Since(begin).Seconds(), 0.01)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
