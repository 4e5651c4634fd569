package testbed

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// CheckImage checks the Dockerfile of an example, from its folder: it is that of the ReplicaSet controller, whose tests
// run the build, but for the name, and everything that the build compiles is in its context.
func CheckImage(t *testing.T, name string) {
	t.Helper()
	for _, file := range []string{"deploy/Dockerfile", "deploy/Dockerfile.dockerignore"} {
		ours, err := os.ReadFile(file)
		require.NoError(t, err)
		theirs, err := os.ReadFile(filepath.Join("../replicaset", file))
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(string(theirs), "replicaset", name), string(ours), file)
	}

	const repository = "../.."
	ignore, err := os.ReadFile("deploy/Dockerfile.dockerignore")
	require.NoError(t, err)
	var context []string
	for line := range strings.Lines(string(ignore)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			_, err := os.Stat(filepath.Join(repository, path))
			require.NoError(t, err)
			context = append(context, path)
		}
	}
	const module = "github.com/thermostat-go/thermostat/"
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	compiled := 0
	for _, path := range strings.Fields(string(output)) {
		folder, ok := strings.CutPrefix(path, module)
		if !ok {
			continue
		}
		compiled++
		require.True(t, slices.ContainsFunc(context, func(in string) bool {
			return folder == in || strings.HasPrefix(folder, in+"/")
		}), "%s is not in the build context", folder)
	}
	require.Greater(t, compiled, 10)
}
