package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var v36, v37 = Version{3, 6, 16}, Version{3, 7, 3}

// settled is a cluster of n members in which nothing is to be done. The first one leads.
func settled(n int) Cluster {
	c := Cluster{Name: "e", Size: n, Version: v36, Quota: 1 << 30, ReplaceAfter: time.Minute, Formed: true,
		Listed: true}
	for i := range n {
		c.Members = append(c.Members, Member{Name: c.newName(), Claim: Present, Pod: Present, Word: Restart,
			URL: "http://" + c.newName(), ListedURL: "http://" + c.newName(), Image: v36, ID: uint64(i + 1),
			Started: true,
			Healthy: true, Leader: i == 0, Version: v36, StorageVersion: v36.minor(), DBSize: 1 << 20, InUse: 1 << 20})
	}
	return c
}

// TestDecisions has what the random histories do not say: what comes first.
func TestDecisions(t *testing.T) {
	dead := func(m *Member) { m.Healthy, m.Leader, m.Down = false, false, time.Hour }
	for name, test := range map[string]struct {
		size int
		with func(c *Cluster)
		want string
	}{
		"nothing to do": {3, func(*Cluster) {}, "Done: everything is as it should be"},
		"paused":        {3, func(c *Cluster) { c.Paused = true; dead(&c.Members[1]) }, "Paused: the spec says so"},
		"a lost member": {3, func(c *Cluster) { dead(&c.Members[1]) },
			"Remove e-2: it is lost; another one takes its place"},
		"a member that was away shortly": {3,
			func(c *Cluster) { c.Members[1].Healthy, c.Members[1].Down = false, 59*time.Second },
			"Done: everything is as it should be"},
		"a member that only the operator does not reach": {3, func(c *Cluster) { c.Members[1].Healthy = false },
			"Done: everything is as it should be"},
		"a member whose node is cut off, but not from the other members": {3,
			func(c *Cluster) { dead(&c.Members[1]); c.Members[1].Alive = true },
			"Done: everything is as it should be"},
		"a quorum that is lost": {3, func(c *Cluster) { c.Listed = false; dead(&c.Members[1]); dead(&c.Members[2]) },
			"Waiting: no quorum answers; nothing is changed until one does"},
		"followers are upgraded first": {3, func(c *Cluster) { c.Version = v37 }, "SetImage e-2: 3.7.3 is wanted"},
		"the leader hands over before its upgrade": {3, func(c *Cluster) {
			c.Version = v37
			for i := 1; i < 3; i++ {
				c.Members[i].Image, c.Members[i].Version = v37, v37
			}
		}, "MoveLeader e-2: leader e-1 is next"},
		"no upgrade while a member is away": {3, func(c *Cluster) { c.Version = v37; c.Members[2].Healthy = false },
			"SetImage e-3: 3.7.3 is wanted"},
		"an upgrade of one member": {1, func(c *Cluster) { c.Version = v37 }, "SetImage e-1: 3.7.3 is wanted"},
		"two minor versions": {3, func(c *Cluster) { c.Version = Version{3, 8, 0} },
			"Refused: members run 3.6.16: ask for a version of 3.7 first"},
		"two minor versions back": {3, func(c *Cluster) {
			c.Version = Version{3, 5, 30}
			for i := range c.Members {
				c.Members[i].Image, c.Members[i].Version = v37, v37
			}
		}, "Refused: members run 3.7.3: ask for a version of 3.6 first"},
		"no other member is upgraded while one starts": {5, func(c *Cluster) {
			c.Version = v37
			c.Members[4].Image, c.Members[4].Healthy = v37, false
		}, "Waiting: e-5 is not healthy with 3.7.3; versions change while all members are"},
		"a downgrade is prepared": {3, func(c *Cluster) { c.Version = Version{3, 5, 30} },
			"Downgrade: 3.5.30 is wanted"},
		"a downgrade is interrupted while a member is missing": {3, func(c *Cluster) {
			c.Version = Version{3, 5, 30}
			c.Members = c.Members[:2]
			c.Members[0].DowngradeTo, c.Members[1].DowngradeTo = Version{3, 5, 0}, Version{3, 5, 0}
		}, "CancelDowngrade e-1: no member can join while it is under way"},
		"a downgrade goes on without asking again": {3, func(c *Cluster) {
			c.Version = Version{3, 5, 30}
			for i := range c.Members {
				c.Members[i].StorageVersion = Version{3, 5, 0}
			}
			c.Members[1].Image, c.Members[1].Version, c.Members[1].StorageVersion = c.Version, c.Version, Version{}
		}, "SetImage e-3: 3.5.30 is wanted"},
		"a downgrade waits for all disks": {3, func(c *Cluster) {
			c.Version = Version{3, 5, 30}
			for i := range c.Members {
				c.Members[i].DowngradeTo, c.Members[i].StorageVersion = Version{3, 5, 0}, Version{3, 5, 0}
			}
			c.Members[2].StorageVersion = v36.minor()
		}, "Waiting: e-3 is preparing its disk for 3.5.0"},
		"a downgrade is called off": {3, func(c *Cluster) { c.Members[0].DowngradeTo = Version{3, 5, 0} },
			"CancelDowngrade e-1: 3.6.16 is wanted"},
		"a version that does not start": {3, func(c *Cluster) {
			c.Version = v37
			dead(&c.Members[1])
			c.Members[1].Image = v37
		}, "RollBack e-2: it does not start with 3.7.3"},
		"a version that did not start": {3, func(c *Cluster) { c.Version, c.Failed = v37, v37 },
			"Refused: a member did not start with 3.7.3: ask for another version"},
		"shrinking keeps the leader": {3, func(c *Cluster) { c.Size = 2 },
			"Remove e-3: there are more members than the size"},
		"shrinking prefers the dead": {3, func(c *Cluster) { c.Size = 2; c.Members[1].Healthy = false },
			"Remove e-2: there are more members than the size"},
		"NOSPACE: compaction": {3, func(c *Cluster) { c.Members[1].NoSpace = true; c.Revision = 9 },
			"Compact e-2: the database is full: NOSPACE"},
		"NOSPACE: defragmentation": {3,
			func(c *Cluster) {
				c.Members[1].NoSpace = true
				c.Members[0].DBSize = 1 << 30
				c.Members[0].InUse = 1 << 20
			},
			"Defragment e-1: the database is full: NOSPACE"},
		"NOSPACE: nothing helps": {3,
			func(c *Cluster) {
				c.Members[1].NoSpace = true
				for i := range c.Members {
					c.Members[i].DBSize, c.Members[i].InUse = 1<<30, 1<<30
				}
			},
			"Waiting: the database is full: NOSPACE; delete keys or raise quotaBytes"},
		"NOSPACE: a member whose free pages are not counted yet": {3, func(c *Cluster) {
			c.Members[1].NoSpace = true
			c.Members[2].DBSize, c.Members[2].InUse = 1<<30, 1<<30
		}, "Defragment e-3: the database is full: NOSPACE"},
		"NOSPACE: compaction interrupts a member": {3, func(c *Cluster) {
			c.Members[1].NoSpace, c.Revision = true, 9
			c.Members[2].Healthy = false
		}, "Waiting: Compact e-2: the database is full: NOSPACE; not now: 1 of 3 voters would be healthy"},
		"NOSPACE: there is room": {3, func(c *Cluster) { c.Members[1].NoSpace = true },
			"Disarm e-2: there is room again"},
		"the leader hands over before it defragments": {3, func(c *Cluster) { c.Members[0].DBSize = 1 << 29 },
			"MoveLeader e-2: leader e-1 is next"},
		"no defragmentation while a member is away": {3, func(c *Cluster) {
			c.Members[1].DBSize, c.Members[2].Healthy = 1<<29, false
		}, "Waiting: Defragment e-2: more than half of its file is free; not now: 1 of 3 voters would be healthy"},
		"a member that trusts other CAs starts again": {3, func(c *Cluster) { c.Members[1].Trust = TrustsSome },
			"RenewTrust e-2: it starts with the CAs that the cluster has now"},
		"the leader hands over before it starts again": {3, func(c *Cluster) { c.Members[0].Trust = TrustsSome },
			"MoveLeader e-2: leader e-1 is next"},
		"one that is away goes first": {5, func(c *Cluster) {
			c.Members[1].Trust, c.Members[3].Trust, c.Members[3].Healthy = TrustsSome, TrustsSome, false
		}, "RenewTrust e-4: it starts with the CAs that the cluster has now"},
		"the next one waits for a pod that goes, and still answers": {3, func(c *Cluster) {
			c.Members[1].Trust, c.Members[1].Pod, c.Members[2].Trust = TrustsSome, Leaving, TrustsSome
		}, "Waiting: e-3 trusts other CAs, and starts again when the quorum can spare it"},
		"a member whose disk would go with its pod": {3, func(c *Cluster) {
			c.Members[1].Trust, c.Members[1].Claim = TrustsSome, Leaving
		}, "CreateClaim e-4: there are fewer members than the size"},
		"CAs come before a version that is refused": {3, func(c *Cluster) {
			c.Members[1].Trust, c.Version, c.Failed = TrustsSome, v37, v37
		}, "RenewTrust e-2: it starts with the CAs that the cluster has now"},
		"members that trust nobody start again without a quorum": {3, func(c *Cluster) {
			c.Listed = false
			for i := range c.Members {
				c.Members[i].ID, c.Members[i].Healthy, c.Members[i].Trust = 0, false, TrustsNone
			}
		}, "RenewTrust e-1: it trusts no CA that the others trust"},
		"members that others trust do not": {3, func(c *Cluster) {
			c.Listed = false
			for i := range c.Members {
				c.Members[i].Healthy, c.Members[i].Trust = false, TrustsSome
			}
		}, "Waiting: no quorum answers; nothing is changed until one does"},
		"a learner that votes by mistake of a person is told like others": {3,
			func(c *Cluster) { c.Members[2].Word = Begin },
			"Restart e-3: it has started once, and may not do so again with an empty disk"},
	} {
		t.Run(name, func(t *testing.T) {
			c := settled(test.size)
			test.with(&c)
			assert.Equal(t, test.want, Next(c).String())
		})
	}
}
