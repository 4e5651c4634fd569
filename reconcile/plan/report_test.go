package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/plan"
)

// TestTwoRunsOfAProgramDifferInTheirTimes has conditions that each version writes when it starts.
func TestTwoRunsOfAProgramDifferInTheirTimes(t *testing.T) {
	report := func(at, image string) *plan.Report {
		of := func(kind, path string, is any) plan.Change {
			return plan.Change{Verb: "update", Object: plan.Object{APIVersion: "v1", Kind: kind, Name: "a"},
				Fields: []plan.Field{{Path: path, Old: "was", New: is}}}
		}
		return &plan.Report{Changes: []plan.Change{
			of("A", "status.conditions[Ready].lastTransitionTime", at),
			of("B", "status.started", map[string]any{"at": at}),
			of("C", "spec.image", image),
		}}
	}
	rest, err := report("2026-11-26T06:09:44Z", "web:2").Without(report("2026-11-25T01:02:03.000004+01:00", "web:1"))
	require.NoError(t, err)
	require.Equal(t, []string{"update C a"}, verbs(rest))
}
