package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a version of etcd. The zero value is none.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads a version such as 3.6.16; what follows a hyphen or a plus sign is ignored.
func ParseVersion(s string) (Version, error) {
	s, _, _ = strings.Cut(s, "-")
	s, _, _ = strings.Cut(s, "+")
	parts := strings.Split(s, ".")
	var n [3]int
	for i := range n {
		var err error
		if len(parts) == 3 {
			n[i], err = strconv.Atoi(parts[i])
		}
		if len(parts) != 3 || err != nil || n[i] < 0 {
			return Version{}, fmt.Errorf("version %q is not of the form 3.6.16", s)
		}
	}
	return Version{n[0], n[1], n[2]}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Less compares versions.
func (v Version) Less(w Version) bool {
	if v.Minor != w.Minor {
		return v.Minor < w.Minor
	}
	return v.Patch < w.Patch
}

// minor is the version without its patch, which is what etcd calls a cluster's version.
func (v Version) minor() Version { return Version{v.Major, v.Minor, 0} }

// changeVersion restarts the members one by one with the image of the wanted version, while all are healthy, and the
// leader last. It crosses one minor version: etcd supports no more, in either direction.
func changeVersion(c *Cluster) *Action {
	oldest, newest := c.versions()
	switch {
	case oldest == Version{}:
		return nil
	case c.Version == c.Failed:
		return &Action{Do: Refuse, Why: fmt.Sprintf("a member did not start with %s: ask for another version",
			c.Failed)}
	case c.Version.Minor > oldest.Minor+1:
		return &Action{Do: Refuse, Why: fmt.Sprintf("members run %s: ask for a version of %d.%d first", oldest,
			oldest.Major,
			oldest.Minor+1)}
	case c.Version.Minor < newest.Minor-1:
		return &Action{Do: Refuse, Why: fmt.Sprintf("members run %s: ask for a version of %d.%d first", newest,
			newest.Major,
			newest.Minor-1)}
	}
	if a := c.downgrade(oldest, newest); a != nil {
		return a
	}
	needs := func(m *Member) bool { return m.ID != 0 && m.Image != c.Version }
	set := func(m *Member) *Action {
		a := do(SetImage, m, fmt.Sprintf("%s is wanted", c.Version))
		a.Version = c.Version
		return a
	}
	for i := range c.Members {
		switch m := &c.Members[i]; {
		case m.ID == 0 || m.Healthy && m.Version == m.Image:
		case m.Healthy:
			return wait("%s still runs %s", m.Name, m.Version)
		case m.Pod == Present && needs(m):
			return set(m) // it is away already
		case c.find(needs) != nil:
			return wait("%s is not healthy with %s; versions change while all members are", m.Name, m.Image)
		}
	}
	return oneByOne(c, needs, set)
}

// rollBack gives a member the version of the others again, if it is the first that has another one and does not start.
// If it is not the version's fault, the member is lost then.
func rollBack(c *Cluster) *Action {
	m := c.find(func(m *Member) bool { return m.ID != 0 && m.unproven(c) && m.failing(c) })
	if m == nil {
		return nil
	}
	a := do(RollBack, m, fmt.Sprintf("it does not start with %s", m.Image))
	a.Version, _ = c.versions()
	return a
}

// makeWay cancels a downgrade while a member is missing or joins: etcd takes no new member while one is under way.
// changeVersion asks for it again.
func makeWay(c *Cluster) *Action {
	under := c.find(func(m *Member) bool { return m.DowngradeTo != Version{} })
	joining := c.find(func(m *Member) bool { return m.ID != 0 && !m.Started })
	if under == nil || joining == nil && c.Voters() >= c.Size {
		return nil
	}
	return do(CancelDowngrade, under, "no member can join while it is under way")
}

// downgrade asks etcd to prepare its disks for the minor version before, and waits until all have done so. An older
// etcd could not read them otherwise. Once a member runs that version, etcd keeps to it without being asked.
func (c *Cluster) downgrade(oldest, newest Version) *Action {
	under := c.find(func(m *Member) bool { return m.DowngradeTo != Version{} })
	switch {
	case under != nil && under.DowngradeTo.Minor != c.Version.Minor:
		return do(CancelDowngrade, under, fmt.Sprintf("%s is wanted", c.Version))
	case c.Version.Minor >= newest.Minor:
		return nil
	case under == nil && oldest.Minor > c.Version.Minor:
		return &Action{Do: Downgrade, Version: c.Version.minor(), Why: fmt.Sprintf("%s is wanted", c.Version)}
	}
	if m := c.find(func(m *Member) bool {
		ready := m.Healthy && m.StorageVersion.Minor == c.Version.Minor
		return m.ID != 0 && m.Image.Minor > c.Version.Minor && !ready
	}); m != nil {
		return wait("%s is preparing its disk for %s", m.Name, c.Version.minor())
	}
	return nil
}

// versions returns the oldest and the newest version that a member runs.
func (c *Cluster) versions() (oldest, newest Version) {
	for _, m := range c.Members {
		if m.ID == 0 || m.Version == (Version{}) {
			continue
		}
		if oldest == (Version{}) || m.Version.Less(oldest) {
			oldest = m.Version
		}
		if newest.Less(m.Version) {
			newest = m.Version
		}
	}
	return oldest, newest
}
