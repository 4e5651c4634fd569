package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain removes the audit log that the tests share, unless this is a process that a benchmark has started.
func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(forksMany); kubeconfig != "" {
		if err := forkMany(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if started.c != nil {
		os.RemoveAll(filepath.Dir(started.c.log))
	}
	os.Exit(code)
}
