package reconciletest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// endings are how APIs call that an object has come to its end: as the type of a condition, a phase or a state.
var endings = []string{"complete", "completed", "succeeded", "failed", "finished"}

// isDone reports whether an object says of itself that it has come to its end, as a Job that is complete, so that
// nobody makes anew what belonged to it.
func isDone(o *unstructured.Unstructured) bool {
	ended := func(text string) bool { return slices.Contains(endings, strings.ToLower(text)) }
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		kind, _ := condition["type"].(string)
		if ended(kind) && condition["status"] == string(metav1.ConditionTrue) {
			return true
		}
	}
	for _, field := range []string{"phase", "state"} {
		if text, _, _ := unstructured.NestedString(o.Object, "status", field); ended(text) {
			return true
		}
	}
	return false
}

// isOwnerDone reports whether an object belongs to one that is done.
func (r *stepRun) isOwnerDone(res *Resource, id identity) bool {
	o := r.server.lookup(res, id.key())
	if o == nil || metav1.GetControllerOfNoCopy(o) == nil {
		return false
	}
	owner, _ := r.server.collector.owner(item{o, res}, *metav1.GetControllerOfNoCopy(o))
	return owner.object != nil && isDone(treeOf(owner.object))
}
