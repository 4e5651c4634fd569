package sharding

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Ready returns nil if this replica takes part, or could: it has been in the table, and nothing keeps it from being
// there now. The error says what does. Use it as a readiness check, as a Manager does: then a roll-out does not replace
// replicas that work by ones that never can. A replica that has lost its tenure, as when the API server is away, stays
// ready.
func (s *Shards) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failing != nil:
		return s.failing
	case s.refusal != nil:
		return s.refusal
	case s.r != nil && s.r.number != 0 && s.seen.table != nil && s.seen.table.By != s.by:
		return fmt.Errorf("sharding: %s: Options.By of this replica, with the fingerprint %s, is not that of the "+
			"group, %s: it gets no slices until all replicas with the other one have stopped", s, s.by, s.seen.table.By)
	case !s.member:
		return fmt.Errorf("sharding: %s: this replica has not joined the group yet", s)
	}
	return nil
}

// Health returns an error that names the slices which nobody has led for longer than LeaseDuration, as far as this
// replica can see: without an owner, or with one that does not renew its Lease. It is the same in all replicas, so it
// is for alerts, and no reason to restart one.
func (s *Shards) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var bad []string
	for slice, l := range s.led {
		if now.Sub(l.until) > s.opts.LeaseDuration {
			bad = append(bad, fmt.Sprint(slice))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	why := "their owners do not renew their Leases"
	switch t := s.seen.table; {
	case !s.seen.known:
		why = "the table was never read"
	case t == nil:
		why = "there is no table"
	case !t.Open:
		why = "the table is new: it waits until nobody can be at work under an earlier one"
	}
	return fmt.Errorf("sharding: %s: nobody leads %d of %d slices (%s) for longer than %v: %s", s, len(bad), len(s.led),
		strings.Join(bad, ", "), s.opts.LeaseDuration, why)
}

// led is what is known of who leads a slice.
type led struct {
	until time.Time // when it is known to have been led last
	owner int       // its owner's number in the table
	epoch int64     // since when it is
	since time.Time // when this process has seen that
}

// noteLedLocked notes by whom and until when each slice is led, as far as the world shows.
func (s *Shards) noteLedLocked() {
	t := s.seen.table
	if t == nil || !t.Open || s.r == nil {
		return
	}
	now := time.Now()
	if len(s.led) != len(t.Owners) {
		s.led = slices.Repeat([]led{{until: now}}, len(t.Owners))
	}
	until := map[int]time.Time{}
	for _, m := range t.Members {
		if lease, ok := s.r.seen.leases[m.Name]; ok {
			until[m.Number] = lease.since.Add(s.opts.RenewDeadline)
		}
	}
	for slice, owner := range t.Owners {
		l := &s.led[slice]
		if u := until[owner]; u.After(l.until) {
			l.until = u
		}
		if l.owner != owner || l.epoch != t.Epochs[slice] {
			l.owner, l.epoch, l.since = owner, t.Epochs[slice], now
		}
	}
}
