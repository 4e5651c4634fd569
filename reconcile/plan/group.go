package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// group are the changes of a wave that are the same but for their objects. Text and pages say them once.
type group struct {
	Change  // of the first one, with the pods of all
	Objects []string
}

// grouped returns changes in groups, in the order of the first of each.
func grouped(all []Change) (groups []group, err error) {
	at := map[string]int{}
	for _, c := range all {
		key, err := c.likeness()
		if err != nil {
			return nil, err
		}
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, group{Change: c})
		}
		groups[i].add(c)
	}
	return groups, nil
}

// groupedInShort returns changes in groups of which nothing is said but what is done to which objects.
func groupedInShort(all []Change) ([]group, error) {
	var short []Change
	for _, c := range all {
		c.Wave, c.Writes, c.Fields, c.Waits = 0, 0, nil, nil
		short = append(short, c)
	}
	return grouped(short)
}

// likeness is what two changes of a group have in common.
func (c Change) likeness() (string, error) {
	c = c.withoutInvented()
	c.Object.Namespace, c.Object.Name, c.NameInvented, c.Invented = "", "", false, nil
	if c.Restarts != nil {
		c.Restarts.Pods = 0
	}
	data, err := json.Marshal(c)
	return string(data), err
}

func (g *group) add(c Change) {
	name := strings.TrimPrefix(c.Object.String(), c.Object.Kind+" ")
	if c.NameInvented {
		name += " " + inventedName
	}
	g.Objects = append(g.Objects, name)
	if len(g.Objects) == 1 {
		return
	}
	g.Change = g.withoutInvented()
	if g.Restarts != nil {
		g.Restarts.Pods += c.Restarts.Pods
	}
}

// inventedName stands behind a name that the fork has drawn, and invented behind such a value. Of several objects that
// is what stands for the values of all.
const (
	inventedName = "(name invented)"
	invented     = "(invented)"
	// inventedNote explains both.
	inventedNote = "Invented: the fork has drawn the value, and the cluster will draw another one."
)

// mostNames is how many objects a group names in its title.
const mostNames = 3

// Title names the objects of a group, or says how many there are.
func (g group) Title() string {
	if len(g.Objects) > mostNames {
		return fmt.Sprintf("%s, %d objects", g.Object.Kind, len(g.Objects))
	}
	return g.Object.Kind + " " + strings.Join(g.Objects, ", ")
}

// Names are the objects of a group whose title does not name them.
func (g group) Names() []string {
	if len(g.Objects) > mostNames {
		return g.Objects
	}
	return nil
}

// reason is why the cluster may do otherwise, with all resources of which that is so.
type reason struct {
	Resources []string
	Why       string
	Times     int
}

// reasons returns what is approximate, each reason once.
func (r *Report) reasons() (all []reason) {
	at := map[string]int{}
	for _, a := range r.Approximate {
		i, known := at[a.Why]
		if !known {
			i = len(all)
			at[a.Why] = i
			all = append(all, reason{Why: a.Why})
		}
		all[i].Resources = append(all[i].Resources, a.resource())
		all[i].Times += a.Times
	}
	return all
}

func (a Approximation) resource() string {
	if a.Group == "" {
		return a.Resource
	}
	return a.Resource + "." + a.Group
}

// hasInvented reports whether the report shows a value that the fork has drawn.
func (r *Report) hasInvented() bool {
	named := func(c Change) bool { return c.NameInvented }
	return slices.ContainsFunc(r.Changes, func(c Change) bool { return len(c.Invented) > 0 }) ||
		slices.ContainsFunc(r.Anyway, named) || slices.ContainsFunc(r.NoLonger, named)
}
