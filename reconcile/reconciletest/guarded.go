package reconciletest

import (
	"fmt"
	"slices"
)

// guards are about objects that a program puts a finalizer on, so that it can do something when they are deleted, such
// as to delete what belongs to them. A user may delete one before the program has seen it. Then nobody can know what
// the program would have done, and what others have made for that object may stay.
type guards struct {
	guarded map[string]bool // objects that had a finalizer of a program's when a user deleted them
	early   bool            // a user has deleted one of those of the run without disturbances before it had one
}

// noteDeletion takes an event in which a user has deleted an object.
func (r *stepRun) noteDeletion(e event) {
	of := fmt.Sprintf("%s %s/%s", e.resource, e.old.GetNamespace(), e.old.GetName())
	has := slices.ContainsFunc(e.old.GetFinalizers(), func(f string) bool { return r.finalizers[f] })
	switch {
	case has:
		r.guarded[of] = true
	case r.ideal != nil && r.ideal.guarded[of]:
		r.early = true
	}
}

// unlikeIdeal returns in what an end differs from that of the run without disturbances, as far as something has to be
// blamed for it.
func (r verdict) unlikeIdeal(end snapshot) []difference {
	all := r.varies.between(end, r.ideal.last, r.schedule)
	if r.shortcut != nil && len(all) > 0 {
		all = r.asInShortcut(all, end)
	}
	if !r.early || !slices.ContainsFunc(all, difference.onlyInB) {
		return all
	}
	// Others have made nothing outside.
	uids, keys, others := map[string]bool{}, r.keys(), map[string]bool{}
	for _, id := range r.made {
		uids[id.uid] = true
	}
	for _, h := range holds(r.server) {
		if !uids[string(h.object.GetUID())] {
			others[keys[h.String()]] = true
		}
	}
	return slices.DeleteFunc(all, func(d difference) bool { return d.onlyInB() && others[d.object] })
}
