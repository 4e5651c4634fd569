package reconciletest

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// endings are how APIs call that an object has come to its end: as the type of a condition, or the value of isOwnPhase.
// What has failed is not among them, but for a Job, as many programs try that again.
var endings = []string{"complete", "completed", "succeeded", "finished", "done", "ended", "expired"}

// endPhases are more of them, as values of isOwnPhase. A condition of such a type may only say that the program has
// seen the object as it is now, which does not come to an end with that.
var endPhases = []string{"processed", "executed"}

// endTimes are fields of a status that an API sets when an object has come to its end, well or not. One in the future
// says when that will be.
var endTimes = []string{"completionTime", "completionTimestamp", "endTime", "finishTime", "finishedAt",
	"terminationTime"}

// isDone reports whether an object says of itself that it has come to its end, as a Job that is complete, so that
// nobody makes anew what belonged to it.
func isDone(i item) bool {
	o := treeOf(i.object)
	isJob := i.resource.Group == "batch" && i.resource.Resource == "jobs"
	ended := func(text string) bool {
		text = strings.ToLower(text)
		return slices.Contains(endings, text) || isJob && text == "failed"
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		kind, _ := condition["type"].(string)
		if ended(kind) && condition["status"] == string(metav1.ConditionTrue) {
			return true
		}
	}
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	for name, value := range status {
		text, _ := value.(string)
		phase := ended(text) || slices.Contains(endPhases, strings.ToLower(text))
		if phase && isOwnPhase(name, o.GetKind()) || slices.Contains(endTimes, name) && isOver(text) {
			return true
		}
	}
	return false
}

// isOver reports whether a text is a time that has come.
func isOver(text string) bool {
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && !at.After(time.Now())
}

// isOwnPhase reports whether a field of a status says how far the object itself has come: phase, state and status, and
// jobStatus of a RayJob, but not syncStatus.
func isOwnPhase(name, kind string) bool {
	for _, word := range []string{"phase", "state", "status"} {
		of, ok := strings.CutSuffix(strings.ToLower(name), word)
		if ok && strings.HasSuffix(strings.ToLower(kind), of) {
			return true
		}
	}
	return false
}

// controller returns the object that controls another one, if it is there.
func (r *stepRun) controller(res *Resource, id identity) (owner item) {
	o := r.server.lookup(res, id.key())
	if o == nil || metav1.GetControllerOfNoCopy(o) == nil {
		return item{}
	}
	owner, _ = r.server.collector.owner(item{o, res}, *metav1.GetControllerOfNoCopy(o))
	return owner
}

// needless is what a third party has deleted of an object that was done: nobody has to make it anew.
type needless struct {
	owner    item
	resource schema.GroupResource
	key      types.NamespacedName
}

// outlived reports whether a third party has deleted what belonged to objects that were done, and still are: then the
// end of the run says nothing.
func (r verdict) outlived() bool {
	for _, gone := range r.outliving {
		now := r.server.lookup(gone.owner.resource, keyOf(gone.owner.object))
		if now == nil || now.GetUID() != gone.owner.object.GetUID() || !isDone(item{now, gone.owner.resource}) {
			return false
		}
	}
	return len(r.outliving) > 0
}

// inert are resources whose objects do nothing by themselves.
var inert = []schema.GroupResource{corev1.Resource("configmaps"), corev1.Resource("persistentvolumeclaims"),
	corev1.Resource("secrets"), corev1.Resource("serviceaccounts"), corev1.Resource("services"),
	rbacv1.Resource("roles"), rbacv1.Resource("rolebindings")}

// remade reports whether a write of a restart only makes anew what belonged to something that is done, and does nothing
// by itself: who does not watch such an account sees only then that it is gone. A Job would run once more.
func (r verdict) remade(e line) bool {
	return len(e.changes) > 0 && r.outlived() && !slices.ContainsFunc(e.changes, func(c event) bool {
		return c.old != nil || !slices.Contains(inert, c.resource) ||
			!slices.ContainsFunc(r.outliving, func(gone needless) bool {
				return gone.resource == c.resource && gone.key == keyOf(c.object)
			})
	})
}
