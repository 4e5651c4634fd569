package reconciletest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// remake deletes what the step has applied, and makes it anew: when everything has settled, or at once, while the
// programs are down. What users have in a namespace goes with it, and comes again as well.
func (r *stepRun) remake(d disturbance) {
	step := r.scenario.Steps[r.n-1]
	if !slices.ContainsFunc(step.documents, r.there) {
		return
	}
	r.disturb(d)
	if d.what == namesakeNow {
		r.crash(d, false)
	}
	before, inside := r.server.Version(), r.inside(step)
	for _, document := range step.documents {
		r.remove(document)
	}
	r.noteDeleted(before)
	if d.what == namesake {
		r.settle()
	}
	r.do()
	for _, document := range inside {
		r.again(document)
	}
	for _, document := range step.documents {
		o := r.going(document)
		_, isPod := o.(*corev1.Pod) // which its kubelet has not ended
		kept := r.othersKeep(o) || isUsed(r.server, o) || isPod && len(o.GetFinalizers()) == 0
		r.void = r.void || r.failure == nil && kept
	}
	r.startDown()
	r.settle()
}

// isUsed reports whether something that users have applied names an object that is being deleted, as an address names
// its pool: a program may keep the pool with its finalizer until the address has gone.
func isUsed(s *Server, o object) bool {
	return o != nil && slices.ContainsFunc(holds(s), func(h kept) bool {
		return h.object.GetUID() != o.GetUID() && h.object.GetDeletionTimestamp() == nil && isApplied(h.object) &&
			names(h.object.Object, o.GetName())
	})
}

// names reports whether a field has a name, below the metadata of an object: one that is called name, or ends in Name,
// or Ref.
func names(tree any, name string) bool {
	switch tree := tree.(type) {
	case map[string]any:
		for field, value := range tree {
			text, isText := value.(string)
			isName := field == "name" || strings.HasSuffix(field, "Name") || strings.HasSuffix(field, "Ref")
			if field != "metadata" && (isText && isName && text == name || names(value, name)) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(tree, func(element any) bool { return names(element, name) })
	}
	return false
}

// inside returns the manifests of earlier steps, in their order, of what users have in the namespaces that a step
// applies, but for what the step applies itself.
func (r *stepRun) inside(step Step) (documents []string) {
	own, within := map[identity]bool{}, map[string]bool{}
	for _, document := range step.documents {
		if res, o, err := parseManifest(r.server, document); err == nil {
			own[identityOf(res.String(), o)] = true
			within[o.GetName()] = within[o.GetName()] || res.GroupVersionResource == namespaces
		}
	}
	for _, earlier := range r.scenario.Steps[:r.n-1] {
		for _, document := range earlier.documents {
			res, o, err := parseManifest(r.server, document)
			if err != nil || res.ClusterScoped || !within[o.GetNamespace()] || own[identityOf(res.String(), o)] {
				continue
			}
			if there := r.server.lookup(res, keyOf(o)); there != nil && isApplied(there) {
				documents = append(documents, document)
			}
		}
	}
	return documents
}

// again applies a manifest that the user has applied before.
func (r *stepRun) again(document string) {
	if r.failure != nil {
		return
	}
	what := "apply " + namesOf([]string{document})
	r.note(hurt, "the user does so again: %s", what)
	if err := r.insist(func() error { return applyDocument(r.ctx, r.server, document) }); err != nil {
		r.fail(ruleSteps, fmt.Sprintf("%s: %v", what, err))
	}
}

// isApplied reports whether a user has applied a manifest of an object since it was made, or has made it so.
func isApplied(o object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == userManager
	})
}
