package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These set the command and the built-in controller the same task, in turn: each in a process of its own, behind a
// gateway that counts, with the same rate limit and the same number of workers.

const (
	benchInterval = 15 * time.Second // between two looks, the default of both
	benchPods     = 3                // of each Deployment
)

// cost is what one interval took.
type cost struct {
	requests map[string]int // by "verb group/resource", of all intervals
	total    float64        // requests in one interval
	cpu      time.Duration  // of the controller's process in one interval
}

// costs lets a controller look at n HPAs of one metric, and measures so many intervals in which nothing changes, and as
// many in which each status does: the usage of all pods changes, within the tolerance.
func costs(t testing.TB, start func(testing.TB, *testcluster.Cluster, string, ...string) *testcluster.Process,
	n, intervals int) (quiet, busy cost) {
	c := testcluster.New(t, withMetrics)
	gateway := testbed.NewGateway(t, c.Config())
	namespace := c.Namespace(t)
	fleet(t, c, namespace, n)
	controller := start(t, c, gateway.Kubeconfig)
	t.Cleanup(func() { _ = controller.Kill(context.Background()) }) // before the gateway closes, which waits for it
	settle(t, c, namespace, n)

	measure := func() cost {
		before := cpuOf(t, controller.PID)
		gateway.Counted()
		time.Sleep(time.Duration(intervals) * benchInterval)
		counted := gateway.Counted()
		return cost{counted, float64(total(counted)) / float64(intervals),
			(cpuOf(t, controller.PID) - before) / time.Duration(intervals)}
	}
	quiet = measure()

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			use(ctx, c, namespace, fmt.Sprintf("%dm", 480+10*(i%5)))
			select {
			case <-ctx.Done():
			case <-time.After(benchInterval - time.Since(began)):
			}
		}
	})
	time.Sleep(benchInterval) // until each status has changed once
	busy = measure()
	stop()
	running.Wait()
	return quiet, busy
}

// fleet creates n Deployments with an HPA each, and waits for their pods, which use half of what they request.
func fleet(t testing.TB, c *testcluster.Cluster, namespace string, n int) {
	t.Helper()
	replicas := int32(benchPods)
	for i := range n {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%03d", i)}}
		d.Spec.Replicas = &replicas
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.Name}}
		d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
		d.Spec.Template.Annotations = map[string]string{"standin/usage": "cpu=500m"}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
		_, err := c.Client().AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = c.Client().AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(t.Context(),
			hpa(d.Name, 1, 10, with(cpu(50))), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		list, err := c.Client().AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
		ready := 0
		for i := range list.Items {
			if list.Items[i].Status.ReadyReplicas == replicas {
				ready++
			}
		}
		return err == nil && ready == n
	}, 5*time.Minute, time.Second)
}

// settle waits until the status of each HPA shows its metric, and for an interval after that.
func settle(t testing.TB, c *testcluster.Cluster, namespace string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := c.Client().AutoscalingV2().HorizontalPodAutoscalers(namespace).List(t.Context(),
			metav1.ListOptions{})
		seen := 0
		for i := range list.Items {
			if m := list.Items[i].Status.CurrentMetrics; len(m) == 1 &&
				m[0].Type == autoscalingv2.ResourceMetricSourceType {
				seen++
			}
		}
		return err == nil && seen == n
	}, 2*time.Minute, time.Second)
	time.Sleep(benchInterval)
}

// use sets what all pods use. It takes a few workers, so that it is done within an interval.
func use(ctx context.Context, c *testcluster.Cluster, namespace, usage string) {
	pods := c.Client().CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	names := make(chan string)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for name := range names {
				_, _ = pods.Patch(ctx, name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"annotations":{"standin/usage":"cpu=%s"}}}`, usage),
					metav1.PatchOptions{})
			}
		})
	}
	for i := range list.Items {
		names <- list.Items[i].Name
	}
	close(names)
	workers.Wait()
}

// cpuOf returns the CPU time that a process has used so far, from /proc.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	// The name, in parentheses, may have spaces. The fields after it begin with the third.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const ticks = 100 // in a second: USER_HZ
	var sum time.Duration
	for _, field := range []string{fields[14-3], fields[15-3]} { // utime, stime
		n, err := strconv.Atoi(field)
		require.NoError(t, err)
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// BenchmarkAutoscalers has 200 HPAs. Each contender has a control plane that was not used before.
func BenchmarkAutoscalers(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				quiet, busy := costs(b, c.start, 200, 4)
				b.Logf("%s: quiet: %v; statuses change: %v", c.name, quiet.requests, busy.requests)
				b.ReportMetric(quiet.total, "quiet-requests")
				b.ReportMetric(float64(quiet.cpu), "quiet-cpu-ns")
				b.ReportMetric(busy.total, "busy-requests")
				b.ReportMetric(float64(busy.cpu), "busy-cpu-ns")
			}
		})
	}
}
