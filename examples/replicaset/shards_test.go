package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Three replicas are at work at the same time, each on about a third of the slices. One is killed while ReplicaSets are
// scaled, and another one is asked to end: none gets a pod too many or too few.
func TestThreeReplicasAtWork(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	w := newWorld(t, cluster)
	replicas, pages := map[string]*testcluster.Process{}, map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		pages[name] = freeAddress(t)
		replicas[name] = startCommand(t, cluster, w.namespace+"-"+name, cluster.Kubeconfig(), "--shards",
			"--namespace="+w.namespace, "--leader-elect-resource-namespace="+w.namespace,
			"--leader-elect-identity="+name, "--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=4s",
			"--leader-elect-retry-period=1s", "--metrics-bind-address="+pages[name])
	}
	const sets = 24 // that a replica has none of them is one case in 5,000
	names := make([]string, sets)
	for i := range sets {
		names[i] = fmt.Sprint("set-", i)
		w.create(names[i], 2)
	}
	settled := func(n int32) {
		t.Helper()
		for _, name := range names {
			w.settled(name, n)
		}
	}
	settled(2)
	// A figure is at least so much at last: the pages of a process answer somewhat later than it begins.
	atLeast := func(least int, replica, metric string) {
		t.Helper()
		value := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\d+)$`)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			page, err := http.Get("http://" + pages[replica] + "/metrics")
			require.NoError(c, err)
			defer page.Body.Close()
			text, err := io.ReadAll(page.Body)
			require.NoError(c, err)
			found := value.FindSubmatch(text)
			require.Len(c, found, 2, metric)
			n, err := strconv.Atoi(string(found[1]))
			require.NoError(c, err)
			require.GreaterOrEqual(c, n, least, metric)
		}, time.Minute, 100*time.Millisecond, replica)
	}
	const owned = `thermostat_slices_owned{name="thermostat-replicaset"}`
	for name := range replicas {
		atLeast(85, name, owned)
	}
	for _, set := range names {
		w.scale(set, 3)
	}
	settled(3)
	for name := range replicas {
		atLeast(1, name, `thermostat_reconcile_total{controller="replicaset",result="success"}`)
	}

	for _, set := range names[:sets/2] { // the killed one may be at work on these
		w.scale(set, 6)
	}
	require.NoError(t, replicas["a"].Kill(t.Context()))
	for _, set := range names[sets/2:] { // and has not begun with these
		w.scale(set, 6)
	}
	settled(6)
	require.NoError(t, replicas["b"].Terminate(t.Context()))
	status, err := replicas["b"].Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "exit status 0", status)
	for _, set := range names {
		w.scale(set, 4)
	}
	settled(4)
	atLeast(256, "c", owned)
}
