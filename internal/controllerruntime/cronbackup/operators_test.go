package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const example = "../../../examples/cronbackup"

// operator is one of the two that are compared.
type operator struct {
	name, folder string
	flags        []string
}

// Both have eight workers and no client-side limit of requests.
var operators = []operator{
	{"controller-runtime", ".",
		[]string{"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"}},
	{"thermostat", example, []string{"--http-address=127.0.0.1:0"}},
}

// build returns the operator's binary.
func (o operator) build(t testing.TB) string {
	binary := filepath.Join(t.TempDir(), o.name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	cmd.Dir = o.folder
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// start runs the operator until the end of the test, or until the function that is returned is called.
func (o operator) start(t testing.TB, c *cluster.Cluster, binary string) (stop func()) {
	p, err := c.Run(t.Context(), cluster.Command{Name: o.name, Path: binary,
		Args: append([]string{"--kubeconfig=" + c.Kubeconfig()}, o.flags...)})
	require.NoError(t, err)
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		require.NoError(t, p.Terminate(context.Background()))
		_, err := p.Wait(context.Background())
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if log, err := os.ReadFile(p.Log); err == nil && t.Failed() {
			t.Logf("%s\n%s", o.name, log[max(0, len(log)-5000):])
		}
		stop()
	})
	return stop
}

// withDefinition returns a control plane that serves CronBackups, and their client.
func withDefinition(t testing.TB) (*cluster.Cluster, *informer.Resource[*v1.CronBackup]) {
	c := cluster.New(t, cluster.Options{})
	for _, name := range []string{"namespace.yaml", "backups.example.com_cronbackups.yaml"} {
		manifest, err := os.ReadFile(filepath.Join(example, "deploy", name))
		require.NoError(t, err)
		objects, err := cluster.Decode(manifest)
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), objects...))
	}
	backups, err := informer.NewResource[*v1.CronBackup](c.Config(), v1.GroupVersion.WithResource("cronbackups"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	return c, backups
}

func backup(name string) *v1.CronBackup {
	return &v1.CronBackup{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.CronBackupSpec{Schedule: "0 3 * * *", TargetDatabase: "db.example.com"}}
}

// eventually looks every 20 ms, for a minute at most.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(limit), "after a minute not yet: %s", what)
	}
}
