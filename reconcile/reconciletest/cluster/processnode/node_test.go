package processnode_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

func (w *world) nodeIs(name string, status corev1.ConditionStatus) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil && len(node.Status.Conditions) == 1 && node.Status.Conditions[0].Status == status
	}, time.Minute, 20*time.Millisecond, "node %s should be Ready: %s", name, status)
}

// A node that is lost takes its processes with it, and comes back with its disks.
func TestNodeIsLostAndComesBack(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("survivor", "add=/data/file", "cat=/data/file", "wait")
	w.claim(pod, "disk")
	w.create(pod)
	w.says("survivor", "waiting")
	pod = w.until("survivor", "ready", ready)
	ip := pod.Status.PodIP
	path, err := w.pool.LogFile(w.key("survivor"), "c")
	require.NoError(t, err)
	done := w.pod("done", "exit=0")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(done)
	w.until("done", "succeeded", succeeded)

	node := w.pool.Nodes()[0]
	require.NoError(t, node.Stop(t.Context()))
	require.False(t, runs(path))
	w.nodeIs(node.Name, corev1.ConditionUnknown)
	w.until("survivor", "not ready", func(pod *corev1.Pod) bool { return !ready(pod) })
	require.ErrorContains(t, w.pool.Kill(t.Context(), w.key("survivor"), ""), "on no node of this pool that is up")
	w.delete("done", 30)
	w.create(w.pod("waiting", "wait"))
	pod = w.until("waiting", "unschedulable", func(pod *corev1.Pod) bool { return len(pod.Status.Conditions) > 0 })
	require.Equal(t, corev1.PodReasonUnschedulable, pod.Status.Conditions[0].Reason)
	require.Contains(t, pod.Status.Conditions[0].Message, "0/1 nodes are available: "+node.Name)

	require.NoError(t, node.Start(t.Context()))
	w.gone("done")
	pod = w.until("survivor", "restarted", restarts(1))
	require.Equal(t, ip, pod.Status.PodIP)
	require.EqualValues(t, 137, pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	require.Equal(t, "line\nline\n\nwaiting\n", w.says("survivor", "waiting"))
	w.until("waiting", "ready", ready)
}

// Pods with the same name in the DNS have the same address, one after the other.
func TestAddresses(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	address := func(name string) string {
		pod := w.until(name, "ready", ready)
		return pod.Status.PodIP
	}
	named := func() *corev1.Pod {
		pod := w.pod("named", "wait")
		pod.Spec.Hostname, pod.Spec.Subdomain = "member-0", "members"
		return pod
	}
	w.create(named())
	for _, name := range []string{"a", "b"} {
		w.create(w.pod(name, "wait"))
		seen[address(name)] = true
	}
	kept := address("named")
	seen[kept] = true
	require.Len(t, seen, 3)
	w.delete("named", 1)
	w.gone("named")
	w.create(named())
	require.Equal(t, kept, address("named"))
}

func TestExecAndLogs(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("talks", "add=/shared/f", "cat=/shared/f", "say=two", "wait")
	pod.Spec.Volumes = []corev1.Volume{emptyDir("v")}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/shared"}}
	w.create(pod)
	w.says("talks", "waiting")
	out, err := w.pool.Exec(t.Context(), w.key("talks"), "", "test", container, "env=HOSTNAME")
	require.NoError(t, err)
	require.Equal(t, "HOSTNAME=talks\n", out)
	out, err = w.pool.Exec(t.Context(), w.key("talks"), "", "test", container, "say=bad", "exit=2")
	require.ErrorContains(t, err, "exit status 2")
	require.Equal(t, "bad\n", out)

	open := func(o *corev1.PodLogOptions) io.ReadCloser {
		body, err := w.client.CoreV1().Pods(w.namespace).GetLogs("talks", o).Stream(t.Context())
		require.NoError(t, err)
		return body
	}
	all := func(body io.ReadCloser) string {
		defer body.Close()
		content, err := io.ReadAll(body)
		require.NoError(t, err)
		return string(content)
	}
	logs := func(o *corev1.PodLogOptions) string { return all(open(o)) }
	require.Equal(t, "line\n\ntwo\nwaiting\n", logs(&corev1.PodLogOptions{}))
	require.Equal(t, "two\nwaiting\n", logs(&corev1.PodLogOptions{TailLines: new(int64(2))}))
	require.Equal(t, "line\n\ntwo\nwaiting\n", logs(&corev1.PodLogOptions{TailLines: new(int64(9))}))
	require.Equal(t, "line", logs(&corev1.PodLogOptions{LimitBytes: new(int64(4))}))
	followed := open(&corev1.PodLogOptions{Follow: true})
	require.NoError(t, w.pool.Kill(t.Context(), w.key("talks"), "c"))
	w.until("talks", "restarted", restarts(1))
	require.Equal(t, "line\n\ntwo\nwaiting\n", logs(&corev1.PodLogOptions{Previous: true}))
	require.Equal(t, "line\n\ntwo\nwaiting\n", all(followed))
	require.Equal(t, "line\nline\n\ntwo\nwaiting\n", w.says("talks", "waiting"))
}

// In a cluster of its own a pool takes all pods. It spreads them, and runs them on while the API server is away.
func TestPoolTakesAllPods(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{DisableNode: true})
	w := newWorldOn(t, c, processnode.Options{Name: "all", Nodes: 3, AllPods: true})
	create := func(name string) {
		pod := w.pod(name, "add=/data/file", "cat=/data/file", "wait")
		pod.Labels = map[string]string{"app": "db"}
		pod.Spec.NodeSelector = nil
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			}},
		}}
		w.claim(pod, name)
		w.create(pod)
	}
	nodes := map[string]string{}
	for i := range 3 {
		create(fmt.Sprintf("db-%d", i))
	}
	for i := range 3 {
		pod := w.until(fmt.Sprintf("db-%d", i), "ready", ready)
		nodes[pod.Spec.NodeName] = pod.Name
	}
	require.Len(t, nodes, 3)
	create("db-3")
	pod := w.until("db-3", "unschedulable", func(pod *corev1.Pod) bool { return len(pod.Status.Conditions) > 0 })
	require.Contains(t, pod.Status.Conditions[0].Message, "must not share a node")
	w.delete("db-3", 0)

	require.NoError(t, c.Kill(t.Context(), cluster.APIServer))
	require.NoError(t, w.pool.Kill(t.Context(), w.key("db-0"), ""))
	path := func() string { path, err := w.pool.LogFile(w.key("db-0"), ""); require.NoError(t, err); return path }
	require.Eventually(t, func() bool { return runs(path()) && strings.HasSuffix(path(), ".1.log") }, time.Minute,
		20*time.Millisecond, "restarted without the API server")
	require.NoError(t, c.Restart(t.Context(), cluster.APIServer))
	w.until("db-0", "restarted", restarts(1))

	// Its disk is where it was, so the pod can be on no other node.
	home := w.until("db-1", "ready", ready).Spec.NodeName
	require.NoError(t, w.pool.Nodes()[home[len(home)-1]-'0'].Stop(t.Context()))
	w.delete("db-1", 0)
	w.gone("db-1")
	create("db-1")
	w.until("db-1", "unschedulable", func(pod *corev1.Pod) bool { return len(pod.Status.Conditions) > 0 })
	require.NoError(t, w.pool.Nodes()[home[len(home)-1]-'0'].Start(t.Context()))
	require.Equal(t, home, w.until("db-1", "ready", ready).Spec.NodeName)
	require.Equal(t, "line\nline\n\nwaiting\n", w.says("db-1", "waiting"))
}

