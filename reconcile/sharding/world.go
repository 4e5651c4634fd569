package sharding

import (
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// A world is what one list, and the watch from its version on, have shown: the table and the Leases of all replicas, as
// they were at one moment. Both are of one kind, so whoever has seen a version of the table has also seen every Lease
// that was made before it.
type world struct {
	known  bool
	table  *table  // nil: there is none, or it was edited
	at     version // of the table's Lease; zero if that does not exist
	leases map[string]sight
}

// after returns what is known once w was seen at now, and last before it. A table never goes back: w may be an answer,
// or an event, that was under way while the table was written. A Lease that has not changed is as old as it was.
func (w world) after(last world, now time.Time) world {
	if last.table != nil && w.at.uid == last.at.uid && kube.Older(w.at.resourceVersion, last.at.resourceVersion) {
		w.table, w.at = last.table, last.at
	}
	leases := make(map[string]sight, len(w.leases))
	for name, s := range w.leases {
		s.since = now
		if before, ok := last.leases[name]; ok && before.version == s.version {
			s.since = before.since
		}
		leases[name] = s
	}
	w.leases = leases
	return w
}

func (w world) memberOf(name string) (member, bool) {
	if w.table == nil {
		return member{}, false
	}
	return w.table.member(name)
}

// outsiders reports whether there is a Lease of a replica that the table does not have, and that has not certainly
// stopped. It may be at work under an earlier life of the table.
func (w world) outsiders(stopped map[string]bool) bool {
	for name := range w.leases {
		if _, ok := w.memberOf(name); !ok && !stopped[name] {
			return true
		}
	}
	return false
}

// A version is a state of one Lease.
type version struct{ uid, resourceVersion string }

// A sight is a Lease as it was seen.
type sight struct {
	version
	seconds int // the duration that it records
	// since is when the answer arrived that first showed this version: set by the observer, and by [replica.observe].
	since time.Time
}
