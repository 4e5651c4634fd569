package sharding

import "time"

// A world is what one list, and the watch from its version on, have shown: the table and the Leases of all replicas, as
// they were at one moment. Both are of one kind, so whoever has seen a version of the table has also seen every Lease
// that was made before it.
type world struct {
	known  bool
	table  *table  // nil: there is none, or it was edited
	at     version // of the table's Lease; zero if that does not exist
	leases map[string]sight
}

// A version is a state of one Lease.
type version struct{ uid, resourceVersion string }

// A sight is a Lease as it was seen.
type sight struct {
	version
	seconds int       // the duration that it records
	since   time.Time // when the answer arrived that first showed this version; set by [replica.observe]
}
