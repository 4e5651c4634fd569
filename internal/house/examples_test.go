package house

import (
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// unrun are the packages whose examples cannot run by themselves, and why.
var unrun = map[string]string{
	"reconcile/webhook/webhooktest":               "takes a testing.F; its own tests and examples/cronbackup call it",
	"reconcile/reconciletest/cluster":             "needs a control plane; TestAnOutsiderTestsAController runs it",
	"reconcile/reconciletest/cluster/processnode": "needs a control plane; its own tests are the example's",
}

// TestEveryPackageHasAnExample looks for one that go test runs, because its comment says what it prints; in the
// packages of unrun for one that is compiled.
func TestEveryPackageHasAnExample(t *testing.T) {
	for _, p := range append(append([]string{"informer/clientgo"}, packages...), nested...) {
		files, err := filepath.Glob(filepath.Join(root, p, "*_test.go"))
		require.NoError(t, err)
		found, run := 0, 0
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			require.NoError(t, err)
			for _, example := range doc.Examples(parsed) {
				found++
				if example.Output != "" || example.EmptyOutput {
					run++
				}
			}
		}
		if why, ok := unrun[p]; ok {
			require.NotZero(t, found, "%s has no example, not even one that does not run", p)
			require.Zero(t, run, "%s needs no exception: %s", p, why)
			continue
		}
		require.NotZero(t, run, "%s has %d examples, and none that runs", p, found)
	}
}
