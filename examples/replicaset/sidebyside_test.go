package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These set the command and the controller in kube-controller-manager the same tasks, in turn: each in a process of its
// own, behind a gateway that counts, with the same rate limit and the same number of workers.

// Kinds of requests. Those of events are two, which count as one.
const (
	statusWrites = "update apps/replicasets/status"
	eventWrites  = "create or patch /events"
)

// tasks are one round's measures.
type tasks struct {
	up, down     time.Duration   // from the first request until every status has settled
	replacements []time.Duration // from the request that deletes a pod to the news of the one in its place
	requests     map[string]int
}

// sideBySide is who is compared, and where.
type sideBySide struct {
	t             testing.TB
	cluster       *testcluster.Cluster
	gateway       *testbed.Gateway
	sets          int
	pods          int32
	deletions     int
	roundsStarted int
}

// ours and builtIn start a controller behind the gateway.
func (s *sideBySide) ours(name string) *testcluster.Process {
	return startCommand(s.t, s.cluster, name, s.gateway.Kubeconfig, "--leader-elect=false", "--workers=5")
}

func (s *sideBySide) builtIn(name string) *testcluster.Process {
	p := runBuiltIn(s.t, s.cluster, name, "--kubeconfig="+s.gateway.Kubeconfig, "--concurrent-replicaset-syncs=5",
		"--kube-api-qps=500", "--kube-api-burst=1000")
	s.t.Cleanup(func() { _ = p.Kill(context.Background()) }) // see startCommand
	return p
}

// round gives the tasks to a controller and ends it.
func (s *sideBySide) round(contender string, start func(s *sideBySide, name string) *testcluster.Process) tasks {
	s.roundsStarted++
	process := start(s, fmt.Sprintf("%s-%d", contender, s.roundsStarted))
	w := newFreeWorld(s.t, s.cluster)
	w.create("warm-up", 1)
	w.settled("warm-up", 1)
	s.quiet()
	s.gateway.Counted()

	var done tasks
	news := s.listen(w)
	names := make([]string, s.sets)
	began := time.Now()
	for i := range names {
		names[i] = fmt.Sprintf("set-%03d", i)
		w.create(names[i], s.pods)
	}
	news.settled(names, s.pods)
	done.up = time.Since(began)

	for i := range s.deletions {
		owner := names[i%len(names)]
		done.replacements = append(done.replacements, news.replacement(w, owner))
	}
	news.settled(names, s.pods)

	began = time.Now()
	for _, name := range names {
		w.scaleFreely(name, 0)
	}
	news.settled(names, 0)
	done.down = time.Since(began)
	s.quiet() // what comes afterwards counts, too: events, and a status that tells of pods that have gone
	done.requests = s.gateway.Counted()
	// The recorder of either patches an event if there was one like it before, which depends on how fast they follow
	// each other: they count as one kind.
	done.requests[eventWrites] = done.requests["create /events"] + done.requests["patch /events"]
	delete(done.requests, "create /events")
	delete(done.requests, "patch /events")
	require.NoError(s.t, process.Kill(context.Background()))
	s.t.Logf("%s: up %v, down %v, a pod replaced in %v (median), requests: %v", contender, done.up, done.down,
		quantile(done.replacements, 0.5), done.requests)
	return done
}

// quiet waits until nobody has asked for anything in a while.
func (s *sideBySide) quiet() {
	total := func() int { return sum(s.gateway.Asked()) }
	for before := -1; before != total(); time.Sleep(2 * time.Second) {
		before = total()
	}
}

// news is what two watches tell of a namespace.
type news struct {
	t           testing.TB
	replicaSets <-chan watch.Event
	pods        <-chan watch.Event
	last        map[string]*appsv1.ReplicaSet
	seen        map[types.UID]bool // pods
}

func (s *sideBySide) listen(w *world) *news {
	replicaSets, pods := w.client.AppsV1().ReplicaSets(w.namespace), w.client.CoreV1().Pods(w.namespace)
	ctx := s.t.Context()
	return &news{
		s.t,
		s.follow(func(o metav1.ListOptions) (watch.Interface, error) { return replicaSets.Watch(ctx, o) }),
		s.follow(func(o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) }),
		map[string]*appsv1.ReplicaSet{}, map[types.UID]bool{},
	}
}

// follow takes what a watch tells at once, until the end of the test. An API server with much to do ends a watch that
// does not keep up: then it goes on where it was.
func (s *sideBySide) follow(begin func(metav1.ListOptions) (watch.Interface, error)) <-chan watch.Event {
	events := make(chan watch.Event, 100*s.sets*int(s.pods)) // more than there ever are
	w, err := begin(metav1.ListOptions{})
	require.NoError(s.t, err)
	var done sync.WaitGroup
	done.Go(func() {
		defer close(events)
		for last := ""; err == nil; w, err = begin(metav1.ListOptions{ResourceVersion: last}) {
			for event := range w.ResultChan() {
				events <- event
				if object, ok := event.Object.(metav1.Object); ok {
					last = object.GetResourceVersion()
				}
			}
			w.Stop()
		}
	})
	s.t.Cleanup(done.Wait) // the test's context has ended by then
	return events
}

