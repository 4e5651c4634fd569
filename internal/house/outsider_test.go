package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pasted are the examples of package reconciletest that an outsider pastes, with the name of the test in each.
var pasted = map[string]string{
	"example_unit_test.go":   "testKeeper",
	"example_memory_test.go": "testGreeter",
}

// TestAnOutsiderTestsAController writes a module outside of the repository, with nothing in it but the examples of
// package reconciletest and the manifests of their custom resource, and runs its tests. It shares the build cache.
func TestAnOutsiderTestsAController(t *testing.T) {
	user := t.TempDir()
	from := filepath.Join(root, "reconcile/reconciletest")
	require.NoError(t, os.CopyFS(filepath.Join(user, "testdata/config"),
		os.DirFS(filepath.Join(from, "testdata/config"))))
	for name, test := range pasted {
		code, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(user, name), []byte(paste(t, string(code), test)), 0o644))
	}
	checkout, err := filepath.Abs(root)
	require.NoError(t, err)
	environment := []string{"GOFLAGS=-mod=mod", "GOWORK=off"}
	run(t, user, environment, "go", "mod", "init", "example.com/outsider")
	run(t, user, environment, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+checkout)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(user, "go.sum"), sums, 0o644))
	run(t, user, environment, "go", "mod", "tidy")
	out := run(t, user, environment, "go", "test", "-v", ".")
	for _, test := range pasted {
		require.Contains(t, out, "--- PASS: T"+test[1:]+" ")
	}
	mod, err := os.ReadFile(filepath.Join(user, "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(mod), "cel-go")
}

// paste makes a test file of an example: the function that the example calls becomes the test.
func paste(t *testing.T, code, test string) string {
	code = strings.Replace(code, "package reconciletest_test", "package outsider", 1)
	require.Contains(t, code, "func "+test+"(t *testing.T)")
	code = strings.Replace(code, "func "+test+"(", "func T"+test[1:]+"(", 1)
	example := regexp.MustCompile(`(?s)\nfunc Example_.*`)
	require.Regexp(t, example, code)
	return example.ReplaceAllString(code, "")
}
