package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

var reportFile = flag.String("report", "", "file that takes the report of TestTheNextVersionIsPlanned, as JSON")

// starts are the starts of etcd that the kubelets have seen, by pod.
func (w *real) starts() map[string]string {
	list, err := w.pods.In(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: v1.ClusterLabel})
	require.NoError(w, err)
	starts := map[string]string{}
	for _, pod := range list.Items {
		require.Len(w, pod.Status.ContainerStatuses, 1, pod.Name)
		starts[pod.Name] = fmt.Sprint(pod.UID, " ", pod.Status.ContainerStatuses[0].RestartCount)
	}
	return starts
}

// allSettle waits until the operator has nothing more to do for any cluster, all of which have a version.
func (w *real) allSettle(clusters int, version string) {
	begin := time.Now()
	require.EventuallyWithT(w, func(t *assert.CollectT) {
		list, err := w.clusters.In(w.namespace).List(context.Background(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, clusters)
		for _, c := range list.Items {
			done, _ := objects.FindCondition(c.Status.Conditions, v1.Progressing)
			healthy, _ := objects.FindCondition(c.Status.Conditions, v1.Degraded)
			require.Equal(t, "Done "+v1.ReasonHealthy, done.Reason+" "+healthy.Reason)
			require.Len(t, c.Status.Members, int(c.Spec.Size))
			require.Equal(t, version, c.Status.Version)
		}
	}, 5*time.Minute, 100*time.Millisecond)
	w.Logf("%d clusters have %s: %.1f s", clusters, version, time.Since(begin).Seconds())
}

// TestTheNextVersionIsPlanned has three clusters that name no version, and an operator whose next version has another
// one for such. What the plan predicts is what comes: which members start again, each once.
func TestTheNextVersionIsPlanned(t *testing.T) {
	t.Parallel()
	const now, next = "3.6.16", "3.7.3"
	w := newStage(t, nil, 3, now, next)
	end := w.operateWith(now)
	defer func() { end() }()
	for name, size := range map[string]int32{"orders": 3, "users": 3, "cache": 1} {
		_, err := w.clusters.In(w.namespace).Create(t.Context(), &v1.EtcdCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.EtcdClusterSpec{Size: size, Image: "etcd"}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.allSettle(3, now)
	planned := func(version v1.Version) *plan.Report {
		report, err := plan.Run(t.Context(), w.cluster.Config(), func(ctx context.Context, cfg *rest.Config) error {
			return run(ctx, cfg, optionsWith(version))
		}, plan.RunOptions{
			Quiet: 15 * time.Second, Timeout: 10 * time.Minute, // a look at three clusters takes its time
			Options: plan.Options{World: plan.Healthy, Account: name + "/" + name, Rules: cel.Rules{}},
		})
		require.NoError(t, err)
		require.True(t, report.Settled)
		require.Empty(t, report.Refused)
		return report
	}
	before := w.starts()
	require.Zero(t, planned(now).Pods(), "the version that runs")
	report := planned(next)
	predicted := map[string]bool{}
	for _, c := range report.Changes {
		if c.Restarts != nil {
			require.False(t, predicted[c.Object.Name], "%s starts twice", c.Object.Name)
			predicted[c.Object.Name] = true
		}
	}
	require.Equal(t, before, w.starts(), "nothing has come of the plans")
	w.allSettle(3, now)

	end()
	end = w.operateWith(next)
	w.allSettle(3, next)
	restarted := map[string]bool{}
	for pod, start := range w.starts() {
		if start != before[pod] {
			restarted[pod] = true
			uid, count := "", 0
			_, err := fmt.Sscan(before[pod], &uid, &count)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(uid, " ", count+1), start, pod)
		}
	}
	t.Logf("%d members were to start again, %d have", len(predicted), len(restarted))
	require.Len(t, predicted, 7)
	require.Equal(t, predicted, restarted)
	if *reportFile != "" {
		report.Program = "etcd-operator"
		var out strings.Builder
		require.NoError(t, report.Write(&out, "json"))
		names := strings.NewReplacer(w.namespace, "databases", "etcd.test", report.Program)
		require.NoError(t, os.WriteFile(*reportFile, []byte(names.Replace(out.String())), 0o644))
	}
}
