package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/controllerruntime/lines"
)

// TestLines compares the table of README.md with the code. The webhooks and the second version are not counted, since
// only ours has them; what wires them up is.
func TestLines(t *testing.T) {
	ours, theirs := lines.Comparison{
		Ours: "../../../examples/cronbackup", Theirs: ".",
		Parts: map[string]string{"main.go": "wiring", "api/v1/types.go": "types", "api/v1/register.go": "scheme",
			"webhooks.go": "webhooks"},
		Order: []string{"wiring", "reconcile"}, Without: "webhooks",
	}.Check(t)
	require.LessOrEqual(t, ours, theirs)
}
