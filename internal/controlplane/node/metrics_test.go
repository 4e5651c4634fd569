package node

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

func podWithUsage(name string, annotations map[string]string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations,
		Labels: map[string]string{"app": name}}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
	}
	pod.Status.Phase = corev1.PodRunning
	return pod
}

func TestSamples(t *testing.T) {
	of := func(annotations map[string]string, containers ...string) (usage map[string]string) {
		t.Helper()
		sample, err := sampleOf(podWithUsage("web", annotations, containers...), testNow)
		require.NoError(t, err)
		if sample == nil {
			return nil
		}
		require.Equal(t, testNow, sample.Timestamp.Time)
		usage = map[string]string{}
		for _, c := range sample.Containers {
			for name, quantity := range c.Usage {
				usage[c.Name+" "+string(name)] = quantity.String()
			}
		}
		return usage
	}
	require.Nil(t, of(nil, "web"), "without an annotation there is no sample")
	require.Equal(t, map[string]string{"web cpu": "250m", "web memory": "64Mi", "log cpu": "250m",
		"log memory": "64Mi"}, of(map[string]string{"standin/usage": "cpu=250m, memory=64Mi"}, "web", "log"))
	require.Equal(t, map[string]string{"web cpu": "1", "log cpu": "0"},
		of(map[string]string{"standin/usage": "cpu=0", "standin/usage.web": "cpu=1"}, "web", "log"))
	require.Equal(t, map[string]string{"web cpu": "1"}, of(map[string]string{"standin/usage.web": "cpu=1"}, "web",
		"log"), "the container log has none")

	pending := podWithUsage("web", map[string]string{"standin/usage": "cpu=1"}, "web")
	pending.Status.Phase = corev1.PodPending
	sample, err := sampleOf(pending, testNow)
	require.NoError(t, err)
	require.Nil(t, sample)

	for _, wrong := range []string{"", "much", "cpu=much", "=1", "cpu=-1", "cpu=1,"} {
		_, err := sampleOf(podWithUsage("web", map[string]string{"standin/usage": wrong}, "web"), testNow)
		require.ErrorContains(t, err, "annotation standin/usage: ", wrong)
	}
}

// The server is asked as the API server asks it: by the name of its Service, with the authority of its APIService.
func TestMetricsHandler(t *testing.T) {
	p := newPods(Options{}, nil)
	for _, pod := range []*corev1.Pod{
		podWithUsage("a", map[string]string{"standin/usage": "cpu=1"}, "c"),
		podWithUsage("b", map[string]string{"standin/usage": "cpu=2"}, "c"),
		podWithUsage("idle", nil, "c"),
		podWithUsage("wrong", map[string]string{"standin/usage": "much"}, "c"),
	} {
		p.known[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
	}
	const name = "standin-metrics.kube-system.svc"
	certificate, authority, err := selfSigned(name)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(metricsHandler(t.Context(), p))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	client := &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}}}
	get := func(path string, code int, into any) {
		t.Helper()
		answer, err := client.Get(server.URL + "/apis/metrics.k8s.io/v1beta1" + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, code, answer.StatusCode, string(body))
		if into != nil {
			decoder := json.NewDecoder(bytes.NewReader(body))
			decoder.DisallowUnknownFields()
			require.NoError(t, decoder.Decode(into))
		}
	}
	var resources metav1.APIResourceList
	get("", http.StatusOK, &resources)
	require.Equal(t, "pods", resources.APIResources[0].Name)
	names := func(path string) (names []string) {
		t.Helper()
		var list v1beta1.PodMetricsList
		get(path, http.StatusOK, &list)
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		return names
	}
	require.ElementsMatch(t, []string{"a", "b"}, names("/pods"))
	require.ElementsMatch(t, []string{"a", "b"}, names("/namespaces/default/pods"))
	require.Empty(t, names("/namespaces/other/pods"))
	require.Equal(t, []string{"b"}, names("/namespaces/default/pods?labelSelector=app%3Db"))
	var one v1beta1.PodMetrics
	get("/namespaces/default/pods/b", http.StatusOK, &one)
	require.Equal(t, "2", one.Containers[0].Usage.Cpu().String())
	var status metav1.Status
	get("/namespaces/default/pods/idle", http.StatusNotFound, &status)
	require.Equal(t, metav1.StatusReasonNotFound, status.Reason)
	get("/pods?labelSelector=%3D%3D", http.StatusBadRequest, nil)
	get("/pods?watch=1", http.StatusBadRequest, nil)
}
