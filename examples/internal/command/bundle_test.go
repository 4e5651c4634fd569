//go:build unix

package command

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

func TestASignalSavesABundle(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Beside: map[string]func(context.Context) error{
		"nothing": func(context.Context) error { return nil }}})
	require.NoError(t, err)
	signals, end := bundleSignals()
	defer end()
	defer saveBundles("web", m, signals)()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	require.Eventually(t, func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "web-*.jsonl.gz"))
		require.NoError(t, err)
		if len(names) != 1 {
			return false
		}
		f, err := os.Open(names[0])
		require.NoError(t, err)
		defer f.Close()
		b, err := inspect.ReadBundle(f)
		return err == nil && b.Manager.Stage == status.StageNotStarted
	}, time.Minute, 10*time.Millisecond)
}
