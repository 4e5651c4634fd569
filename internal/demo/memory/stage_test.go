package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

// The whole of it, as "make demo" runs it.
func TestDemo(t *testing.T) {
	programs := t.TempDir()
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", programs+"/",
		"../../../examples/autoscaler", "../../../examples/replicaset", "../../../examples/deployment").CombinedOutput()
	require.NoError(t, err, string(output))
	var out bytes.Buffer
	say := story.NewNarrator(&out)
	s := &stage{narrator: say, programs: programs}
	err = story.Run(t.Context(), say, s, false)
	require.NoError(t, err, out.String())
	t.Log(out.String())
	require.Equal(t, 11, strings.Count(out.String(), "   => "), "each act has a result")
	require.Contains(t, out.String(), "drift: .spec.replicas is 5 and should be 3; it was set by kubectl")
	require.NotContains(t, out.String(), "node: ", "the node has nothing to complain about")
	require.NoDirExists(t, s.dir)
	for _, p := range s.started {
		require.NotNil(t, p.cmd.ProcessState, "the process has ended")
	}
}
