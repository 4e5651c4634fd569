package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
)

func TestBehavioursAreWhereTheTableSays(t *testing.T) { testbed.CheckBehaviours(t, 76) }

// The README's figures about this code are counted here, in the way that it gives.
func TestTheReadmeCountsRight(t *testing.T) {
	count := func(files ...string) string { return testbed.Lines(t, files...) }
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, line := range []string{
		"| replicaset.go, scale.go, status.go, report.go | " +
			count("replicaset.go", "scale.go", "status.go", "report.go") + " |",
		"| claim.go | " + count("claim.go") + " |",
		"| victims.go | " + count("victims.go") + " |",
		"| **all** | " + count("replicaset.go", "scale.go", "status.go", "report.go", "claim.go",
			"victims.go") + " |",
	} {
		require.Contains(t, string(readme), line)
	}
}
