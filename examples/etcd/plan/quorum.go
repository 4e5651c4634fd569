package plan

import "fmt"

// Quorum is the number of voters that have to be healthy.
func Quorum(voters int) int { return voters/2 + 1 }

// costsQuorum is the one place that judges whether an action is safe. It counts the voters, and those of them that are
// healthy, as they are after the action or while it lasts. Empty: the action is safe. Without a quorum no member has an
// ID here, and there is none to cost: what a recovery does is safe by its own rules (recover.go).
func costsQuorum(c *Cluster, a *Action) string {
	voters, healthy := c.Voters(), c.count(func(m *Member) bool { return m.voter() && m.stays() })
	m := c.find(func(m *Member) bool { return m.Name == a.Member && m.ID == a.ID && m.ID != 0 })
	if m == nil {
		return "" // nobody votes or will vote by it
	}
	if m.Learner && a.Do != Promote {
		return ""
	}
	switch a.Do {
	case Promote:
		voters++
		if m.stays() {
			healthy++
		}
	case Remove:
		voters--
		if m.stays() {
			healthy--
		}
	case SetImage, RollBack, RenewTrust, Compact, Defragment: // the member is away for a while
		if voters <= 2 && healthy == voters {
			return "" // one and two members have none to spare: who asks for this size accepts the interruption
		}
		if m.stays() {
			healthy--
		}
	default:
		return ""
	}
	if healthy >= Quorum(voters) {
		return ""
	}
	return fmt.Sprintf("not now: %d of %d voters would be healthy", healthy, voters)
}
