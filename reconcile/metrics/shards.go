package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

type shards struct {
	name  string
	stats func() sharding.Stats
}

// Shards lets the collector show the slices of this replica, and its tenure as that of an elector:
// leader_election_master_status is 1 in each replica that has a tenure, also before it has slices. name is that of the
// table, and stats the method of *sharding.Shards. Names have to differ from those of electors, too, or the scrape
// fails.
func (c *Collector) Shards(name string, stats func() sharding.Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shards = append(c.shards, shards{name, stats})
}

var (
	cut         = desc("thermostat_slices", "Slices that the keys are cut into.", "name")
	sliceOwners = desc("thermostat_slice_owners", "Processes that share the slices.", "name")
	owned       = desc("thermostat_slices_owned", "Slices whose keys this process reconciles.", "name")
	askedFor    = desc("thermostat_slices_asked_for",
		"Slices of this process that others have asked for: it gives them away when their runs have ended.", "name")
	orphaned = desc("thermostat_slices_orphaned",
		"Slices that no process has led for longer than LeaseDuration, as this one sees it.", "name")
	gained = desc("thermostat_slices_gained_total", "Slices that have come to this process.", "name")
	given  = desc("thermostat_slices_given_total", "Slices that this process has given away or lost.", "name")
	pauses = desc("thermostat_slice_pause_seconds",
		"How long no process could work on a slice that has moved to this one.", "name")
	longestPause = desc("thermostat_slice_pause_longest_seconds", "The longest of these pauses.", "name")
	sliceRuns    = desc("thermostat_slice_runs_total",
		"Runs in a slice of this process, since that has begun. A slice that is given away is not shown.", "name",
		"slice")
	sliceBusy = desc("thermostat_slice_busy_seconds_total", "How long these runs took.", "name", "slice")
)

var shardDescs = []*prometheus.Desc{cut, sliceOwners, owned, askedFor, orphaned, gained, given, pauses, longestPause,
	sliceRuns, sliceBusy}

func (out sink) shards(name string, s sharding.Stats) {
	out.elector(name, leaderelection.Stats{Leading: s.Remaining > 0, Remaining: s.Remaining, Tenures: s.Tenures,
		Losses: s.Losses, RenewalFailures: s.RenewalFailures})
	out.gauge(cut, float64(s.All), name)
	out.gauge(sliceOwners, float64(s.Members), name)
	out.gauge(owned, float64(len(s.Slices)), name)
	out.gauge(askedFor, float64(s.Asked), name)
	out.gauge(orphaned, float64(len(s.Orphans)), name)
	out.counter(gained, float64(s.Gained), name)
	out.counter(given, float64(s.Lost), name)
	out <- prometheus.MustNewConstSummary(pauses, s.Pauses.Count, s.Pauses.Sum.Seconds(), nil, name)
	out.gauge(longestPause, s.Pauses.Longest.Seconds(), name)
	for _, l := range s.Loads {
		if _, owned := slices.BinarySearch(s.Slices, l.Slice); !owned {
			continue
		}
		slice := strconv.Itoa(l.Slice)
		out.counter(sliceRuns, float64(l.Runs), name, slice)
		out.counter(sliceBusy, l.Time.Seconds(), name, slice)
	}
}
