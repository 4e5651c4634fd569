package reconciletest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// authors knows which of several programs has changed a field last, to tell when one undoes what another one has done.
// Nil: there is one program.
type authors struct {
	last  map[leaf]change
	turns map[leaf]int    // how often a program has undone the last change of another one
	kinds map[string]bool // what each program changes, but for what it undoes: without the names of objects
	// undone are the changes that have undone one of another program, and are in no kind.
	undone []undoing
}

// undoing is a change by a program of a kind of fields, in words.
type undoing struct {
	kind, text string
	at         []time.Duration // of both changes
}

// leaf is a field of an object; the object is an identity, since one made anew has no past.
type leaf struct {
	object identity
	path   string
}

// change is what a program has made of a field. A value is empty if there is none.
type change struct {
	program       string
	at            time.Duration // since the begin of the run
	before, after string
}

func newAuthors(sc *Scenario) *authors {
	if len(sc.Programs) < 2 {
		return nil
	}
	return &authors{last: make(map[leaf]change), turns: make(map[leaf]int), kinds: make(map[string]bool)}
}

// note takes what a request of a program has made of an object.
func (a *authors) note(g *gate, e event, at time.Duration) {
	if a == nil || e.old == nil || e.object == nil || g.lives() {
		return
	}
	before, after := leavesOf(e.old), leavesOf(e.object)
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if before[path] == after[path] {
			continue
		}
		f := leaf{identityOf(e.resource.Resource, e.object), path}
		now := change{g.process.Name, at, before[path], after[path]}
		kind := of(now.program, f.object.resource+" "+withoutNumbers(path))
		was, known := a.last[f]
		a.last[f] = now
		if !known || was.program == now.program || was.after != now.before || was.before != now.after {
			a.kinds[kind] = true
			continue
		}
		a.turns[f]++
		a.undone = append(a.undone, undoing{kind, fmt.Sprintf("%s has undone at %.3fs what %s did at %.3fs: "+
			"%s of %s %s is %s again, and was %s", g, at.Seconds(), was.program, was.at.Seconds(), path,
			f.object.resource, f.object.key(), cmp.Or(now.after, "nothing"), cmp.Or(now.before, "nothing")),
			[]time.Duration{was.at, at}})
	}
}

// changes returns what each program has changed, and what it has undone. Of the ideal run that is what programs agree
// on: one removes what another one has asked by, or they move a phase to and fro.
func (a *authors) changes() map[string]bool {
	if a == nil {
		return nil
	}
	all := maps.Clone(a.kinds)
	for _, u := range a.undone {
		all[u.kind] = true
	}
	return all
}

// wiped returns the first change by which a program has given a field back the value that it had before another one has
// changed it, if it never changes such a field otherwise in this run, nor at all in the ideal one. It says nothing
// without an ideal.
func (a *authors) wiped(ideal *ending) (undoing, bool) {
	if a == nil || ideal == nil {
		return undoing{}, false
	}
	i := slices.IndexFunc(a.undone, func(u undoing) bool { return !a.kinds[u.kind] && !ideal.changes[u.kind] })
	if i < 0 {
		return undoing{}, false
	}
	return a.undone[i], true
}

// leastTurns is how often programs have undone each other's changes of a field when it is called a fight.
const leastTurns = 3

// fights says which programs overwrite each other, field by field.
func (a *authors) fights() (all []string) {
	if a == nil {
		return nil
	}
	for f, n := range a.turns {
		if n < leastTurns {
			continue
		}
		last := a.last[f]
		all = append(all, fmt.Sprintf("%s of %s %s is changed in turn, %d times by now: %s makes it %s, another "+
			"program %s", f.path, f.object.resource, f.object.key(), n, last.program, cmp.Or(last.after, "nothing"),
			cmp.Or(last.before, "nothing")))
	}
	slices.Sort(all)
	return all
}

// leavesOf returns the values of an object's fields by their paths, but for what the server makes. Elements of lists
// are named by what tells them apart; a list of which nothing does is one value.
func leavesOf(o object) map[string]string {
	tree := treeOf(o).Object
	if metadata, ok := tree["metadata"].(map[string]any); ok {
		for _, made := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			delete(metadata, made)
		}
	}
	leaves := make(map[string]string)
	addLeaves("", tree, leaves)
	return leaves
}

func addLeaves(path string, v any, to map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			addLeaves(path+"."+key, value, to)
		}
		return
	case []any:
		if names := elementsOf(v); names != nil {
			for i, value := range v {
				addLeaves(fmt.Sprintf("%s[%s]", path, names[i]), value, to)
			}
			return
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the server has read it from JSON
	}
	to[path] = string(text)
}

// elementsOf returns what tells the elements of a list apart: their values, or a field of theirs; nil: nothing does.
func elementsOf(list []any) []string {
	for _, key := range []string{"", "type", "name", "uid", "key"} {
		names, seen := make([]string, len(list)), map[string]bool{}
		for i, element := range list {
			value, tree := element, false
			if fields, ok := element.(map[string]any); ok {
				value, tree = fields[key], true
			}
			if text, ok := value.(string); ok && tree == (key != "") && text != "" {
				names[i], seen[text] = text, true
			}
		}
		if len(seen) == len(list) {
			return names
		}
	}
	return nil
}
