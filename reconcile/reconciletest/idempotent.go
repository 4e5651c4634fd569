package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// This file is about a program that starts anew when everything is done: it has nothing to write.

// rest lets it do so. Settled has to return nil again if it did before.
func (r verdict) rest(settled bool) {
	if r.failure != nil {
		return
	}
	before, failed := len(r.trace), maps.Clone(r.failed)
	r.crash(disturbance{}, true)
	r.settle()
	r.failed = failed // what only a restart repeats is lost
	if r.failure != nil {
		return
	}
	wrong := &breach{rule: ruleIdempotent, detail: []string{"everything was settled; a restart has written:"}}
	for _, e := range r.trace[before:] {
		if e.weight != wrote || r.varies.clocked[e.kind] || r.rewrites[e.kind] || r.remade(e) {
			continue
		}
		if fields, compared := r.rewritten(e); compared {
			if len(wrong.where) < mostNamed {
				r.name(e.at)
			}
			wrong.detail, wrong.where = append(wrong.detail, e.text+fields), append(wrong.where, e.kind)
			wrong.objects = append(wrong.objects, e.wrote...)
		}
	}
	if len(wrong.where) > 0 {
		slices.Sort(wrong.where)
		wrong.where = slices.Compact(wrong.where)
		if r.breaks(wrong); r.failure != nil {
			return
		}
	}
	if err := r.settled(); err != nil && settled {
		r.fail(ruleStays, fmt.Sprintf("after a restart: %v", err))
	}
}

// mostNamed is how many of the writes that a restart has made are shown in any case.
const mostNamed = 5

// mostFields is how many fields a finding names of a write.
const mostFields = 4

// rewritten returns which fields a write has changed of objects that were there and still are, and reports whether more
// is changed than the masks remove. A time is: a program that writes the time at each start writes as often as it
// starts.
func (r verdict) rewritten(e line) (text string, compared bool) {
	var fields []string
	compared = len(e.changes) == 0 // what is outside of the server
	for _, change := range e.changes {
		if change.old == nil || change.object == nil {
			compared = true
			continue
		}
		differ, masked := r.differ(change.old, change.object)
		fields, compared = append(fields, differ...), compared || !masked
	}
	if !compared || len(fields) == 0 {
		return "", compared
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	if more := len(fields) - mostFields; more > 0 {
		fields = append(fields[:mostFields], fmt.Sprintf("%d more", more))
	}
	return ", which changes " + strings.Join(fields, ", "), compared
}

// changed reports whether a request has changed something that counts: more than the masks remove.
func (r verdict) changed(g *gate) bool {
	if !g.wrote() || r.scenario.Mask == nil || len(g.changes) == 0 {
		return g.wrote()
	}
	return slices.ContainsFunc(g.changes, func(e event) bool {
		if e.old == nil || e.object == nil {
			return true
		}
		_, masked := r.differ(e.old, e.object)
		return !masked
	})
}

// differ returns the fields in which two states of an object differ, as a snapshot has them, and reports whether there
// is no difference but in what the masks remove.
func (r verdict) differ(before, after object) (fields []string, masked bool) {
	a, b := treeOf(before), treeOf(after)
	for _, u := range []*unstructured.Unstructured{a, b} {
		u.SetResourceVersion("")
		u.SetGeneration(0)
	}
	differed := !apiequality.Semantic.DeepEqual(a.Object, b.Object)
	r.scenario.mask(a)
	r.scenario.mask(b)
	masked = differed && apiequality.Semantic.DeepEqual(withoutManagers(a), withoutManagers(b))
	if len(a.Object) == 0 || len(b.Object) == 0 {
		return nil, masked
	}
	stripMetadata(a, false)
	stripMetadata(b, false)
	as := func(text string) string { return text }
	was, is := flattened(a.Object, before.GetGeneration(), as), flattened(b.Object, after.GetGeneration(), as)
	for _, lines := range [][2][]string{{was, is}, {is, was}} {
		for _, l := range lines[0] {
			if !slices.Contains(lines[1], l) {
				field, _, _ := strings.Cut(l, " = ")
				fields = append(fields, field)
			}
		}
	}
	return fields, masked
}

// withoutManagers returns the content of an object without the times of its field managers, which say when a field was
// written that may be masked, and without their order, which is that of the times.
func withoutManagers(u *unstructured.Unstructured) map[string]any {
	if len(u.Object) > 0 {
		managers := u.GetManagedFields()
		for i := range managers {
			managers[i].Time = nil
		}
		slices.SortFunc(managers, func(a, b metav1.ManagedFieldsEntry) int {
			return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Operation, b.Operation),
				cmp.Compare(a.Subresource, b.Subresource), cmp.Compare(a.APIVersion, b.APIVersion))
		})
		u.SetManagedFields(managers)
	}
	return u.Object
}
