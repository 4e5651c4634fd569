package plan

import "fmt"

// Recovery is a recovery from a quorum that is lost for good, as the status has it: the choice is written before
// anything is done, and is never another one.
type Recovery struct {
	Survivor string // the member with which the cluster begins anew
	// Served: it has begun anew, and has been its only member. From then on it starts as every member does.
	Served bool
}

// Loss is a quorum that cannot come back: too many voters have lost their data for good.
type Loss struct {
	Voters int
	Lost   []*Member // voters whose data are gone
	Left   []*Member // all others that may vote
	// Best is the member to go on with: of those that are left the one with the highest committed index. Nil: there is
	// none, and Why says why.
	Best *Member
	Why  string
}

// Loss returns nil if a quorum answers, or may do so again. A member that does not answer is left, and not lost. Two
// kinds of members are left: voters in the newest list that a member has, and members that may vote by now without that
// list having it. Their words say so: a learner is told to restart before it is promoted. If it is silent, it may be
// the one that knows of its promotion.
func (c *Cluster) Loss() *Loss {
	if c.Listed || !c.Formed {
		return nil
	}
	l := &Loss{}
	for i := range c.Members {
		m := &c.Members[i]
		unknown := !m.Votes && !m.Learns && m.Word == Restart
		switch {
		case m.Votes && m.Lost != "":
			l.Lost = append(l.Lost, m)
		case m.Votes, unknown && m.Lost == "":
			l.Left = append(l.Left, m)
		}
		if m.Votes {
			l.Voters++
		}
	}
	if len(l.Lost) == 0 || len(l.Left) >= Quorum(l.Voters) {
		return nil
	}
	l.choose()
	return l
}

// choose compares what the members say. A member that is alone needs no comparison, so it may be silent: an etcd that
// has been started again without a quorum answers no question.
func (l *Loss) choose() {
	for _, m := range l.Left {
		switch {
		case m.Claim != Present:
			l.Best, l.Why = nil, fmt.Sprintf("the claim of %s is being deleted", m.Name)
			return
		case !m.Speaks && len(l.Left) > 1:
			l.Best, l.Why = nil, fmt.Sprintf("%s does not answer, and its data may be the newest", m.Name)
			return
		case l.Best == nil || m.Index > l.Best.Index:
			l.Best = m
		}
	}
	if l.Best == nil {
		l.Why = "no member has its data any more"
	}
}

// recoverQuorum begins the cluster anew with one member, if the spec allows it. This is the one place where a quorum is
// given up, and it is lost already. All pods are gone before that member starts alone, and no member of the old
// cluster ever starts again: their claims are deleted (clear) when the new cluster serves its list.
func recoverQuorum(c *Cluster) *Action {
	if c.Recovery == nil {
		if m := c.find(func(m *Member) bool { return m.Forcing }); m != nil {
			return wait("%s begins the cluster anew, and status.recovery is gone, which says so: write it again, or "+
				"delete the EtcdCluster", m.Name)
		}
		l := c.Loss()
		if l == nil || l.Best == nil || !c.MayRecover {
			return nil
		}
		return do(ChooseSurvivor, l.Best, fmt.Sprintf("%d of %d voters have lost their data for good", len(l.Lost),
			l.Voters))
	}
	s := c.find(func(m *Member) bool { return m.Name == c.Recovery.Survivor })
	switch {
	case c.Recovery.Served && s != nil && s.Forcing && s.Pod == Present:
		return do(Resume, s, "it has begun the cluster anew, and starts as always now")
	case c.Recovery.Served && s != nil && s.Forcing:
		return wait("the pod with which %s has begun anew is going", s.Name)
	case c.Recovery.Served:
		return nil
	}
	if a := c.fence(s); a != nil {
		return a
	}
	switch {
	case s == nil || s.Claim != Present:
		return wait("the claim of %s is gone, with which the cluster was to begin anew; see status.recovery",
			c.Recovery.Survivor)
	case s.Pod == Absent:
		a := do(ForceNewCluster, s, "it begins the cluster anew, alone")
		a.Version = c.versionOf(s)
		return a
	case s.Alone:
		return do(Resume, s, "it has begun the cluster anew, and starts as always now")
	}
	return wait("%s begins the cluster anew, alone", s.Name)
}

// fence ends all members but a survivor that begins anew, and returns nil when their pods are gone. A claim with data
// has a word, so that it is not taken for a fresh one later.
func (c *Cluster) fence(survivor *Member) *Action {
	if m := c.find(func(m *Member) bool { return m.Known && m.Word == Untold && m.Claim == Present }); m != nil {
		return c.word(TellRestart, m, "its word is lost, and it has started once")
	}
	old := func(m *Member) bool { return m.Pod != Absent && !(m == survivor && m.Forcing) }
	if m := c.find(func(m *Member) bool { return old(m) && m.Pod == Present }); m != nil {
		return do(DeletePod, m, "nobody may run while "+c.Recovery.Survivor+" begins the cluster anew")
	}
	if m := c.find(old); m != nil {
		return wait("the pod of %s must be gone before %s begins the cluster anew; if its node is gone for good, "+
			"delete the Node", m.Name, c.Recovery.Survivor)
	}
	return nil
}

// Recovered reports whether a recovery is over: the new cluster serves its list, and nothing of the old one is left
// but the survivor.
func (c *Cluster) Recovered() bool {
	return c.Recovery != nil && c.Recovery.Served && c.Listed && c.find(func(m *Member) bool {
		return m.ID == 0 && !m.prepared(c)
	}) == nil
}
