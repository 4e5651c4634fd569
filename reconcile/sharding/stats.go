package sharding

import (
	"cmp"
	"slices"
	"time"
)

// Stats is the present state of a replica, and its counters since it was made.
type Stats struct {
	All     int   // slices that the keys are cut into
	Slices  []int // those whose work may begin here, in order
	Asked   int   // of those that this replica owns: how many others have asked for
	Orphans []int // slices that nobody has led for longer than LeaseDuration, as [Shards.Health] has them
	Members int   // replicas in the table
	Turn    int64 // of the table: how often it was changed in its present life

	Remaining       time.Duration // of the tenure, without a renewal; zero: there is none
	Tenures         uint64        // begun: one, and one more after each loss
	Losses          uint64        // tenures that were lost
	RenewalFailures uint64        // tries to renew the Lease that failed
	// Gained and Lost count slices that came to this replica, and whose work has ended.
	Gained, Lost uint64
	// Pauses are how long nobody has worked on the slices that have come from other replicas.
	Pauses Pauses
	// Loads are the work of each slice in this process, the most time first; of slices without work there is none. A
	// slice that takes much more time than others is hot. It is not split by itself: cut the keys finer, by [ByKey] in
	// place of [ByNamespace] or by Options.ByKeyIn, if they do not depend on each other. Slices that were given away
	// stay in it, and a table that is made anew with another number of slices adds to what was counted before.
	Loads []Load

	Requests  uint64 // sent, whether answered or not
	LostRaces uint64 // writes that came too late: another replica was faster
}

// Pauses sums up the times without work of slices that have moved, as this replica has seen them. One begins when a
// replica has asked for the slice, also that of one that leaves. If its owner has crashed, it begins when the last
// renewal of that was seen; if it has left and nobody has asked, when the table said that it lets no work begin any
// more, which is a request later than it does so. It ends when [Shards.Inherit] has opened the slice here.
//
// Keys can have waited for longer if their owner has crashed before this replica has run.
type Pauses struct {
	Count        uint64
	Sum, Longest time.Duration
}

// add counts the pause of a slice that has moved, and is opened here.
func (p *Pauses) add(l *led) {
	if l.idle.IsZero() {
		return
	}
	d := time.Since(l.idle)
	l.idle = time.Time{}
	p.Count++
	p.Sum += d
	p.Longest = max(p.Longest, d)
}

// Load is the work that was entered on one slice.
type Load struct {
	Slice int
	Runs  uint64        // calls of Enter whose work has ended
	Time  time.Duration // from Enter to leave, of all runs together
}

// Stats returns a snapshot.
func (s *Shards) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Requests = s.requests.Load()
	stats.All = s.countLocked()
	stats.Orphans = orphans(s.led, s.opts.LeaseDuration)
	if s.r != nil && s.r.valid(s.now()) {
		stats.Remaining = s.r.left(s.now())
	}
	if t := s.seen.table; t != nil {
		stats.Members, stats.Turn = len(t.Members), t.Turn
		for slice := range t.Next {
			if s.r != nil && s.r.number != 0 && t.Owners[slice] == s.r.number {
				stats.Asked++
			}
		}
	}
	for slice := range s.works {
		if s.ownsLocked(slice) != nil {
			stats.Slices = append(stats.Slices, slice)
		}
	}
	slices.Sort(stats.Slices)
	stats.Loads = slices.DeleteFunc(slices.Clone(s.loads), func(l Load) bool { return l.Runs == 0 })
	slices.SortStableFunc(stats.Loads, func(a, b Load) int { return cmp.Compare(b.Time, a.Time) })
	return stats
}

// loads are those of the slices up to the last that had work.
type loads []Load

// ran counts work of a slice that has ended.
func (all *loads) ran(slice int, took time.Duration) {
	for len(*all) <= slice {
		*all = append(*all, Load{Slice: len(*all)})
	}
	l := &(*all)[slice]
	l.Runs++
	l.Time += took
}
