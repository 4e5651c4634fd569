package main

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

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
	const sets = 12
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
	figure := func(replica, metric string) int {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\d+)$`).FindStringSubmatch(
			get(t, "http://"+pages[replica]+"/metrics"))
		require.Len(t, found, 2, metric)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	const owned = `thermostat_slices_owned{name="thermostat-replicaset"}`
	for name := range replicas {
		require.Eventually(t, func() bool { return figure(name, owned) >= 85 }, time.Minute, 100*time.Millisecond, name)
	}
	for _, set := range names {
		w.scale(set, 3)
	}
	settled(3)
	for name := range replicas {
		require.NotZero(t, figure(name, `thermostat_reconcile_total{controller="replicaset",result="success"}`), name)
	}

	for _, set := range names {
		w.scale(set, 6)
	}
	require.NoError(t, replicas["a"].Kill(t.Context()))
	settled(6)
	require.NoError(t, replicas["b"].Terminate(t.Context()))
	status, err := replicas["b"].Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "exit status 0", status)
	for _, set := range names {
		w.scale(set, 4)
	}
	settled(4)
	require.Equal(t, 256, figure("c", owned))
}
