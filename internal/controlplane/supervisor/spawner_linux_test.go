package supervisor_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// On Linux not even a supervisor that is killed itself leaves anything behind but its folder.
func TestKilledSupervisor(t *testing.T) {
	s := start(t, "supervisor")
	plain := s.sh("plain", "exec sleep 1000")
	stopped := s.sh("stopped", "exec sleep 1000")
	s.must(supervisor.Request{Op: "stop", Name: "stopped"})
	require.NoError(t, syscall.Kill(s.pid, syscall.SIGKILL))
	requireGone(t, plain, stopped)
}
