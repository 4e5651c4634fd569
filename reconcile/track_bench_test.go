package reconcile

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// BenchmarkTrackWrites is what TrackWrites adds to a request of a Reconcile: for a creation that a cache has seen by
// the time it is answered, for one that no cache follows, and for a read.
func BenchmarkTrackWrites(b *testing.B) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/main:1"}}},
	}
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &encoded); err != nil {
		b.Fatal(err)
	}
	answer := tripper(func(*http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf"}}
		body := io.NopCloser(bytes.NewReader(encoded.Bytes()))
		return &http.Response{StatusCode: 201, Header: header, Body: body}, nil
	})
	for _, kind := range []struct{ name, method, path string }{
		{"write", http.MethodPost, "/api/v1/namespaces/a/pods"},
		{"write that nobody follows", http.MethodPost, "/api/v1/namespaces/a/events"},
		{"read", http.MethodGet, "/api/v1/namespaces/a/pods/p"},
	} {
		b.Run(kind.name, func(b *testing.B) {
			c := newController(b)
			cache := c.ledger.CacheOf(hasPod{newMaps(b)})
			cache.Learner = &writes.Learner{}
			pods := &url.URL{Scheme: "https", Host: "server:6443", Path: "/api/v1/pods"}
			cache.Learner.Learn(&http.Request{URL: pods})
			w := newWorker(c, b.Context(), b.Context(), nil)
			w.turn.Began = time.Now()
			defer w.stuckTimer.Stop()
			tracked := TrackWrites(answer)
			url := &url.URL{Scheme: "https", Host: "server:6443", Path: kind.path}
			b.ReportAllocs()
			for b.Loop() {
				run := &run{Run: keys.Run{Turn: &w.turn}, worker: w}
				req := (&http.Request{Method: kind.method, URL: url}).WithContext(run)
				resp, err := tracked.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// hasPod is an informer whose cache has the pod of the benchmark.
type hasPod struct{ *cachedMaps }

func (hasPod) Version(Key) (informer.Version, bool) {
	return informer.Version{UID: "u", ResourceVersion: "7"}, true
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
