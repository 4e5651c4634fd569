package planned

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProgramIsPlannedByItsContextOrItsEnvironment(t *testing.T) {
	t.Setenv("KUBECONFIG", "/tmp/fork")
	t.Setenv(Variable, "")
	require.False(t, Is(t.Context()))
	require.True(t, Is(With(t.Context())))
	t.Setenv(Variable, "/tmp/fork")
	require.True(t, Is(t.Context()))
	t.Setenv("KUBECONFIG", "/home/me/.kube/config")
	require.False(t, Is(t.Context()), "the variable is left over")
	t.Setenv("KUBECONFIG", "")
	require.False(t, Is(t.Context()))
}
