package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestMain removes the audit log that the tests share, unless this is a process that a benchmark has started. Four
// tests run at once also on fewer processors: most of their time they wait.
func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(forksMany); kubeconfig != "" {
		if err := forkMany(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) { // the default
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err) // there is such a flag
		}
	}
	code := m.Run()
	if started.c != nil {
		os.RemoveAll(filepath.Dir(started.c.log))
	}
	os.Exit(code)
}
