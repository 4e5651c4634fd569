package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const kubeconfigOf = `{kind: Config, apiVersion: v1, current-context: a, contexts: [{name: a, context: {cluster: a}}],
  clusters: [{name: a, cluster: {server: "http://%s"}}]}`

// The program's argument goes before the environment. What the examples do at signals is tested there.
func TestTheConfigurationOfAProgram(t *testing.T) {
	write := func(host string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, kubeconfigOf, host), 0o600))
		return file
	}
	named, fromEnvironment := write("named"), write("environment")
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, fromEnvironment)
	failed := errors.New("failed")
	for path, want := range map[string]string{named: "http://named", "": "http://environment"} {
		err := runWith(t.Context(), path, func(_ context.Context, cfg *rest.Config) error {
			require.Equal(t, want, cfg.Host)
			return failed
		})
		require.ErrorIs(t, err, failed)
	}
	err := runWith(t.Context(), filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorContains(t, err, "no configuration of an API server")
}
