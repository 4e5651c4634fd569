package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// TestMain lets the test binary be the command, for the tests of what a user sees of it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

// sharded has all tests run with sharding: go test ./examples/replicaset -args -shards.
var sharded = flag.Bool("shards", false, "three replicas, all at work, in place of each controller")

// The clusters of these tests leave the work of the ReplicaSet controller to us.
var withoutBuiltIn = testcluster.Options{Controllers: []string{"*", "-replicaset-controller"}}

var startShared = sync.OnceValues(func() (*testcluster.Cluster, error) {
	return testcluster.Start(context.Background(), withoutBuiltIn)
})

// shared returns the cluster of all tests that leave its components alone.
func shared(t testing.TB) *testcluster.Cluster {
	t.Helper()
	cluster, err := startShared()
	require.NoError(t, err)
	return cluster
}

// runBuiltIn runs the built-in ReplicaSet controller in a process of its own, with these flags added to its command
// line.
func runBuiltIn(t testing.TB, cluster *testcluster.Cluster, name string, flags ...string) *testcluster.Process {
	t.Helper()
	return testbed.RunBuiltIn(t, cluster, name, "replicaset-controller", flags...)
}

// world is a namespace in which a controller works and an overseer checks the pods.
type world struct {
	t         testing.TB
	cluster   *testcluster.Cluster
	client    kubernetes.Interface
	namespace string
	overseer  *overseer
}

func newWorld(t *testing.T, cluster *testcluster.Cluster) *world {
	w := newFreeWorld(t, cluster)
	w.overseer = oversee(t, w.client, w.namespace)
	return w
}

// newFreeWorld makes one whose overseer sees nothing.
func newFreeWorld(t testing.TB, cluster *testcluster.Cluster) *world {
	return &world{t: t, cluster: cluster, client: cluster.Client(), namespace: cluster.Namespace(t),
		overseer: &overseer{limits: map[string]limit{}}}
}

