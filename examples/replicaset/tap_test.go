package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A tap is a transport that notes the requests of a controller about ReplicaSets and pods, and can answer in the API
// server's place.
type tap struct {
	mu sync.Mutex
	// Guarded by mu. answer is asked about each request; with nil it goes to the API server. It must not change while
	// requests are under way.
	requests []request
	answer   func(request) *http.Response
}

// memory is an API server in memory with the namespace ns, a client, and a tap on that. Only the tests of single steps
// use it: no controller is at work.
type memory struct {
	*tap
	t      *testing.T
	link   *reconciletest.Link
	server clients // the tapped one
	free   clients
}

func inMemory(t *testing.T) *memory {
	t.Helper()
	server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"ns"}})
	m := &memory{tap: &tap{}, t: t, link: server.Link()}
	cfg := m.link.Config()
	cfg.ContentType = "application/json" // so that the bodies can be read
	cfg.Wrap(m.wrap)
	var err error
	m.server, err = newClients(cfg)
	require.NoError(t, err)
	m.free, err = newClients(server.Config())
	require.NoError(t, err)
	return m
}

func (m *memory) createRS(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	m.t.Helper()
	created, err := m.free.replicaSets.In("ns").Create(m.t.Context(), rs, metav1.CreateOptions{})
	require.NoError(m.t, err)
	return created
}

// createPod creates a pod as it is when it is new.
func (m *memory) createPod(pod *corev1.Pod) *corev1.Pod {
	m.t.Helper()
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.ResourceVersion = nil, ""
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	created, err := m.free.pods.In("ns").Create(m.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(m.t, err)
	return created
}

// request is one that was sent, without lists and watches.
type request struct {
	what string // such as "PUT replicasets/status"
	name string // of the object; "" for a creation
	body string
}

// refuse is the answer of an API server that does not want to.
func refuse(code int) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader("refused by the test")),
	}
}

// sent are the requests of one kind, in order.
func (t *tap) sent(what string) (found []request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(func(yield func(request) bool) {
		for _, r := range t.requests {
			if r.what == what && !yield(r) {
				return
			}
		}
	})
}

// order is what was sent since the last call, in order.
func (t *tap) order() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.requests {
		all = append(all, r.what)
	}
	t.requests = nil
	return all
}

func (t *tap) wrap(next http.RoundTripper) http.RoundTripper { return &tapped{t, next} }

type tapped struct {
	tap  *tap
	next http.RoundTripper
}

func (t *tapped) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *tapped) RoundTrip(req *http.Request) (*http.Response, error) {
	_, path, _ := strings.Cut(req.URL.Path, "/namespaces/")
	parts := append(strings.Split(path, "/"), "", "", "")[1:] // resource, name, subresource
	r := request{what: req.Method + " " + parts[0], name: parts[1]}
	if parts[2] != "" {
		r.what += "/" + parts[2]
	}
	if parts[0] != "pods" && parts[0] != "replicasets" || req.Method == http.MethodGet && r.name == "" {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body.Close()
		r.body = string(body)
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	t.tap.mu.Lock()
	t.tap.requests = append(t.tap.requests, r)
	answer := t.tap.answer
	t.tap.mu.Unlock()
	if answer != nil {
		if resp := answer(r); resp != nil {
			resp.Request = req
			return resp, nil
		}
	}
	return t.next.RoundTrip(req)
}
