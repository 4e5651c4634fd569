package main

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

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

	ours := newProcess(t.Context(), "--kubeconfig", cluster.Kubeconfig(), "--leader-elect=false")
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
			require.Less(t, n, 180, "ours should have noticed")
		}
	}
}
