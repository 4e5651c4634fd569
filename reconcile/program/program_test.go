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

// A program that is told to stop while it starts has not failed. One that fails while it stops has.
func TestToldToStop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, kubeconfigOf, "a"), 0o600))
	signal, failed := errors.New("a signal"), errors.New("failed")
	ctx, stop := context.WithCancelCause(t.Context())
	ends := func(with error) error {
		return runWith(ctx, file, func(context.Context, *rest.Config) error { return with })
	}
	require.ErrorIs(t, ends(context.Canceled), context.Canceled, "the program was not told to stop")
	stop(signal)
	require.NoError(t, ends(fmt.Errorf("asking: %w", signal)))
	require.NoError(t, ends(fmt.Errorf("asking: %w", context.Canceled)))
	for _, with := range []error{failed, errors.Join(failed, signal), errors.Join(context.Canceled, failed),
		fmt.Errorf("stopping: %w", fmt.Errorf("%w: %w", context.Canceled, failed))} {
		require.ErrorIs(t, ends(with), failed)
	}
}

// An error may name the exit status itself.
type exit int

func (exit) Error() string        { return "there are changes" }
func (e exit) ProgramStatus() int { return int(e) }

func TestTheExitStatus(t *testing.T) {
	require.Equal(t, 0, statusOf(t.Context(), nil))
	require.Equal(t, 1, statusOf(t.Context(), errors.New("failed")))
	require.Equal(t, 2, statusOf(t.Context(), fmt.Errorf("planned: %w", exit(2))))
}
