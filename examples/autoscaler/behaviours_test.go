package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
)

func TestBehavioursAreThere(t *testing.T) { testbed.CheckBehaviours(t, 65) }

// The README's figures about this code are counted here, in the way that it gives.
func TestTheReadmeCountsRight(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	groups := [][]string{{"decision.go", "proposals.go", "window.go", "policy.go", "limits.go", "zero.go"},
		{"autoscaler.go", "target.go", "memory.go", "status.go"}, {"formula.go", "pods.go"}, {"metrics.go"},
		{"selectors.go"}}
	var all []string
	for _, files := range groups {
		require.Contains(t, string(readme), "| "+strings.Join(files, ", ")+" | "+testbed.Lines(t, files...)+" |")
		all = append(all, files...)
	}
	require.Contains(t, string(readme), "| **all** | "+testbed.Lines(t, all...)+" |")
}
