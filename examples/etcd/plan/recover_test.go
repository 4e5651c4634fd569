package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// without is a cluster of n members without a quorum, whose last ones have lost their data. The others answer, each
// with a higher index than the one before.
func without(n, lost int) Cluster {
	c := settled(n)
	c.Listed, c.MayRecover = false, true
	for i := range c.Members {
		m := &c.Members[i]
		m.ID, m.Healthy, m.Leader, m.Known, m.Votes = 0, false, false, true, true
		if i < n-lost {
			m.Speaks, m.Index = true, uint64(i+1)
		} else {
			m.Lost = "its disk is empty"
		}
	}
	return c
}

// TestRecovery has each step of a recovery, and what keeps the operator from the next one.
func TestRecovery(t *testing.T) {
	const noQuorum = "Waiting: no quorum answers; nothing is changed until one does"
	chosen := func(c *Cluster) {
		c.Recovery = &Recovery{Survivor: "e-2"}
		c.Members[0].Pod, c.Members[2].Pod = Absent, Absent
	}
	forcing := func(c *Cluster) {
		chosen(c)
		c.Members[1].Forcing = true
	}
	for name, test := range map[string]struct {
		n, lost int
		with    func(c *Cluster)
		want    string
	}{
		"the best of two": {5, 3, func(*Cluster) {},
			"ChooseSurvivor e-2: 3 of 5 voters have lost their data for good"},
		"not allowed":      {5, 3, func(c *Cluster) { c.MayRecover = false }, noQuorum},
		"a quorum is left": {5, 2, func(*Cluster) {}, noQuorum},
		"a quorum is left, and silent": {5, 2, func(c *Cluster) {
			for i := range c.Members {
				c.Members[i].Speaks = false
			}
		}, noQuorum},
		"a quorum answers": {3, 2, func(c *Cluster) {
			*c = settled(3)
			c.MayRecover = true
		}, "Done: everything is as it should be"},
		"one of two is silent":      {5, 3, func(c *Cluster) { c.Members[0].Speaks = false }, noQuorum},
		"the claim of one is going": {5, 3, func(c *Cluster) { c.Members[0].Claim = Leaving }, noQuorum},
		"the only one may be silent": {3, 2, func(c *Cluster) { c.Members[0].Speaks = false },
			"ChooseSurvivor e-1: 2 of 3 voters have lost their data for good"},
		"one that may vote by now": {2, 1,
			func(c *Cluster) {
				c.Members = append(c.Members, Member{Name: "e-3", Claim: Present, Pod: Present, Word: Restart})
			}, noQuorum},
		"a learner that says so is no voter": {2, 1,
			func(c *Cluster) {
				c.Members = append(c.Members, Member{Name: "e-3", Claim: Present, Pod: Present, Word: Restart,
					Learns: true})
			}, "ChooseSurvivor e-1: 1 of 2 voters have lost their data for good"},
		"a status that a person has emptied": {3, 1, func(c *Cluster) { forcing(c); c.Recovery = nil },
			"Waiting: e-2 begins the cluster anew, and status.recovery is gone, which says so: write it again, " +
				"or delete the EtcdCluster"},
		"a pause": {5, 3, func(c *Cluster) { c.Paused = true }, "Paused: the spec says so"},
		"all pods go, the survivor's too": {3, 1, chosen,
			"DeletePod e-2: nobody may run while e-2 begins the cluster anew"},
		"a pod that stays": {3, 1, func(c *Cluster) { chosen(c); c.Members[1].Pod, c.Members[2].Pod = Absent, Leaving },
			"Waiting: the pod of e-3 must be gone before e-2 begins the cluster anew; if its node is gone for good, " +
				"delete the Node"},
		"a claim with data keeps its word": {3, 1, func(c *Cluster) { chosen(c); c.Members[0].Word = Untold },
			"Restart e-1: its word is lost, and it has started once"},
		"the choice is not made again": {3, 1, func(c *Cluster) {
			chosen(c)
			c.Members[1].Pod, c.Members[0].Index = Absent, 99
		}, "ForceNewCluster e-2: it begins the cluster anew, alone"},
		"a pod beside it": {3, 1, func(c *Cluster) { forcing(c); c.Members[0].Pod = Present },
			"DeletePod e-1: nobody may run while e-2 begins the cluster anew"},
		"it starts": {3, 1, forcing, "Waiting: e-2 begins the cluster anew, alone"},
		"it is alone": {3, 1, func(c *Cluster) { forcing(c); c.Members[1].Alone = true },
			"Resume e-2: it has begun the cluster anew, and starts as always now"},
		"killed before the pod was deleted": {3, 1, func(c *Cluster) { forcing(c); c.Recovery.Served = true },
			"Resume e-2: it has begun the cluster anew, and starts as always now"},
		"its pod is going": {3, 1, func(c *Cluster) { forcing(c); c.Recovery.Served, c.Members[1].Pod = true, Leaving },
			"Waiting: the pod with which e-2 has begun anew is going"},
		"it starts as always, and nobody else": {3, 1, func(c *Cluster) {
			chosen(c)
			c.Recovery.Served, c.Members[0].Known, c.Members[1].Pod = true, false, Absent
		}, "CreatePod e-2: it has a disk and no pod"},
		"nobody else": {3, 1, func(c *Cluster) {
			chosen(c)
			c.Recovery.Served, c.Members[0].Known,
				c.Members[2].Known = true, false, false
		}, noQuorum},
		"what is left of the old cluster": {3, 1, func(c *Cluster) {
			chosen(c)
			c.Recovery.Served, c.Listed, c.Members[0].Known = true, true, false
			m := &c.Members[1]
			m.ID, m.Healthy, m.Leader = 2, true, true
		}, "DeleteClaim e-1: etcd does not have it as a member"},
		"the survivor's claim is gone": {3, 1,
			func(c *Cluster) { chosen(c); c.Members[1].Pod, c.Members[1].Claim = Absent, Absent },
			"Waiting: the claim of e-2 is gone, with which the cluster was to begin anew; see status.recovery"},
	} {
		t.Run(name, func(t *testing.T) {
			c := without(test.n, test.lost)
			test.with(&c)
			assert.Equal(t, test.want, Next(c).String())
			assert.False(t, c.Recovered())
		})
	}
}
