package processnode_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// A server with a startup probe by tcp and a readiness probe by http, which turns with a file.
func TestReadiness(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("ready", "serve=$(IP):8080,/data/ready", "wait")
	w.claim(pod, "disk")
	c := &pod.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	c.StartupProbe = &corev1.Probe{FailureThreshold: 30, ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1}
	c.ReadinessProbe = &corev1.Probe{FailureThreshold: 1, PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http"), Path: "/"}}}
	w.create(pod)
	w.until("ready", "started", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) == 1 && *pod.Status.ContainerStatuses[0].Started
	})
	w.event("ready", "Unhealthy", "HTTP status 503")
	w.until("ready", "not ready", func(pod *corev1.Pod) bool { return !ready(pod) })
	disk, err := w.pool.Disk(t.Context(), w.key("disk"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(disk+"/ready", nil, 0o600))
	w.until("ready", "ready", ready)

	// A process that is stopped does not answer, and keeps its connections.
	require.NoError(t, w.pool.Freeze(t.Context(), w.key("ready"), "c"))
	w.until("ready", "not ready", func(pod *corev1.Pod) bool { return !ready(pod) })
	require.NoError(t, w.pool.Thaw(t.Context(), w.key("ready"), "c"))
	pod = w.until("ready", "ready", ready)
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	// How the second process has ended can be seen for as long as the third one does not start.
	w := newWorldOn(t, cluster.Shared(t), processnode.Options{RestartBackOff: 10 * time.Second})
	// Each process is sick only once it hears no SIGTERM, however long it takes to start: the file is in the directory
	// of the container, which is emptied before each start.
	pod := w.pod("sick", "deaf", "add=deaf", "hang")
	c := &pod.Spec.Containers[0]
	c.LivenessProbe = &corev1.Probe{FailureThreshold: 1, PeriodSeconds: 1, TimeoutSeconds: 60,
		TerminationGracePeriodSeconds: new(int64(1)), ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"test", container, "unless=deaf", "exit=5"}}}}
	began := time.Now()
	w.create(pod)
	pod = w.until("sick", "ended", waits("CrashLoopBackOff"))
	require.EqualValues(t, 137, pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	require.Greater(t, time.Since(began), time.Second, "its grace period")
	w.event("sick", "Unhealthy", "liveness probe failed: test: exit status 5")
	w.event("sick", "Killing", "failed liveness probe")
	w.until("sick", "restarted", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount > 0
	})
}
