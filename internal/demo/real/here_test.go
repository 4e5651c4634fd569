package main

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

// The whole of it, as "make demo REAL=1" runs it. Kubernetes' own Deployment controller has its turn in
// TestDemoInACluster.
func TestDemoOnARealControlPlane(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", programs+"/",
		"../../../examples/autoscaler", "../../../examples/replicaset", "../../../examples/deployment").CombinedOutput()
	require.NoError(t, err, string(output))
	var out bytes.Buffer
	say := story.NewNarrator(&out)
	err = story.Run(t.Context(), say, &here{narrator: say, programs: programs}, false)
	require.NoError(t, err, out.String())
	t.Log(out.String())
}
