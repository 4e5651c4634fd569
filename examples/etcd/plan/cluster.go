package plan

import (
	"fmt"
	"time"
)

// Cluster is all that a decision is made from.
type Cluster struct {
	Name         string
	Size         int           // voters that are wanted
	Version      Version       // that is wanted
	Quota        int64         // bytes that a database may reach
	ReplaceAfter time.Duration // how long a member may be down
	Paused       bool

	// Formed: the first member has started once, so a cluster with data exists. It is never false again.
	Formed bool
	// Last is the oldest version that a member ran when the cluster was last seen. Zero: it never was.
	Last Version
	// Failed is the last version that a member did not start with. Zero: there is none.
	Failed Version
	// Listed: a quorum has served the list of members. Otherwise nothing that the members say of the list is used.
	Listed bool
	// Revision is the newest revision of the database, and Compacted the one that the last Compact has reached.
	Revision, Compacted int64
	// MayRecover: the spec allows a recovery from a lost quorum, and its waiting time is over. Recovery is the one
	// under way; nil: none is.
	MayRecover bool
	Recovery   *Recovery
	// Members have an object or are in the list, in the order of their names.
	Members []Member
}

// Member is one name: its objects, and what etcd says of it.
type Member struct {
	Name  string // empty: in the list only, has never started, and its address is that of no pod
	Claim Presence
	Pod   Presence
	Word  Word
	// Known: etcd had the member in its list, and knew its name, when the cluster was last seen. So it has started
	// once.
	Known bool
	// Told is the version that its pod is to have, as the word says. The word outlives the pod.
	Told Version
	// URL is the address for peers that the member has now. Empty: not known yet.
	URL string
	// Image is the version that the pod's image has.
	Image Version
	// Down is how long the pod has not been ready. Broken: its process has ended at each of its last starts, or its
	// disk is gone for good.
	Down   time.Duration
	Broken bool

	// Trust is what the pod's etcd trusts, compared with what it should.
	Trust Trust

	// Alive: others hear of it although the operator does not, or cannot say that they do not.
	Alive bool
	// Without a quorum. Lost says why the data of the member are gone for good; empty: they may not be.
	Lost     string
	Votes    bool   // as far as the members knew last of each other
	Speaks   bool   // it answers, and has no leader
	Learns   bool   // it says itself that it does not vote
	Index    uint64 // what it knows to be committed; 0: it does not speak
	Revision int64  // of its data
	Forcing  bool   // its pod begins the cluster anew
	Alone    bool   // and has done so: it leads, and is its own only member

	// In etcd's list. ID 0: not there.
	ID        uint64
	Learner   bool
	Started   bool   // etcd knows its name, so it has started once
	ListedURL string // the address that the others have for it

	// What the member says itself. Healthy: it answers, has a leader, and belongs to this cluster.
	Healthy        bool
	Leader         bool
	Version        Version // that it runs
	StorageVersion Version // of the format of its disk; zero before 3.6
	DBSize, InUse  int64   // bytes of the database file, and of what is in it
	NoSpace        bool    // it has raised the alarm
	// DowngradeTo is what the downgrade that is under way leads to; zero: there is none.
	DowngradeTo Version
}

// Presence tells whether an object exists.
type Presence int

// An object that is Leaving has been deleted, and something waits for it.
const (
	Absent Presence = iota
	Present
	Leaving
)

// Word is what a member has been told.
type Word int

// What a member may do.
const (
	Untold  Word = iota // it waits
	Begin               // it starts, also on an empty disk
	Restart             // it starts on the disk that it has written to
)

// Trust compares the CAs that a member trusts, until it starts again, with those of the cluster.
type Trust int

// A member that trusts none of the CAs that the others trust accepts none of them, and is accepted by none.
const (
	TrustsAll  Trust = iota // the same CAs, or there is no TLS
	TrustsSome              // other ones, and some in common
	TrustsNone              // none in common that has not ended
)

func (m *Member) voter() bool { return m.ID != 0 && !m.Learner }

// stays reports whether the member is healthy, and is not about to go: a pod that is deleted answers for a while.
func (m *Member) stays() bool { return m.Healthy && m.Pod != Leaving }

// distrusts reports whether the member has to start again, since it trusts other CAs than it should. A disk that is
// deleted would go with the pod: such a member stays until another one has taken its place.
func (m *Member) distrusts() bool {
	return m.Pod == Present && m.Claim == Present && m.Trust != TrustsAll
}

// lost reports whether a new member should take the place of this one.
func (m *Member) lost(c *Cluster) bool {
	return !m.Healthy && (m.Claim == Absent || m.failing(c) && !m.unproven(c))
}

// failing reports whether the member has been away for too long. If the operator and the kubelet say so and the other
// members do not, the network is cut, and the member may be one that the quorum needs.
func (m *Member) failing(c *Cluster) bool {
	return !m.Healthy && (m.Broken || m.Down >= c.ReplaceAfter && !m.Alive)
}

// unproven reports whether the pod has a version that no healthy member runs. If it fails, its disk may be good.
func (m *Member) unproven(c *Cluster) bool {
	return m.Pod == Present && c.Healthy() > 0 &&
		c.find(func(other *Member) bool { return other.Healthy && other.Version == m.Image }) == nil
}

// find returns the first member that is as asked for.
func (c *Cluster) find(as func(*Member) bool) *Member {
	for i := range c.Members {
		if as(&c.Members[i]) {
			return &c.Members[i]
		}
	}
	return nil
}

// count returns the number of members that are as asked for.
func (c *Cluster) count(as func(*Member) bool) (n int) {
	for i := range c.Members {
		if as(&c.Members[i]) {
			n++
		}
	}
	return n
}

// Voters returns the number of members that vote.
func (c *Cluster) Voters() int { return c.count((*Member).voter) }

// lasting returns the number of voters that keep their disks.
func (c *Cluster) lasting() int {
	return c.count(func(m *Member) bool { return m.voter() && m.Claim == Present })
}

// Healthy returns the number of voters that are healthy.
func (c *Cluster) Healthy() int {
	return c.count(func(m *Member) bool { return m.voter() && m.Healthy })
}

// newName is the first name that no member has. It is the same when the same is asked again.
func (c *Cluster) newName() string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s-%d", c.Name, i)
		if c.find(func(m *Member) bool { return m.Name == name }) == nil {
			return name
		}
	}
}
