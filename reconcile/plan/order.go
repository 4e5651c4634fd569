package plan

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// placed is a change with what it is sorted by, beside what it says.
type placed struct {
	Change
	name string // without what the fork has drawn
	born int    // which one of its name the object is
	rank int    // among the changes of the object
	is   string // for objects whose names are drawn: all that their first change says, but for what is drawn
}

// ordered sorts the changes of each wave by kind, namespace and name, and those of one object as they can follow each
// other. A program that writes several objects at once does so in another order each time, and its report is the same.
func ordered(all []*recorded, changes []Change) ([]Change, error) {
	born, is := map[types.UID]int{}, map[types.UID]string{}
	var sorted []placed
	for i, c := range changes {
		uid := uidOf(all[i])
		if _, known := born[uid]; !known {
			born[uid] = i
			if c.NameInvented {
				first, err := c.identity()
				if err != nil {
					return nil, err
				}
				is[uid] = first
			}
		}
		sorted = append(sorted, placed{Change: c, name: c.withoutInvented().Object.Name, born: born[uid],
			rank: all[i].rank(), is: is[uid]})
	}
	slices.SortStableFunc(sorted, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.Wave, b.Wave), cmp.Compare(a.Object.Kind, b.Object.Kind),
			cmp.Compare(a.Object.APIVersion, b.Object.APIVersion), cmp.Compare(a.Object.Namespace, b.Object.Namespace),
			cmp.Compare(a.name, b.name), cmp.Compare(a.is, b.is), cmp.Compare(a.born, b.born),
			cmp.Compare(a.rank, b.rank))
	})
	for i, p := range sorted {
		changes[i] = p.Change
	}
	return changes, nil
}

func uidOf(one *recorded) types.UID {
	if one.now != nil {
		return one.now.GetUID()
	}
	return one.old.GetUID()
}

// rank orders the changes of one object in a wave: what is written, its status, its deletion, and the same of what
// waits for its finalizers.
func (one *recorded) rank() (rank int) {
	if one.old != nil && one.old.GetDeletionTimestamp() != nil {
		rank = 4
	}
	switch {
	case one.verb == "delete" || one.verb == "remove":
		return rank + 2
	case one.status:
		return rank + 1
	}
	return rank
}
