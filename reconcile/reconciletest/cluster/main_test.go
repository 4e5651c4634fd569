package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// With this variable set the test binary starts a cluster, says so, and waits to be killed.
const startOnly = "TESTCLUSTER_TEST_START_ONLY"

func TestMain(m *testing.M) {
	if os.Getenv(startOnly) == "" {
		os.Exit(m.Run())
	}
	c, err := cluster.Start(context.Background(), cluster.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Kubeconfig())
	select {}
}

func TestExample(t *testing.T) { testDeployment(t) }

// temporary returns a folder for temporary files with a path that is short enough for sockets in it, which the one of
// t.TempDir may not be.
func temporary(t *testing.T) string {
	dir, err := os.MkdirTemp("", "leash-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// in makes a command keep its temporary files in dir. It is killed at the end of the test at the latest.
func in(t *testing.T, dir string, command *exec.Cmd, env ...string) *exec.Cmd {
	command.Env = append(append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0"), env...)
	command.Stderr = os.Stderr
	t.Cleanup(func() {
		if command.Process != nil && command.ProcessState == nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	})
	return command
}

// requireNothingLeft waits until a folder of temporary files is empty and, where /proc can tell, until no process that
// was started with a path in this folder exists.
func requireNothingLeft(t *testing.T, dir string) {
	t.Helper()
	var left []string
	if !within(time.Minute, func() bool {
		left = nil
		entries, err := os.ReadDir(dir)
		if err != nil {
			left = append(left, err.Error())
		}
		for _, entry := range entries {
			left = append(left, entry.Name())
		}
		commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range commands {
			if command, err := os.ReadFile(path); err == nil && strings.Contains(string(command), dir) {
				left = append(left, strings.ReplaceAll(string(command), "\x00", " "))
			}
		}
		return len(left) == 0
	}) {
		t.Fatalf("left behind: %q", left)
	}
}

func within(d time.Duration, ask func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ask() {
			return true
		}
	}
	return false
}
