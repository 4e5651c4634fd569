package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const (
	many = 10_000
	big  = 2_000 // bytes of data of each
)

// makeMany makes many objects in a namespace.
func makeMany(t testing.TB, cfg *rest.Config, namespace string) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace)
	const writers = 20
	errs := make([]error, writers)
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for n := writer; n < many && errs[writer] == nil; n += writers {
				_, errs[writer] = maps.Create(t.Context(), configMap(fmt.Sprintf("%05d", n),
					map[string]string{"data": strings.Repeat("x", big)}), metav1.CreateOptions{})
			}
		})
	}
	group.Wait()
	require.NoError(t, first(errs...))
}

// askFor sends a request to a fork, for which it has to read all objects of a resource. The answer is short.
func askFor(ctx context.Context, fork *plan.Server, objects int64) error {
	client, err := rest.HTTPClientFor(fork.Config())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fork.Config().Host+"/api/v1/configmaps?limit=1", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list corev1.ConfigMapList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return err
	}
	if len(list.Items) != 1 || list.RemainingItemCount == nil || *list.RemainingItemCount < objects-1 {
		return fmt.Errorf("%d objects, and %v more", len(list.Items), list.RemainingItemCount)
	}
	return nil
}

// lister is a cluster that has objects, and answers with nothing but discovery and pages of them. That is cheaper
// than a server that holds them, and nothing of it is on the heap in between.
type lister struct {
	asked []string // the requests for objects
}

func (l *lister) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch req.URL.Path {
	case "/api/v1":
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps",
			"kind":"ConfigMap","namespaced":true,"verbs":["get","list","watch","create"]}]}`)
	case "/api/v1/configmaps":
		l.asked = append(l.asked, req.URL.RawQuery)
		from, _ := strconv.Atoi(req.URL.Query().Get("continue")) // none is the first page
		limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
		list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
		list.ResourceVersion = strconv.Itoa(fewer)
		for n := from; n < min(from+limit, fewer); n++ {
			o := configMap(fmt.Sprintf("%05d", n), map[string]string{"data": strings.Repeat("x", big)})
			o.Namespace, o.UID, o.ResourceVersion = "default", types.UID(o.Name), strconv.Itoa(n+1)
			list.Items = append(list.Items, *o)
		}
		if from+limit < fewer {
			list.Continue = strconv.Itoa(from + limit)
		}
		_ = json.NewEncoder(w).Encode(list) // a client that does not read it fails the test
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// fewer objects are enough to see what each of them takes.
const fewer = 2_500

// TestManyObjectsAreReadAndHeldOnce runs beside no other test: what is on the heap before and after is the fork's.
func TestManyObjectsAreReadAndHeldOnce(t *testing.T) {
	cluster := &lister{}
	server := httptest.NewServer(cluster)
	defer server.Close()
	held := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // which frees what the first one has left in pools
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := held()
	fork, err := plan.Fork(t.Context(), &rest.Config{Host: server.URL}, plan.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	require.NoError(t, askFor(t.Context(), fork, fewer))
	holds := held() - before
	t.Logf("the fork holds %d bytes for each object", holds/fewer)
	require.Less(t, holds, 2*big*fewer, "there is a second copy")
	maps := kubernetes.NewForConfigOrDie(fork.Config()).CoreV1().ConfigMaps("default")
	events, err := maps.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	events.Stop()
	for range 2 {
		_, err = maps.Get(t.Context(), "00001", metav1.GetOptions{})
		require.NoError(t, err)
	}
	require.Len(t, cluster.asked, fewer/500, "the resource is listed once, in pages")
}

// forksMany, if it is set, makes the test binary a process that forks the cluster of the kubeconfig that it names.
const forksMany = "PLAN_TEST_FORKS_MANY"

// measured is what such a process says of itself.
type measured struct{ Seconds, MB, PeakMB float64 }

// forkMany forks a cluster, and writes how long it took until the many objects were there, and the memory of the
// process.
func forkMany(kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	ctx := context.Background()
	begin := time.Now()
	fork, err := plan.Fork(ctx, cfg, plan.Options{})
	if err != nil {
		return err
	}
	defer fork.Close()
	if err := askFor(ctx, fork, many); err != nil {
		return err
	}
	m := measured{Seconds: time.Since(begin).Seconds()}
	if m.MB, m.PeakMB, err = residentMemory(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// residentMemory returns what this process has in memory, and what it has had at most, in megabytes. Linux only.
func residentMemory() (now, peak float64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		for name, to := range map[string]*float64{"VmRSS": &now, "VmHWM": &peak} {
			if value, ok := strings.CutPrefix(line, name+":"); ok && err == nil {
				_, err = fmt.Sscanf(value, "%f kB", to)
				*to /= 1000
			}
		}
	}
	return now, peak, err
}

// BenchmarkForkOfManyObjects forks a real control plane with many objects, each time in a process of its own, as the
// command does. It reports the seconds until a program could read them, and the resident memory of that process, at
// that moment and at most.
func BenchmarkForkOfManyObjects(b *testing.B) {
	c := cluster.Shared(b)
	makeMany(b, c.Config(), c.Namespace(b))
	var sum measured
	for b.Loop() {
		process := exec.CommandContext(b.Context(), os.Args[0])
		process.Env = append(os.Environ(), forksMany+"="+c.Kubeconfig())
		process.Stderr = os.Stderr
		out, err := process.Output()
		require.NoError(b, err)
		var m measured
		require.NoError(b, json.Unmarshal(out, &m), string(out))
		sum.Seconds, sum.MB, sum.PeakMB = sum.Seconds+m.Seconds, max(sum.MB, m.MB), max(sum.PeakMB, m.PeakMB)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum.Seconds/float64(b.N), "s/fork")
	b.ReportMetric(sum.MB, "MB")
	b.ReportMetric(sum.PeakMB, "peak-MB")
}
