package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
)

func TestBehavioursAreWhereTheTableSays(t *testing.T) { testbed.CheckBehaviours(t, 63) }

// The README's figures about this code are counted here, in the way that it gives.
func TestTheReadmeCountsRight(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	groups := [][]string{{"deployment.go", "rollout.go", "rolling.go", "recreate.go"}, {"claim.go"},
		{"revision.go", "hash.go", "bounds.go", "change.go"}, {"scale.go", "history.go"},
		{"status.go", "conditions.go"}}
	var all []string
	for _, files := range groups {
		row := "| "
		for i, file := range files {
			if i > 0 {
				row += ", "
			}
			row += file
		}
		require.Contains(t, string(readme), row+" | "+testbed.Lines(t, files...)+" |")
		all = append(all, files...)
	}
	require.Contains(t, string(readme), "| **all** | "+testbed.Lines(t, all...)+" |")
}
