package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// The slices that a process has are shown one by one, and not those that it has had.
func TestSlicesAreShown(t *testing.T) {
	stats := sharding.Stats{All: 256, Slices: []int{1, 2, 3}, Asked: 1, Orphans: []int{7, 8}, Members: 4,
		Remaining: 9 * time.Second, Tenures: 3, Losses: 2, RenewalFailures: 5, Gained: 6, Lost: 3,
		Pauses: sharding.Pauses{Count: 6, Sum: 3 * time.Second, Longest: 2 * time.Second}}
	for slice := range 12 {
		stats.Loads = append(stats.Loads, sharding.Load{Slice: slice, Runs: uint64(100 - slice),
			Time: time.Duration(100-slice) * time.Second})
	}
	collector := New(Options{})
	collector.Shards("my-table", func() sharding.Stats { return stats })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP leader_election_master_status 1 while this process leads.
# TYPE leader_election_master_status gauge
leader_election_master_status{name="my-table"} 1
# HELP thermostat_leader_tenure_remaining_seconds Seconds for which this process may lead without a renewal.
# TYPE thermostat_leader_tenure_remaining_seconds gauge
thermostat_leader_tenure_remaining_seconds{name="my-table"} 9
# HELP thermostat_slice_owners Processes that share the slices.
# TYPE thermostat_slice_owners gauge
thermostat_slice_owners{name="my-table"} 4
# HELP thermostat_slice_pause_longest_seconds The longest of these pauses.
# TYPE thermostat_slice_pause_longest_seconds gauge
thermostat_slice_pause_longest_seconds{name="my-table"} 2
# HELP thermostat_slice_pause_seconds How long no process could work on a slice that has moved to this one.
# TYPE thermostat_slice_pause_seconds summary
thermostat_slice_pause_seconds_sum{name="my-table"} 3
thermostat_slice_pause_seconds_count{name="my-table"} 6
# HELP thermostat_slices Slices that the keys are cut into.
# TYPE thermostat_slices gauge
thermostat_slices{name="my-table"} 256
# HELP thermostat_slices_asked_for Slices of this process that others have asked for: it gives them away when their `+
		`runs have ended.
# TYPE thermostat_slices_asked_for gauge
thermostat_slices_asked_for{name="my-table"} 1
# HELP thermostat_slices_gained_total Slices that have come to this process.
# TYPE thermostat_slices_gained_total counter
thermostat_slices_gained_total{name="my-table"} 6
# HELP thermostat_slices_given_total Slices that this process has given away or lost.
# TYPE thermostat_slices_given_total counter
thermostat_slices_given_total{name="my-table"} 3
# HELP thermostat_slices_orphaned Slices that no process has led for longer than LeaseDuration, as this one sees it.
# TYPE thermostat_slices_orphaned gauge
thermostat_slices_orphaned{name="my-table"} 2
# HELP thermostat_slices_owned Slices whose keys this process reconciles.
# TYPE thermostat_slices_owned gauge
thermostat_slices_owned{name="my-table"} 3
`), "leader_election_master_status", "thermostat_leader_tenure_remaining_seconds", "thermostat_slice_owners",
		"thermostat_slice_pause_longest_seconds", "thermostat_slice_pause_seconds", "thermostat_slices",
		"thermostat_slices_asked_for", "thermostat_slices_gained_total", "thermostat_slices_given_total",
		"thermostat_slices_orphaned", "thermostat_slices_owned"))

	families, err := registry.Gather()
	require.NoError(t, err)
	busy := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "thermostat_slice_busy_seconds_total" {
			for _, m := range family.GetMetric() {
				busy[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"1": 99, "2": 98, "3": 97}, busy)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
