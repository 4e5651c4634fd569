package plan

// replace lets a lost member leave. Its place is then empty, and grow fills it. A learner that is lost goes at once;
// of voters no other one may be away without need.
func replace(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.ID != 0 && m.Learner && (m.Name == "" || m.lost(c)) })
	if m == nil {
		m = c.find(func(m *Member) bool { return m.ID != 0 && m.lost(c) && c.Voters() > 1 })
	}
	if m == nil {
		return nil
	}
	return do(Remove, m, "it is lost; another one takes its place")
}

// clear deletes what a member has left behind that etcd no longer has in its list, and what was prepared for one that
// is not needed any more. A pod on a node that is gone stays for as long as the node object does: nothing waits for it.
func clear(c *Cluster) *Action {
	members := c.count(func(m *Member) bool { return m.ID != 0 && m.Claim == Present })
	for i := range c.Members {
		if m := &c.Members[i]; m.ID == 0 && (!m.prepared(c) || members >= c.Size) {
			if a := remains(m); a != nil {
				return a
			}
		}
	}
	return nil
}

// prepared reports whether the objects are those of a member that is yet to join.
func (m *Member) prepared(c *Cluster) bool {
	return m.ID == 0 && m.Claim == Present && m.Word == Untold && !m.lost(c)
}

// remains deletes the pod first, which stops the process, and the word last: a claim without a word is a fresh one. It
// returns nil if what is left is on its way.
func remains(m *Member) *Action {
	const why = "etcd does not have it as a member"
	switch {
	case m.Pod == Present:
		return do(DeletePod, m, why)
	case m.Claim == Present:
		return do(DeleteClaim, m, why)
	case m.Pod == Absent && m.Claim == Absent && m.Word != Untold:
		return do(DeleteWord, m, why)
	}
	return nil
}

// promote makes a voter of a learner. Whether it has caught up is for etcd to say, which refuses otherwise.
func promote(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.ID != 0 && m.Learner })
	switch {
	case m == nil:
		return nil
	case m.Claim != Present:
		return do(Remove, m, "its disk goes")
	case !m.Healthy:
		return wait("%s is starting", m.Name)
	case c.lasting() >= c.Size:
		return do(Remove, m, "there are enough members")
	}
	return do(Promote, m, "it has caught up")
}

// shrink removes first who is not healthy, then who loses its disk, and of the others the last one that does not lead.
func shrink(c *Cluster) *Action {
	if c.Voters() <= c.Size {
		return nil
	}
	var last *Member
	for i := range c.Members {
		m := &c.Members[i]
		if !m.voter() {
			continue
		}
		if !m.Healthy {
			last = m
			break
		}
		if last == nil || m.Claim != Present || !m.Leader && last.Claim == Present {
			last = m
		}
	}
	return do(Remove, last, "there are more members than the size")
}

// grow adds one member: first its disk and its pod, so that etcd expects only members that a node can run, and then its
// place in the list, where it learns before it votes. A claim that is deleted goes when its pod ends; so its member
// gets its successor while it still votes.
func grow(c *Cluster) *Action {
	if c.lasting() >= c.Size {
		return nil
	}
	m := c.find(func(m *Member) bool { return m.prepared(c) })
	switch {
	case m == nil:
		return &Action{Do: CreateClaim, Member: c.newName(), Why: "there are fewer members than the size"}
	case m.Pod != Present:
		return c.pod(m)
	case m.URL == "":
		return wait("%s has no address yet", m.Name)
	}
	a := do(AddLearner, m, "there are fewer members than the size")
	a.URL = m.URL
	return a
}
