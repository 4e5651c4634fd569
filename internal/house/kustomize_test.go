package house

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKustomizeBuildsTheDeployFolders is what kubectl apply -k does before it asks a server.
func TestKustomizeBuildsTheDeployFolders(t *testing.T) {
	tools, err := filepath.Abs(filepath.Join(root, "internal/tools/go.mod"))
	require.NoError(t, err)
	kustomize := strings.TrimSpace(run(t, root, nil, "go", "tool", "-modfile="+tools, "-n", "kustomize"))
	files, err := filepath.Glob(filepath.Join(root, "examples/*/deploy/kustomization.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 6)
	for _, file := range files {
		built := run(t, filepath.Dir(file), nil, kustomize, "build")
		for _, kind := range []string{"Namespace", "ServiceAccount", "Deployment"} {
			require.Contains(t, built, "\nkind: "+kind+"\n", file)
		}
		if strings.Contains(file, "cronbackup") { // the patch of conversion.yaml
			require.Contains(t, built, "strategy: Webhook", file)
			require.Contains(t, built, "conversionReviewVersions:", file)
		}
	}
}
