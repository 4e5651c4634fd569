package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	"github.com/thermostat-go/thermostat/informer"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These set the command and the built-in controller the same task, in turn: each in a process of its own, behind a
// gateway that counts, with the same rate limit and the same number of workers. The ReplicaSet controller is the
// built-in one for both.

// contenders are the controllers, by the names that internal/bench knows them by.
var contenders = []struct {
	name  string
	start func(testing.TB, *testcluster.Cluster, string) *testcluster.Process
}{
	{"kube-controller-manager", func(t testing.TB, c *testcluster.Cluster, kubeconfig string) *testcluster.Process {
		return testbed.RunBuiltIn(t, c, "built-in", "deployment-controller", "--kubeconfig="+kubeconfig,
			"--concurrent-deployment-syncs=5", "--kube-api-qps=500", "--kube-api-burst=1000")
	}},
	{"thermostat", func(t testing.TB, c *testcluster.Cluster, kubeconfig string) *testcluster.Process {
		p, err := c.Run(t.Context(), testcluster.Command{
			Name: "ours", Path: os.Args[0], Env: []string{"BE_THE_COMMAND=1"},
			Args: []string{"--kubeconfig=" + kubeconfig, "--kube-api-qps=500", "--kube-api-burst=1000",
				"--leader-elect=false", "--workers=5"},
		})
		require.NoError(t, err)
		return p
	}},
}

// rolled is what a rollout of all Deployments took.
type rolled struct {
	took     time.Duration  // from the first change of an image until every status is complete
	below    time.Duration  // the sum over all Deployments of the time with fewer pods available than promised
	requests map[string]int // by "verb group/resource"
}

// roll creates Deployments, waits until they are complete, and changes the image of all of them at once.
func roll(t testing.TB, start func(testing.TB, *testcluster.Cluster, string) *testcluster.Process, deployments int,
	pods int32) rolled {
	cluster := testcluster.New(t, withoutBuiltIn)
	gateway := testbed.NewGateway(t, cluster.Config())
	process := start(t, cluster, gateway.Kubeconfig)
	t.Cleanup(func() { _ = process.Kill(context.Background()) }) // before the gateway closes, which waits for it
	s := watchAvailability(t, cluster, int(pods)-int(pods)/4)    // maxUnavailable is 25%, rounded down
	for i := range deployments {
		_, err := s.client.Create(t.Context(), deployment(fmt.Sprintf("web-%02d", i), pods, "web:1"),
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	s.complete(t, deployments, pods, "web:1")
	quiet(gateway)
	gateway.Counted()

	s.measure()
	began := time.Now()
	for i := range deployments {
		_, err := s.client.Patch(t.Context(), fmt.Sprintf("web-%02d", i), types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"web:2"}]}}}}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
	}
	s.complete(t, deployments, pods, "web:2")
	done := rolled{took: time.Since(began), below: s.measure()}
	quiet(gateway) // what comes afterwards counts, too: events
	done.requests = gateway.Counted()
	require.NoError(t, process.Kill(context.Background()))
	return done
}

// quiet waits until no request was made in a while.
func quiet(g *testbed.Gateway) {
	for before := -1; before != total(g.Asked()); time.Sleep(2 * time.Second) {
		before = total(g.Asked())
	}
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// availability counts the pods that are available of each Deployment, and the time with fewer than promised.
type availability struct {
	client interface {
		Create(context.Context, *appsv1.Deployment, metav1.CreateOptions) (*appsv1.Deployment, error)
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions,
			...string) (*appsv1.Deployment, error)
	}
	deployments *informer.SharedIndexInformer[*appsv1.Deployment]
	promised    int

	mu sync.Mutex
	// Guarded by mu: the available pods by app, since when an app has too few, and the sum of such times.
	available map[string]map[informer.Key]bool
	since     map[string]time.Time
	below     time.Duration
}

