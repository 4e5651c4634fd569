package sharding

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Ready returns nil if this replica takes part, or could: it has been in the table, and nothing keeps it from being
// there now, such as a right that its Role lacks. The error says what. Use it as a readiness check, as a Manager does:
// then a roll-out does not replace replicas that work by ones that never can. A replica that has lost its tenure, as
// when the API server is away, stays ready.
func (s *Shards) Ready() error {
	denied := s.client.refused()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case denied != nil:
		return denied
	case s.failing != nil && !s.member:
		return s.failing
	case s.refusal != nil:
		return s.refusal
	case s.r != nil && s.r.number != 0 && s.seen.table != nil && s.seen.table.By != s.by:
		return fmt.Errorf("sharding: %s: Options.By of this replica, with the fingerprint %s, is not that of the "+
			"group, %s: it gets no slices until all replicas with the other one have "+
			"stopped", s, s.by, s.seen.table.By)
	case !s.member:
		return fmt.Errorf("sharding: %s: this replica has not joined the group yet", s)
	}
	return nil
}

// Check is a health check, as those of controller-runtime are. It fails when work goes on that should have ended:
// that of a slice that others have asked for, DrainTimeout + StopGrace ago, or of a tenure that is over. Its keys run
// nowhere until the process restarts. A Manager calls it for /healthz.
func (s *Shards) Check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck {
		return fmt.Errorf("sharding: %s: work of an earlier tenure %w", s, ErrStuck)
	}
	var all []int
	for slice, w := range s.works {
		if !w.stopping.IsZero() && time.Since(w.stopping) > s.opts.DrainTimeout+s.opts.StopGrace {
			all = append(all, slice)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return fmt.Errorf("sharding: %s: the work of slices %v %w: it had %v, and their keys run nowhere meanwhile", s, all,
		ErrStuck, s.opts.DrainTimeout+s.opts.StopGrace)
}

// Health returns an error that names the slices which nobody has led for longer than LeaseDuration, as far as this
// replica can see: without an owner, or with one that does not renew its Lease. It also names those that their owner
// has been asked for, and has not given away in DrainTimeout + StopGrace and a RetryPeriod: their keys run nowhere
// meanwhile. This is the same in all replicas. It also names the slices of this replica, and those that it would ask
// for, whose objects a cache of [Keys] and its like has lacked for longer than LeaseDuration, with what the cache says.
// It is for alerts, and no reason to restart a replica: see Check.
func (s *Shards) Health() error {
	lacking := s.caches.overdue(s, s.opts.LeaseDuration)
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.opts.DrainTimeout + s.opts.StopGrace + s.opts.RetryPeriod
	unled := orphans(s.led, s.opts.LeaseDuration)
	var kept []int
	for slice, l := range s.led {
		if !l.asked.IsZero() && time.Since(l.asked) > late && !slices.Contains(unled, slice) {
			kept = append(kept, slice)
		}
	}
	var errs []error
	if len(unled) > 0 {
		errs = append(errs, fmt.Errorf("sharding: %s: nobody leads %d of %d slices %v for longer than %v: %s", s,
			len(unled), len(s.led), unled, s.opts.LeaseDuration, whyUnled(s.seen)))
	}
	if len(kept) > 0 {
		errs = append(errs, fmt.Errorf("sharding: %s: %d of %d slices %v were asked for more than %v ago, and their "+
			"owners have not ended their work", s, len(kept), len(s.led), kept, late))
	}
	return errors.Join(append(errs, lacking)...)
}

// orphans returns the slices that nobody has led for longer than a LeaseDuration.
func orphans(slices []led, leaseDuration time.Duration) (all []int) {
	for slice, l := range slices {
		if time.Since(l.until) > leaseDuration {
			all = append(all, slice)
		}
	}
	return all
}

func whyUnled(w world) string {
	switch t := w.table; {
	case !w.known:
		return "the table was never read"
	case t == nil:
		return "there is no table"
	case !t.Open:
		return "the table is new: it waits until nobody can be at work under an earlier one"
	}
	return "their owners do not renew their Leases"
}

// led is what is known of who leads a slice.
type led struct {
	until time.Time // when it is known to have been led last
	owner int       // its owner's number in the table
	epoch int64     // since when it is
	life  string    // of that table: numbers and epochs of another one say nothing about this one
	since time.Time // when this process has seen that
	asked time.Time // when it has seen that another one asks for the slice; zero: nobody does
	// ending is when this process has seen that the owner lets no work begin any more, as it leaves. Zero: it does.
	ending time.Time
	// idle is since when the owner before this one may not have worked on it; zero: it has had none, or it was opened
	// here since. See [Pauses].
	idle time.Time
}

// noteLed notes by whom and until when each slice is led, as far as a world shows. A Lease counts for deadline, the
// RenewDeadline of its replica.
func noteLed(all []led, w world, deadline time.Duration) []led {
	t := w.table
	if t == nil || !t.Open {
		return all
	}
	now := time.Now()
	if len(all) != len(t.Owners) {
		all = slices.Repeat([]led{{until: now}}, len(t.Owners))
	}
	until, ending := map[int]time.Time{}, map[int]bool{}
	for _, m := range t.Members {
		ending[m.Number] = m.Ending
		if lease, ok := w.leases[m.Name]; ok {
			until[m.Number] = lease.since.Add(deadline)
		}
	}
	for slice, owner := range t.Owners {
		l := &all[slice]
		if l.owner != owner || l.epoch != t.Epochs[slice] || l.life != t.Life {
			if l.owner != 0 {
				l.idle = l.idleFrom(now, deadline)
			}
			*l = led{until: l.until, owner: owner, epoch: t.Epochs[slice], life: t.Life, since: now, idle: l.idle}
		}
		if ending[owner] && l.ending.IsZero() {
			l.ending = now
		}
		if u := until[owner]; u.After(l.until) {
			l.until = u
		}
		if t.Next[slice] == 0 {
			l.asked = time.Time{}
		} else if l.asked.IsZero() {
			l.asked = now
		}
	}
	return all
}

// idleFrom returns since when the owner that a slice has had may not have worked on it: it was asked for it, it was
// about to end, its Lease has run out, or it has given the slice away just now.
func (l led) idleFrom(now time.Time, deadline time.Duration) time.Time {
	switch {
	case !l.asked.IsZero() && (l.ending.IsZero() || l.asked.Before(l.ending)):
		return l.asked
	case !l.ending.IsZero():
		return l.ending
	case now.After(l.until):
		return l.until.Add(-deadline)
	}
	return now
}
