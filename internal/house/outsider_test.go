package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pasted are the examples of reconciletest and reconciletest/cluster that an outsider pastes, with the name of the test
// in each.
var pasted = map[string]string{
	"example_unit_test.go":    "testKeeper",
	"example_memory_test.go":  "testGreeter",
	"cluster/example_test.go": "testDeployment",
}

// TestAnOutsiderTestsAController writes a module outside of the repository, with nothing in it but these examples and
// the manifests of their custom resource, and runs its tests. It shares the build cache and the control plane.
func TestAnOutsiderTestsAController(t *testing.T) {
	user := t.TempDir()
	from := filepath.Join(root, "reconcile/reconciletest")
	require.NoError(t, os.CopyFS(filepath.Join(user, "testdata/config"),
		os.DirFS(filepath.Join(from, "testdata/config"))))
	for name, test := range pasted {
		code, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(user, strings.ReplaceAll(name, "/", "_")),
			[]byte(paste(t, string(code), test)), 0o644))
	}
	checkout, err := filepath.Abs(root)
	require.NoError(t, err)
	environment := []string{"GOFLAGS=-mod=mod", "GOWORK=off"}
	run(t, user, environment, "go", "mod", "init", "example.com/outsider")
	run(t, user, environment, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+checkout)
	require.NoError(t, os.WriteFile(filepath.Join(user, "go.sum"), []byte(read(t, root, "go.sum")), 0o644))
	run(t, user, environment, "go", "mod", "tidy")
	mod, sums := read(t, user, "go.mod"), read(t, user, "go.sum")
	out := run(t, user, environment, "go", "test", "-v", ".")
	for _, test := range pasted {
		require.Contains(t, out, "--- PASS: T"+test[1:]+" ")
	}
	require.NotContains(t, mod, "cel-go")
	require.NotContains(t, mod, "k8s.io/kubernetes")
	require.Equal(t, mod, read(t, user, "go.mod"), "the control plane is not built by the module under test")
	require.Equal(t, sums, read(t, user, "go.sum"))
}

func read(t *testing.T, dir, name string) string {
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(content)
}

// paste makes a test file of an example: the function that the example calls becomes the test.
func paste(t *testing.T, code, test string) string {
	code = regexp.MustCompile(`(?m)^package \w+_test$`).ReplaceAllString(code, "package outsider")
	require.Contains(t, code, "func "+test+"(t *testing.T)")
	code = strings.Replace(code, "func "+test+"(", "func T"+test[1:]+"(", 1)
	example := regexp.MustCompile(`(?s)\nfunc Example[_(].*`)
	require.Regexp(t, example, code)
	return example.ReplaceAllString(code, "")
}
