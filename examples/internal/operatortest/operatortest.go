// Package operatortest has what the judges of the example operators share: cronbackuptest and tenanttest. It imports
// nothing of any controller library, so they are for operators that are written with any of them.
//
// # Reading order
//
// operatortest.go is the whole package.
package operatortest

import (
	"context"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Start runs an operator until ctx ends, and returns nil then.
type Start func(ctx context.Context, cfg *rest.Config) error

// Run starts an operator, and returns a function that stops it.
func Run(t *testing.T, start Start, cfg *rest.Config) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, cfg) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// Copy copies manifests into a folder, where a test may change them.
func Copy(t testing.TB, manifests fs.FS) (dir string) {
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, manifests))
	return dir
}

// Install applies manifests of these names.
func Install(t testing.TB, c *cluster.Cluster, manifests fs.FS, names ...string) {
	for _, name := range names {
		documents, err := fs.ReadFile(manifests, name)
		require.NoError(t, err)
		objects, err := cluster.Decode(documents)
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), objects...))
	}
}

// NoRules accepts all rules in CEL, and lets every object pass. A test on a real control plane is for the rules.
type NoRules struct{}

// CompileRules is that of reconciletest.Rules.
func (NoRules) CompileRules([]byte) (reconciletest.RuleCheck, error) {
	return func(_, _ map[string]any) field.ErrorList { return nil }, nil
}

// Waiter is a test that waits for what an operator does. In virtual time it costs nothing to wait.
type Waiter struct {
	*testing.T
	Patience time.Duration // of Eventually
	Virtual  bool          // the test runs in virtual time
}

// Eventually waits until check returns nil.
func (w Waiter) Eventually(check func() error) {
	w.Helper()
	w.Within(w.Patience, check)
}

// Within waits for at most d until check returns nil.
func (w Waiter) Within(d time.Duration, check func() error) {
	w.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, d, true,
		func(context.Context) (bool, error) { last = check(); return last == nil, nil }); err != nil {
		w.Fatalf("not within %s: %v", d, last)
	}
}

// Soon waits for what the next event brings, and for no retry: a second, in virtual time. In real time it is
// Eventually, as nobody knows how long a busy machine takes.
func (w Waiter) Soon(check func() error) {
	w.Helper()
	if w.Virtual {
		w.Within(time.Second, check)
	} else {
		w.Eventually(check)
	}
}

// Always checks for d that check returns nil.
func (w Waiter) Always(d time.Duration, check func() error) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, d, true,
		func(context.Context) (bool, error) { return false, check() })
	if !wait.Interrupted(err) {
		w.Fatal(err)
	}
}
