package members

import (
	"context"
	"crypto/x509"
	"errors"

	"github.com/thermostat-go/thermostat/examples/etcd/plan"
)

// Etcd is a way to clusters of etcd. Safe for concurrent use. A call ends with its ctx.
type Etcd interface {
	// Ask asks one member, by its URL for clients, about itself.
	Ask(ctx context.Context, url string) (Answer, error)
	// Heard asks one member, by its URL for clients, how many bytes have come from each other member since it started,
	// by the IDs of these. The count of the leader grows with ten answers a second of each member that is alive.
	Heard(ctx context.Context, url string) (map[uint64]float64, error)
	// List returns the members as a quorum has agreed on them. It fails without a quorum.
	List(ctx context.Context, urls []string) ([]Listed, error)
	// Do carries out an action on etcd. MoveLeader needs the URL of the leader, Compact and Defragment that of the
	// member, and the others those of any healthy members. The error wraps ErrNotYet if etcd wants to be asked again
	// later.
	Do(ctx context.Context, urls []string, a plan.Action) error
}

// ErrNotYet says that an action will be possible soon: a learner has not caught up, or a new member is not connected.
var ErrNotYet = errors.New("not yet")

// Answer is what a member says of itself.
type Answer struct {
	Cluster, ID, Leader     uint64 // Leader 0: there is none
	Learner                 bool
	Version, StorageVersion plan.Version
	DowngradeTo             plan.Version // zero: no downgrade is under way
	DBSize, InUse           int64        // bytes
	Revision                int64
	Index                   uint64 // that the member knows to be committed
	// List is the list of members as this one has it. It is not that of a quorum, and is there only if the member has
	// no leader or leads.
	List   []Listed
	Errors []string // alarms among them, such as NOSPACE
	// Shown is the certificate that the member has shown. nil: it has none.
	Shown *x509.Certificate
}

// Listed is a member in etcd's list.
type Listed struct {
	ID      uint64
	Name    string // empty: it has never started
	PeerURL string
	Learner bool
}
