package plan

import "fmt"

// A rule returns what has to be done, or nil if it has nothing to say.
type rule func(*Cluster) *Action

// rules are asked in this order: what exists is mended before anything new is begun.
var rules = []rule{
	form,          // the first member of all
	recoverQuorum, // from a quorum that is lost for good, if the spec says so
	returnPods,    // a member that has a disk has a pod
	meetAgain,     // members that do not accept each other any more
	unlisted,      // no quorum: everything below needs one
	withdraw,      // permissions to start on an empty disk
	tell,          // members that etcd expects may start
	rollBack,      // a version that a member does not start with
	replace,       // lost members leave
	clear,         // what they have left behind
	readdress,     // members that have moved
	renewTrust,    // one member at a time
	makeRoom,      // the alarm NOSPACE
	makeWay,       // downgrades, for members that join
	promote,       // learners become voters, once they have caught up
	shrink,        // to the size
	grow,          // the same
	changeVersion, // one member at a time
	defragment,    // one member at a time
	spare,         // those that renewTrust has left
}

// Next returns the one action that comes next, or why there is none.
func Next(c Cluster) Action {
	if c.Paused {
		return Action{Do: Pause, Why: "the spec says so"}
	}
	for _, r := range rules {
		a := r(&c)
		if a == nil {
			continue
		}
		if why := costsQuorum(&c, a); why != "" {
			return Action{Do: Wait, Why: fmt.Sprintf("%s; %s", a, why)}
		}
		return *a
	}
	return Action{Do: Rest, Why: "everything is as it should be"}
}

// form starts the first member, alone. The others join it one by one, as they do later: there is one way to grow, and
// only one member ever begins a cluster. If it cannot, nothing is lost yet, and it is made anew.
func form(c *Cluster) *Action {
	if c.Formed {
		return nil
	}
	if len(c.Members) == 0 {
		return &Action{Do: CreateClaim, Member: c.newName(), Why: "the first member"}
	}
	m := &c.Members[0]
	switch {
	case m.Word != Untold && m.lost(c), m.Claim != Present:
		if a := remains(m); a != nil {
			return a
		}
		return wait("what is left of %s is going", m.Name)
	case m.Pod != Present:
		return c.pod(m)
	case m.URL == "":
		return wait("%s has no address yet", m.Name)
	case m.Word == Untold:
		return c.word(Form, m, "the first member begins the cluster")
	}
	return wait("%s is starting", m.Name)
}

// returnPods needs no quorum: a cluster whose pods are all gone gets it back by this.
func returnPods(c *Cluster) *Action {
	m := c.find(func(m *Member) bool {
		// Without the list nobody knows who is a member; then whoever has been told to start is.
		// After a recovery the members of the old cluster have words, and must not start again.
		return m.Claim == Present && m.Pod == Absent && m.Word != Untold && (m.ID != 0 || !c.Listed) &&
			(c.Recovery == nil || m.Known)
	})
	if m == nil {
		return nil
	}
	return c.pod(m)
}

func (c *Cluster) pod(m *Member) *Action {
	if m.Pod == Leaving {
		return wait("the old pod of %s is going", m.Name)
	}
	a := do(CreatePod, m, "it has a disk and no pod")
	a.Version = c.versionOf(m)
	return a
}

// versionOf is the version that a member has: the one that it was told, and else the one that the cluster runs. It is
// not the one that is wanted: changeVersion leads there in the order that etcd needs.
func (c *Cluster) versionOf(m *Member) Version {
	oldest, _ := c.versions()
	for _, v := range []Version{m.Told, m.Image, oldest, c.Last} {
		if v != (Version{}) {
			return v
		}
	}
	return c.Version
}

// word tells a member something.
func (c *Cluster) word(verb Verb, m *Member, why string) *Action {
	a := do(verb, m, why)
	a.URL, a.Version = m.URL, c.versionOf(m)
	return a
}

// meetAgain is for members that trust no CA that the others trust, as after all certificates have ended. Nobody accepts
// them, so their quorum is lost already, and they start again without regard to it.
func meetAgain(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.distrusts() && m.Trust == TrustsNone && !m.Healthy })
	if m == nil {
		return nil
	}
	return do(RenewTrust, m, "it trusts no CA that the others trust")
}

// unlisted returns a lost word: without it a member whose pod has to start again waits for ever, and a quorum may need
// it.
func unlisted(c *Cluster) *Action {
	if c.Listed {
		return nil
	}
	if m := c.find(func(m *Member) bool { return m.Known && m.Word == Untold && m.Claim == Present }); m != nil {
		return c.word(TellRestart, m, "its word is lost, and it has started once")
	}
	return wait("no quorum answers; nothing is changed until one does")
}