func watchAvailability(t testing.TB, cluster *testcluster.Cluster, promised int) *availability {
	t.Helper()
	namespace := cluster.Namespace(t)
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	deployments, err := informer.NewResource[*appsv1.Deployment](cluster.Config(), resource, informer.ResourceOptions{})
	require.NoError(t, err)
	pods, err := informer.NewResource[*corev1.Pod](cluster.Config(), corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	s := &availability{client: deployments.In(namespace), promised: promised,
		available: map[string]map[informer.Key]bool{}, since: map[string]time.Time{}}
	s.deployments, err = informer.New(deployments.In(namespace), informer.Options[*appsv1.Deployment]{})
	require.NoError(t, err)
	all, err := informer.New(pods.In(namespace), informer.Options[*corev1.Pod]{})
	require.NoError(t, err)
	_, err = all.AddHandler(s.observe, informer.HandlerOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{s.deployments.Run, all.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// observe takes the news of a pod. A pod that is being deleted is not available, as in a ReplicaSet's status.
func (s *availability) observe(e informer.Event[*corev1.Pod]) {
	app, ready := appOfEvent(e), false
	if e.Type != informer.Deleted && e.New.DeletionTimestamp == nil {
		ready = slices.ContainsFunc(e.New.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.available[app] == nil {
		s.available[app] = map[informer.Key]bool{}
	}
	if ready {
		s.available[app][e.Key] = true
	} else {
		delete(s.available[app], e.Key)
	}
	since, low := s.since[app]
	switch enough := len(s.available[app]) >= s.promised; {
	case enough && low:
		s.below += time.Since(since)
		delete(s.since, app)
	case !enough && !low:
		s.since[app] = time.Now()
	}
}

// measure begins to measure, and returns what was measured before.
func (s *availability) measure() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	below := s.below
	s.below = 0
	return below
}

// complete waits until the statuses of all Deployments say that their pods are available and have the image.
func (s *availability) complete(t testing.TB, deployments int, pods int32, image string) {
	t.Helper()
	done := func() (n int) {
		for d := range s.deployments.All() {
			if imageOfTemplate(d) == image && d.Status.ObservedGeneration == d.Generation &&
				d.Status.Replicas == pods &&
				d.Status.UpdatedReplicas == pods && d.Status.AvailableReplicas == pods {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(5 * time.Minute); done() < deployments; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%d of %d Deployments are complete", done(), deployments)
	}
}

// byVerb sums up requests.
func byVerb(requests map[string]int) map[string]int {
	verbs := map[string]int{}
	for access, n := range requests {
		verb, _, _ := strings.Cut(access, " ")
		verbs[verb] += n
	}
	return verbs
}

// BenchmarkDeployments rolls fifty Deployments of twenty pods out at once. Each contender has a control plane that was
// not used before.
func BenchmarkDeployments(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				done := roll(b, c.start, 50, 20)
				b.Logf("%s: %v, %v below the promise, requests: %v", c.name, done.took, done.below, done.requests)
				b.ReportMetric(float64(done.took), "roll-ns")
				b.ReportMetric(done.below.Seconds(), "seconds-below")
				b.ReportMetric(float64(total(done.requests)), "requests")
				verbs := byVerb(done.requests)
				for _, verb := range slices.Sorted(maps.Keys(verbs)) {
					b.ReportMetric(float64(verbs[verb]), verb+"-requests")
				}
				scalings := done.requests["update apps/replicasets"] + done.requests["patch apps/replicasets"]
				b.ReportMetric(float64(scalings), "scalings")
				b.ReportMetric(float64(done.requests["update apps/deployments/status"]), "status-writes")
				b.ReportMetric(float64(done.requests["create /events"]+done.requests["patch /events"]), "event-writes")
			}
		})
	}
}

// TestSideBySideWithTheBuiltInController is the small form of BenchmarkDeployments, and holds what does not depend on
// the clock.
func TestSideBySideWithTheBuiltInController(t *testing.T) {
	var is, limit int
	for try := 0; try < 3 && (try == 0 || is > limit); try++ { // the machine may have been busy with one of them only
		requests := map[string]map[string]int{}
		for _, c := range contenders {
			requests[c.name] = roll(t, c.start, 5, 8).requests
			t.Logf("%s: %v", c.name, requests[c.name])
		}
		ours := requests["thermostat"]
		require.Equal(t, 5, ours["create apps/replicasets"], "one for each Deployment")
		is, limit = total(ours), total(requests["kube-controller-manager"])*11/10
	}
	require.LessOrEqual(t, is, limit)
}
