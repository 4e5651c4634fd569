package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/controllerruntime/lines"
)

// TestLines compares the table of README.md with the code.
func TestLines(t *testing.T) {
	ours, theirs := lines.Comparison{
		Ours: "../../../examples/tenant", Theirs: ".",
		Parts: map[string]string{"main.go": "wiring", "children.go": "children", "api/v1/types.go": "types",
			"api/v1/register.go": "scheme"},
		Order: []string{"wiring", "children", "reconcile"},
	}.Check(t)
	require.LessOrEqual(t, ours, theirs)
	require.LessOrEqual(t, ours, 480)
}