// startCommand starts the command as a process that can be killed and frozen, with the rate that a controller has in
// all tests. It, or what it was restarted as, ends with the test, before the gateway that it is given: one that is
// closed while its clients go on waits for them.
func startCommand(t testing.TB, cluster *testcluster.Cluster, name, kubeconfig string,
	args ...string) *testcluster.Process {
	t.Helper()
	p, err := cluster.Run(t.Context(), testcluster.Command{
		Name: name, Path: os.Args[0], Env: []string{"BE_THE_COMMAND=1"},
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--kube-api-qps=500", "--kube-api-burst=1000"}, args...),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Kill(context.Background()) }) // it may have ended
	return p
}

// options are the controller's, for one namespace and without an election.
func (w *world) options() command.Options {
	return command.Options{Namespace: w.namespace, Workers: 5, QPS: 500, Burst: 1000, MetricsAddress: "0",
		StartupTimeout: 30 * time.Second}
}

// control starts a controller, with transports wrapped around its own. stop ends it; so does the end of the test.
func (w *world) control(wrap ...transport.WrapperFunc) (stop func()) {
	return w.controlWith(append([]transport.WrapperFunc{reconcile.TrackWrites}, wrap...)...)
}

// controlWith starts a controller that has only these transports: without TrackWrites it is a broken one. With -shards
// it is three replicas, which share the work.
func (w *world) controlWith(wrap ...transport.WrapperFunc) (stop func()) {
	leaders := []command.Leader{nil}
	if *sharded {
		leaders = []command.Leader{w.shards("a"), w.shards("b"), w.shards("c")}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, len(leaders))
	for _, leader := range leaders {
		cfg := w.cluster.Config()
		cfg.QPS, cfg.Burst = 500, 1000
		for _, f := range wrap {
			cfg.Wrap(f)
		}
		go pprof.Do(ctx, pprof.Labels("controller", w.namespace),
			func(ctx context.Context) { ended <- program.Operate(ctx, cfg, leader, w.options()) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		for range leaders {
			select {
			case err := <-ended:
				require.NoError(w.t, err)
			case <-time.After(time.Minute):
				require.Fail(w.t, "the controller does not end")
			}
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// shards are those of one replica. Their Leases run out soon, so that the first table opens soon.
func (w *world) shards(name string) *sharding.Shards {
	shards, err := sharding.New(sharding.Options{REST: w.cluster.Config(), Namespace: w.namespace, Name: "shards",
		Identity: name, By: program.By, LeaseDuration: 3 * time.Second, RenewDeadline: 1500 * time.Millisecond,
		RetryPeriod: 400 * time.Millisecond, StopGrace: 500 * time.Millisecond})
	require.NoError(w.t, err)
	return shards
}

// goroutines counts the ones that the controller has started, and those that they have started. Two kinds are left out:
// connections are pooled for the whole process, and belong to the client that happened to need one first; decoders are
// started by the first busy moment of a watch, and end with it.
func (w *world) goroutines() (n int, dump string) {
	var profile bytes.Buffer
	require.NoError(w.t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	entry := regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: .*"controller":"` + w.namespace + `"(?:.*\n#.*)*`)
	for _, match := range entry.FindAllStringSubmatch(profile.String(), -1) {
		if strings.Contains(match[0], "lientConn).readLoop") || strings.Contains(match[0], "net/http.(*persistConn)") ||
			strings.Contains(match[0], "wire.(*Reader).decodeAside") {
			continue
		}
		count, err := strconv.Atoi(match[1])
		require.NoError(w.t, err)
		n += count
		dump += match[0] + "\n"
	}
	return n, dump
}

// newReplicaSet is one of n pods labelled app=name.
func newReplicaSet(name string, n int32, change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	grace := int64(1)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	for _, f := range change {
		f(rs)
	}
	return rs
}

// labelling makes it one of pods labelled app=value, whatever its name.
func labelling(value string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.Spec.Selector.MatchLabels["app"], rs.Spec.Template.Labels["app"] = value, value
	}
}

// create makes a ReplicaSet of n pods labelled app=name. A change may have the overseer allow for more of them: it runs
// before the controller can see the ReplicaSet.
func (w *world) create(name string, n int32, change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	w.t.Helper()
	w.overseer.allow(name, int(n))
	created, err := w.client.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), newReplicaSet(name, n, change...),
		metav1.CreateOptions{})
	require.NoError(w.t, err)
	return created
}

// scale changes the number of replicas. The overseer allows for what there was until the new number is reached.
func (w *world) scale(name string, n int32) {
	w.t.Helper()
	w.overseer.allow(name, max(int(n), w.overseer.allowed(name)))
	w.scaleFreely(name, n)
}

// scaleFreely scales without a word to the overseer.
func (w *world) scaleFreely(name string, n int32) {
	w.t.Helper()
	require.NoError(w.t, w.tryToScale(w.t.Context(), name, n))
}

func (w *world) tryToScale(ctx context.Context, name string, n int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	_, err := w.client.AppsV1().ReplicaSets(w.namespace).Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

func (w *world) get(name string) *appsv1.ReplicaSet {
	w.t.Helper()
	rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return rs
}

// pods are the active ones that the ReplicaSet controls, by the API server's word.
func (w *world) pods(name string) []*corev1.Pod {
	w.t.Helper()
	owned, err := w.podsOf(w.get(name))
	require.NoError(w.t, err)
	return owned
}

func (w *world) podsOf(rs *appsv1.ReplicaSet) (owned []*corev1.Pod, err error) {
	list, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if pod := &list.Items[i]; active(pod) && metav1.IsControlledBy(pod, rs) {
			owned = append(owned, pod)
		}
	}
	return owned, nil
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pod
}

func (w *world) delete(pod string) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), pod, metav1.DeleteOptions{}))
}

func (w *world) patch(pod, patch string) {
	w.t.Helper()
	require.NoError(w.t, w.tryToPatch(w.t.Context(), pod, patch))
}

func (w *world) tryToPatch(ctx context.Context, pod, patch string) error {
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// settled waits until the ReplicaSet has n pods, all available, and says so in its status.
func (w *world) settled(name string, n int32) {
	w.t.Helper()
	var status appsv1.ReplicaSetStatus
	require.Eventually(w.t, func() bool {
		rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		status = rs.Status
		if status.ObservedGeneration != rs.Generation || status.Replicas != n || status.AvailableReplicas != n {
			return false
		}
		pods, err := w.podsOf(rs) // the API server may have just come back
		return err == nil && len(pods) == int(n)
	}, 3*time.Minute, 20*time.Millisecond, "%s should have %d pods, available and reported", name, n)
	list, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(w.t, err)
	w.overseer.allowAfter(list.ResourceVersion, name, int(n))
}
