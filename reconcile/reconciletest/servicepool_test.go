package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestADryRunGivesNothingBack that another write has.
func TestADryRunGivesNothingBack(t *testing.T) {
	s := NewServer(t, Options{})
	other := &draw{server: s, service: &corev1.Service{}}
	require.NoError(t, other.takePort(30101))
	dry := &draw{server: s, service: &corev1.Service{}, dry: true}
	require.NoError(t, dry.takePort(30100))
	shown, err := dry.nextPort()
	require.NoError(t, err)
	require.Equal(t, int32(30101), shown, "as a real server shows it")
	dry.release()
	require.ErrorIs(t, (&draw{server: s, service: &corev1.Service{}}).takePort(30101), errTaken)
}