func TestAPoolIsRefused(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	for message, o := range map[string]processnode.Options{
		"start the cluster with DisableNode": {AllPods: true},
		"does not match":                     {Name: "My Node"},
		"no such file":                       {Images: map[string]processnode.Image{"i": processnode.Program("/none")}},
		"has no programs":                    {Images: map[string]processnode.Image{"i": {}}},
		"can be negative":                    {Nodes: -1},
	} {
		_, err := processnode.Start(t.Context(), c, o)
		require.ErrorContains(t, err, message)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := processnode.Start(ended, c, processnode.Options{Name: "ended"})
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, filepath.Join(c.Dir(), "ended"))
	_, err = c.Client().CoreV1().Nodes().Get(t.Context(), "ended-0", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
}

// With this variable set the test binary starts a pool, runs a pod, and waits to be killed.
const startOnly = "PROCESSNODE_TEST_START_ONLY"

func startOnlyMain() {
	c, err := cluster.Start(context.Background(), cluster.Options{DisableNode: true})
	exitOn(err)
	self, err := os.Executable()
	exitOn(err)
	image := processnode.Image{Programs: map[string]string{"test": self}, Entrypoint: []string{"test", container}}
	_, err = processnode.Start(context.Background(), c, processnode.Options{AllPods: true,
		Images: map[string]processnode.Image{"test": image}})
	exitOn(err)
	namespace, err := c.CreateNamespace(context.Background(), "orphans")
	exitOn(err)
	_, err = c.Client().CoreV1().Pods(namespace).Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "orphan"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "test",
			Args: []string{"deaf", "hang"}}}},
	}, metav1.CreateOptions{})
	exitOn(err)
	for {
		logs, err := filepath.Glob(filepath.Join(c.Dir(), "*.orphan.c.*.0.log"))
		exitOn(err)
		if len(logs) == 1 && runs(logs[0]) {
			fmt.Println(logs[0])
			select {}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Nothing is left of a pool whose process was killed with -9.
func TestKilledProcessLeavesNoContainerBehind(t *testing.T) {
	t.Parallel()
	_, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	command := exec.Command(os.Args[0])
	command.Env, command.Stderr = append(os.Environ(), startOnly+"=1"), os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill() })
	log, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	log = strings.TrimSpace(log)
	require.True(t, runs(log))
	require.NoError(t, command.Process.Kill())
	_ = command.Wait()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Dir(log))
		return os.IsNotExist(err) && !runs(log) && !runs(log+" (deleted)")
	}, time.Minute, 20*time.Millisecond)
}
