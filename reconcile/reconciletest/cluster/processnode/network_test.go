package processnode_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// A pod is cut off from another one, and from neither the test nor its probes; and the other way round.
func TestNetwork(t *testing.T) {
	t.Parallel()
	n, err := network.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	w := newWorldOn(t, cluster.Shared(t), processnode.Options{Network: n})
	server := w.pod("server", "add=file", "serve=0.0.0.0:8080,file", "wait")
	c := &server.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	c.ReadinessProbe = &corev1.Probe{FailureThreshold: 1, PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http"), Path: "/"}}}
	w.create(server)
	w.create(w.pod("client", "wait"))
	server = w.until("server", "ready", ready)
	w.until("client", "ready", ready)
	url := "http://" + server.Status.PodIP + ":8080/"
	client := func() error {
		_, err := w.pool.Exec(t.Context(), w.key("client"), "", "test", container, "get="+url)
		return err
	}
	outside := func() error {
		answer, err := (&http.Client{Timeout: time.Second,
			Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	eventually := func(what string, get func() error) {
		t.Helper()
		require.Eventually(t, func() bool { return get() == nil }, time.Minute, 10*time.Millisecond, what)
	}
	eventually("nothing is cut", client)
	heal := n.Cut(network.Pod(w.key("server")), network.Pod(w.key("client")))
	require.ErrorContains(t, client(), "Client.Timeout exceeded")
	eventually("the client is cut off", outside)
	heal()
	heal = n.Cut(network.Outside, network.Pod(w.key("server")))
	require.Error(t, outside())
	eventually("the test is cut off", client)
	require.Eventually(t, func() bool {
		return ready(w.until("server", "there", func(*corev1.Pod) bool { return true }))
	}, time.Minute, 10*time.Millisecond)
	heal()
	eventually("nothing is cut", outside)

	// Nothing serves for a pod that is gone.
	w.delete("server", 0)
	require.Eventually(t, func() bool { return outside() != nil }, time.Minute, 10*time.Millisecond)
}
