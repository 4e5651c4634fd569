package main

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func writtenBy(manager, subresource string, second int64) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.ManagedFields = append(rs.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
			Time: &metav1.Time{Time: time.Unix(second, 0)},
		})
	}
}

func madeAt(second int64) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.CreationTimestamp = metav1.NewTime(time.Unix(second, 0)) }
}

func TestRival(t *testing.T) {
	deployment, us, them := writtenBy("kube-controller-manager", "", 1), writtenBy(manager, "status", 2),
		writtenBy("kube-controller-manager", "status", 3)
	for name, c := range map[string]struct {
		before, after *appsv1.ReplicaSet
		want          string
	}{
		"nobody has written a status": {testRS(), testRS(deployment), ""},
		"we have":                     {testRS(deployment), testRS(deployment, us), ""},
		"they had, before":            {testRS(them), testRS(them, us), ""},
		"they have":                   {testRS(us), testRS(us, them), "kube-controller-manager"},
		"they have again": {testRS(them), testRS(writtenBy("kube-controller-manager", "status", 4)),
			"kube-controller-manager"},
		"they have, while we were away":      {nil, testRS(them), "kube-controller-manager"},
		"it comes from a backup of theirs":   {nil, testRS(them, madeAt(4)), ""},
		"they have, as soon as it was made":  {nil, testRS(them, madeAt(3)), "kube-controller-manager"},
		"somebody has scaled":                {testRS(us), testRS(us, writtenBy("kubectl", "scale", 5)), ""},
		"theirs is gone, as ours is all new": {testRS(them), testRS(us), ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, rival(c.before, c.after)) })
	}
}

// The built-in controller has been at work before ours comes, and that is as it should be. When it comes back, ours
// ends and says what to do.
func TestCommandEndsWhenTheBuiltInControllerIsAtWorkToo(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	w := newWorld(t, cluster)
	builtIn := runBuiltIn(t, cluster, "built-in")
	w.create("web", 3)
	w.settled("web", 3)
	require.NoError(t, builtIn.Kill(t.Context()))

	ours := command(t.Context(), "--kubeconfig", cluster.Kubeconfig(), "--leader-elect=false")
	var stderr bytes.Buffer
	ours.Stderr = &stderr
	require.NoError(t, ours.Start())
	ended := make(chan error, 1)
	go func() { ended <- ours.Wait() }()
	t.Cleanup(func() { _ = ours.Process.Signal(syscall.SIGKILL) })
	w.scale("web", 4)
	w.settled("web", 4)
	select {
	case err := <-ended:
		require.Fail(t, "it ended, and nobody else is at work", "%v: %s", err, stderr.String())
	case <-time.After(time.Second):
	}

	runBuiltIn(t, cluster, "built-in-again")
	w.overseer.allow("web", 100) // this is what comes of two at work
	for n := 5; ; n++ {
		w.scaleFreely("web", int32(n%7))
		select {
		case <-ended:
			require.Equal(t, 1, ours.ProcessState.ExitCode())
			line := result{stderr: stderr.String()}.lastLine()
			require.Contains(t, line, "another ReplicaSet controller is at work")
			require.Contains(t, line, "examples/replicaset/deploy/kind.yaml")
			return
		case <-time.After(time.Second):
			require.Less(t, n, 60, "ours should have noticed")
		}
	}
}
