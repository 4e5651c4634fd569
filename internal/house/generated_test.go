package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// generatedBy are the examples whose manifests controller-gen makes of Go types: where the types are, and the
// manifests.
var generatedBy = map[string]struct{ module, types, manifests string }{
	"cronbackup": {".", "./examples/cronbackup/api/...", "examples/cronbackup/deploy"},
	"etcd":       {"examples/etcd", "./api/...", "examples/etcd/deploy"},
	"tenant":     {".", "./examples/tenant/api/...", "examples/tenant/deploy"},
}

// TestTheManifestsAreWhatTheTypesSay makes the CustomResourceDefinitions and the methods of the examples' types anew.
func TestTheManifestsAreWhatTheTypesSay(t *testing.T) {
	tools, err := filepath.Abs(filepath.Join(root, "internal/tools/go.mod"))
	require.NoError(t, err)
	controllerGen := strings.TrimSpace(run(t, root, nil, "go", "tool", "-modfile="+tools, "-n", "controller-gen"))
	for name, where := range generatedBy {
		t.Run(name, func(t *testing.T) {
			into, dir := t.TempDir(), filepath.Join(root, where.module)
			generate := func(what, output string) string {
				return run(t, dir, nil, controllerGen, what, "paths="+where.types, output)
			}
			generate("crd", "output:dir="+into)
			made, err := filepath.Glob(filepath.Join(into, "*.yaml"))
			require.NoError(t, err)
			require.NotEmpty(t, made)
			for _, file := range made {
				want, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(want), read(t, filepath.Join(root, where.manifests), filepath.Base(file)),
					"go generate has not been run since the types were changed")
			}
			methods := generate("object", "output:stdout")
			files, err := filepath.Glob(filepath.Join(root, "examples", name, "api/*/zz_generated.deepcopy.go"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, file := range files {
				require.Contains(t, methods, read(t, ".", file), "go generate has not been run")
			}
		})
	}
}
