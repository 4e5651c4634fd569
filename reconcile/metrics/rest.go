package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// RESTClients lets the collector show the requests of all of client-go's clients in this process, under the names that
// Kubernetes' components give them. client-go registers such metrics once for each process: of several collectors
// only the first on which RESTClients is called shows anything, and none does if other code has registered its own
// before.
func (c *Collector) RESTClients() {
	clientmetrics.Register(clientmetrics.RegisterOpts{
		RequestResult: &c.rest, RequestLatency: latency{c.rest.took}, RateLimiterLatency: latency{c.rest.limited},
		RequestRetry: resent{c.rest.retries},
	})
}

// requests is what client-go tells of its requests. The labels tell servers apart, not objects.
type requests struct {
	results, retries *prometheus.CounterVec
	took, limited    *prometheus.HistogramVec
}

func newRequests() requests {
	counter := func(name, help, verb string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code", verb, "host"})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}},
			[]string{"verb", "host"})
	}
	return requests{
		results: counter("rest_client_requests_total", "Requests to API servers, by what came of them.", "method"),
		retries: counter("rest_client_request_retries_total", "Requests that client-go has sent again.", "verb"),
		took:    histogram("rest_client_request_duration_seconds", "How long requests took, until the answer began."),
		limited: histogram("rest_client_rate_limiter_duration_seconds",
			"How long requests waited for the client's own rate limit."),
	}
}

func (r *requests) vecs() []prometheus.Collector {
	return []prometheus.Collector{r.results, r.retries, r.took, r.limited}
}

// Increment implements client-go's ResultMetric.
func (r *requests) Increment(_ context.Context, code, method, host string) {
	r.results.WithLabelValues(code, method, host).Inc()
}

type latency struct{ *prometheus.HistogramVec }

func (l latency) Observe(_ context.Context, verb string, u url.URL, d time.Duration) {
	l.WithLabelValues(verb, u.Host).Observe(d.Seconds())
}

type resent struct{ *prometheus.CounterVec }

func (r resent) IncrementRetry(_ context.Context, code, method, host string) {
	r.WithLabelValues(code, method, host).Inc()
}
