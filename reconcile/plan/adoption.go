package plan

import (
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/world"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// adoptions follow the pods of workloads that are deleted without them: who takes them over, and how many there are,
// which the status of a new workload does not say before a controller has seen it.
type adoptions struct {
	left  []*leftPods
	made  []*recorded // the workloads that the program has made and not deleted, as they are now
	known map[types.UID]tally
}

// leftPods are what a workload has left.
type leftPods struct {
	resource schema.GroupResource
	workload reconciletest.Object
	pods     int
}

// tally is how many pods a workload has after a change, as long as its status says the same as it did then.
type tally struct{ status, pods int }

// compared returns the two states whose difference says what a change does to pods: of the object itself, or of a
// workload that leaves its pods and the one that takes them over, whichever comes first. Nil: there is none.
func (a *adoptions) compared(one *recorded) (was, now reconciletest.Object) {
	switch {
	case one.verb == "create":
		return a.takeOver(one), one.now
	case one.verb == "delete" && !one.orphans:
		return nil, nil
	case one.orphans:
		left := &leftPods{one.resource.GroupResource(), one.old, a.podsOf(one.old)}
		if left.pods < 0 {
			return nil, nil
		}
		a.left = append(a.left, left)
		if at := slices.IndexFunc(a.made, func(m *recorded) bool { return left.isFor(m) }); at >= 0 {
			return a.takeOver(a.made[at]), a.made[at].now
		}
		return nil, nil
	}
	return a.counted(one.old), one.now
}

// takeOver gives a workload all pods that are left for it. It returns a workload that had them, for what becomes of
// them: those of its own template stay if there are others, and only these are counted then.
func (a *adoptions) takeOver(by *recorded) (was reconciletest.Object) {
	all, changed := max(0, a.podsOf(by.now)), 0
	var same, other reconciletest.Object
	for _, l := range a.left {
		if !l.isFor(by) {
			continue
		}
		if all += l.pods; makesSamePods(l.workload, by.now) {
			same = l.workload
			continue
		}
		other = l.workload
		changed += l.pods
	}
	if same == nil && other == nil {
		return nil
	}
	a.left = slices.DeleteFunc(a.left, func(l *leftPods) bool { return l.isFor(by) })
	a.known[by.now.GetUID()] = tally{podsIn(by.now), min(all, most(by.now))}
	if other != nil {
		return withPods(other, changed)
	}
	return withPods(same, all)
}

// isFor reports whether a workload takes the pods over.
func (l *leftPods) isFor(by *recorded) bool {
	_, isSet := by.now.(*appsv1.StatefulSet)
	return l.resource == by.resource.GroupResource() && adopts(by.now, l.workload) &&
		l.workload.GetUID() != by.now.GetUID() && l.workload.GetNamespace() == by.now.GetNamespace() &&
		(!isSet || l.workload.GetName() == by.now.GetName())
}

// after notes what a change has left. A pod that ends is nobody's to take over, unless its ReplicaSet, which was left
// with it, makes another one.
func (a *adoptions) after(one *recorded) {
	switch o := one.old.(type) {
	case *corev1.Pod:
		if one.verb == "delete" && o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
			a.end(o, 1)
		}
	case *appsv1.ReplicaSet:
		if one.verb == "delete" && !one.orphans {
			a.end(o, a.podsOf(o))
		}
	}
	isIt := func(m *recorded) bool { return m.now.GetUID() == uidOf(one) }
	switch {
	case podsIn(one.now) < 0 || one.status:
	case one.verb == "create":
		a.made = append(a.made, one)
	case one.verb == "update" && slices.ContainsFunc(a.made, isIt):
		a.made[slices.IndexFunc(a.made, isIt)] = one
	}
	if one.verb == "delete" || one.verb == "remove" {
		a.made = slices.DeleteFunc(a.made, isIt)
	} else if pods := max(a.podsOf(one.old), a.podsOf(one.now)); pods >= 0 && !one.status {
		a.known[uidOf(one)] = tally{podsIn(one.now), min(pods, most(one.now))}
	}
}

// end takes pods off those that are left, which o is or has.
func (a *adoptions) end(o reconciletest.Object, n int) {
	_, isPod := o.(*corev1.Pod)
	for _, l := range a.left {
		_, byReplicaSets := l.workload.(*appsv1.Deployment)
		owner := metav1.GetControllerOf(o)
		selector, _ := world.SelectedBy(l.workload)
		matches, err := metav1.LabelSelectorAsSelector(selector)
		if err == nil && isPod != byReplicaSets && (owner == nil || owner.UID == l.workload.GetUID()) &&
			l.workload.GetNamespace() == o.GetNamespace() && matches.Matches(labels.Set(o.GetLabels())) &&
			world.Named(l.workload, o) {
			l.pods = max(0, l.pods-n)
		}
	}
}

// counted returns a workload whose status has the pods that it has.
func (a *adoptions) counted(o reconciletest.Object) reconciletest.Object {
	if pods := a.podsOf(o); pods >= 0 && pods != podsIn(o) {
		return withPods(o, pods)
	}
	return o
}

// podsOf returns how many pods a workload has; -1: it is none.
func (a *adoptions) podsOf(o reconciletest.Object) int {
	status := podsIn(o)
	if status < 0 {
		return -1
	}
	if known, ok := a.known[o.GetUID()]; ok && known.status == status {
		return known.pods
	}
	return status
}

// makesSamePods reports whether two workloads have the same template.
func makesSamePods(a, b reconciletest.Object) bool {
	_, one := world.SelectedBy(a)
	_, other := world.SelectedBy(b)
	return world.SameTemplate(*one, *other)
}

// most is how many pods a workload wants.
func most(o reconciletest.Object) int {
	var want *int32
	switch o := o.(type) {
	case *appsv1.Deployment:
		want = o.Spec.Replicas
	case *appsv1.StatefulSet:
		want = o.Spec.Replicas
	case *appsv1.ReplicaSet:
		want = o.Spec.Replicas
	}
	if want == nil {
		return math.MaxInt
	}
	return int(*want)
}

// podsIn returns how many pods the status of a workload has; -1: it is none.
func podsIn(o reconciletest.Object) int {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return int(o.Status.Replicas)
	case *appsv1.StatefulSet:
		return int(o.Status.Replicas)
	case *appsv1.DaemonSet:
		return int(o.Status.CurrentNumberScheduled)
	case *appsv1.ReplicaSet:
		return int(o.Status.Replicas)
	}
	return -1
}

// withPods returns a workload with another number of pods in its status.
func withPods(o reconciletest.Object, pods int) reconciletest.Object {
	switch o := o.(type) {
	case *appsv1.Deployment:
		o = o.DeepCopy()
		o.Status.Replicas = int32(pods)
		return o
	case *appsv1.StatefulSet:
		o = o.DeepCopy()
		o.Status.Replicas = int32(pods)
		return o
	case *appsv1.DaemonSet:
		o = o.DeepCopy()
		o.Status.CurrentNumberScheduled = int32(pods)
		return o
	case *appsv1.ReplicaSet:
		o = o.DeepCopy()
		o.Status.Replicas = int32(pods)
		return o
	}
	return o
}