// until takes what the watches tell for as long as enough says no. It is asked after each event, with the pod if that
// is new.
func (n *news) until(enough func(fresh *corev1.Pod) bool) {
	n.t.Helper()
	late := time.After(3 * time.Minute)
	for {
		var fresh *corev1.Pod
		select {
		case event := <-n.replicaSets:
			rs, ok := event.Object.(*appsv1.ReplicaSet)
			require.True(n.t, ok, "the watch ended: %v", event)
			n.last[rs.Name] = rs
		case event := <-n.pods:
			pod, ok := event.Object.(*corev1.Pod)
			require.True(n.t, ok, "the watch ended: %v", event)
			if !n.seen[pod.UID] {
				n.seen[pod.UID], fresh = true, pod
			}
		case <-late:
			require.Fail(n.t, "this takes too long")
		}
		if enough(fresh) {
			return
		}
	}
}

// settled waits until each of the ReplicaSets says that it has n pods, all of them available.
func (n *news) settled(names []string, want int32) {
	n.t.Helper()
	n.until(func(*corev1.Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			rs := n.last[name]
			return rs == nil || *rs.Spec.Replicas != want || rs.Status.ObservedGeneration != rs.Generation ||
				rs.Status.Replicas != want || rs.Status.AvailableReplicas != want
		})
	})
}

// replacement deletes a pod of a ReplicaSet and waits for the one that takes its place.
func (n *news) replacement(w *world, owner string) time.Duration {
	n.t.Helper()
	list, err := w.client.CoreV1().Pods(w.namespace).List(n.t.Context(),
		metav1.ListOptions{LabelSelector: "app=" + owner})
	require.NoError(n.t, err)
	for _, pod := range list.Items {
		n.seen[pod.UID] = true
	}
	victims := namesOfActive(list.Items)
	began := time.Now()
	w.delete(victims[0])
	n.until(func(fresh *corev1.Pod) bool { return fresh != nil && fresh.Labels["app"] == owner })
	return time.Since(began)
}

// contenders are who is compared, by the names that internal/bench knows them by.
var contenders = []struct {
	name  string
	start func(s *sideBySide, name string) *testcluster.Process
}{
	{"kube-controller-manager", (*sideBySide).builtIn},
	{"thermostat", (*sideBySide).ours},
}

// This is the small form of BenchmarkReplicaSets, and holds what does not depend on the clock. How many changes of its
// pods one status tells of is a matter of luck in it, and on a busy machine.
func TestSideBySideWithTheBuiltInController(t *testing.T) {
	cluster := testcluster.New(t, withoutBuiltIn)
	s := &sideBySide{t: t, cluster: cluster, gateway: testbed.NewGateway(t, cluster.Config()), sets: 10, pods: 10,
		deletions: 20}
	var is, limit int
	for try := 0; try < 3 && (try == 0 || is > limit); try++ { // the machine may have been busy with one of them only
		requests := map[string]map[string]int{}
		for _, c := range contenders {
			requests[c.name] = s.round(c.name, c.start).requests
		}
		ours := requests["thermostat"]
		require.Equal(t, s.sets*int(s.pods)+s.deletions, ours["create /pods"], "one for each pod")
		require.Equal(t, s.sets*int(s.pods), ours["delete /pods"], "one for each pod that was too much")
		require.Zero(t, ours["patch /pods"], "there is nothing to adopt or release")
		is, limit = sum(ours), sum(requests["kube-controller-manager"])*11/10
	}
	require.LessOrEqual(t, is, limit)
}

// BenchmarkReplicaSets is a round with a hundred ReplicaSets of thirty pods: first all of these, then two hundred that
// are deleted and replaced one after the other, then none. Each contender has a control plane that nobody has used
// before.
func BenchmarkReplicaSets(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				cluster := testcluster.New(b, withoutBuiltIn)
				s := &sideBySide{t: b, cluster: cluster, gateway: testbed.NewGateway(b, cluster.Config()), sets: 100,
					pods:      30,
					deletions: 200}
				done := s.round(c.name, c.start)
				b.ReportMetric(float64(done.up), "up-ns")
				b.ReportMetric(float64(done.down), "down-ns")
				b.ReportMetric(float64(quantile(done.replacements, 0.5)), "replaced-p50-ns")
				b.ReportMetric(float64(quantile(done.replacements, 0.99)), "replaced-p99-ns")
				b.ReportMetric(float64(sum(done.requests)), "requests")
				b.ReportMetric(float64(done.requests["create /pods"]), "pods-created")
				b.ReportMetric(float64(done.requests["delete /pods"]), "pods-deleted")
				b.ReportMetric(float64(done.requests[statusWrites]), "status-writes")
				b.ReportMetric(float64(done.requests[eventWrites]), "event-writes")
			}
		})
	}
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

func quantile(times []time.Duration, q float64) time.Duration {
	times = slices.Sorted(slices.Values(times))
	return times[int(q*float64(len(times)-1)+0.5)]
}