// withdraw comes before promote: a member that votes cannot start on an empty disk.
func withdraw(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.Started && m.Word != Restart && m.Claim == Present })
	if m == nil {
		return nil
	}
	return c.word(TellRestart, m, "it has started once, and may not do so again with an empty disk")
}

func tell(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.ID != 0 && !m.Started && m.Word == Untold && m.Claim == Present })
	if m == nil {
		return nil
	}
	return c.word(TellBegin, m, "etcd expects it")
}

// readdress is for members that are known by the address of their pod.
func readdress(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.ID != 0 && m.URL != "" && m.URL != m.ListedURL })
	if m == nil {
		return nil
	}
	a := do(Readdress, m, "the others look for it at "+m.ListedURL)
	a.URL = m.URL
	return a
}

// renewTrust restarts members that do not trust the CAs that they should: etcd reads them only when it starts. One that
// is away already goes first. It holds up no other rule while the quorum can spare nobody: another one may mend that.
func renewTrust(c *Cluster) *Action {
	renew := func(m *Member) *Action { return do(RenewTrust, m, "it starts with the CAs that the cluster has now") }
	a := (*Action)(nil)
	if m := c.find(func(m *Member) bool { return m.ID != 0 && !m.Healthy && m.distrusts() }); m != nil {
		a = renew(m)
	} else {
		a = oneByOne(c, (*Member).distrusts, renew)
	}
	if a == nil || costsQuorum(c, a) != "" {
		return nil
	}
	return a
}

// spare says for whom renewTrust waits.
func spare(c *Cluster) *Action {
	if m := c.find(func(m *Member) bool { return m.ID != 0 && m.distrusts() }); m != nil {
		return wait("%s trusts other CAs, and starts again when the quorum can spare it", m.Name)
	}
	return nil
}

// makeRoom ends the alarm NOSPACE: first the old revisions go, then the files shrink, and only then are writes allowed.
// Etcd counts the pages that a compaction has freed when it writes next, which it does not while writes are refused. So
// the member that compacts also defragments: it then knows what is in use, and all members have the same data.
func makeRoom(c *Cluster) *Action {
	alarmed := c.find(func(m *Member) bool { return m.voter() && m.NoSpace })
	switch {
	case alarmed == nil:
		return nil
	case c.Revision > c.Compacted:
		return do(Compact, alarmed, "the database is full: NOSPACE")
	}
	used := alarmed.InUse
	for _, m := range c.Members {
		if m.voter() && m.Healthy {
			used = min(used, m.InUse)
		}
	}
	if m := c.find(func(m *Member) bool { return m.ID != 0 && m.DBSize > used+used/4+1<<20 }); m != nil {
		return do(Defragment, m, "the database is full: NOSPACE")
	}
	if c.find(func(m *Member) bool { return m.ID != 0 && m.DBSize > c.Quota/10*9 }) != nil {
		return wait("the database is full: NOSPACE; delete keys or raise quotaBytes")
	}
	return do(Disarm, alarmed, "there is room again")
}

// defragment gives back what is free in a file, once it is half of it and worth the pause. The leader comes last, and
// hands over first: writes wait for a leader that defragments.
func defragment(c *Cluster) *Action {
	return oneByOne(c, func(m *Member) bool { return m.DBSize > 2*m.InUse && m.DBSize-m.InUse > 64<<20 },
		func(m *Member) *Action { return do(Defragment, m, "more than half of its file is free") })
}

// oneByOne finds a member that needs something that interrupts it: followers first, and the leader when it has handed
// over.
func oneByOne(c *Cluster, needs func(*Member) bool, act func(*Member) *Action) *Action {
	if m := c.find(func(m *Member) bool { return m.ID != 0 && !m.Leader && needs(m) }); m != nil {
		return act(m)
	}
	leader := c.find(func(m *Member) bool { return m.Leader && needs(m) })
	if leader == nil {
		return nil
	}
	if heir := c.heir(leader); heir != nil {
		return do(MoveLeader, heir, "leader "+leader.Name+" is next")
	}
	return act(leader)
}

// heir is who should lead in place of a member; nil: there is nobody.
func (c *Cluster) heir(of *Member) *Member {
	return c.find(func(m *Member) bool { return m != of && m.voter() && m.stays() })
}
