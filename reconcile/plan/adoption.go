package plan

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// adoptions follow the pods of workloads that are deleted without them: who takes them over, and how many there are,
// which the status of a new workload does not say before a controller has seen it.
type adoptions struct {
	left    []*leftPods
	adopted map[types.UID]int // pods, by the workload that has taken them over
}

// leftPods are what a workload has left.
type leftPods struct {
	resource schema.GroupResource
	workload reconciletest.Object
	pods     int
}

// before returns what a change has to be compared with, so that what it does to pods is known: what the object was, or
// a workload whose pods it takes over. Nil: nothing.
func (a *adoptions) before(one *recorded) reconciletest.Object {
	if one.verb != "create" {
		return a.counted(one.old)
	}
	at := slices.IndexFunc(a.left, func(l *leftPods) bool {
		_, isSet := one.now.(*appsv1.StatefulSet)
		return l.resource == one.resource.GroupResource() && adopts(one.now, l.workload) &&
			l.workload.GetNamespace() == one.now.GetNamespace() &&
			(!isSet || l.workload.GetName() == one.now.GetName())
	})
	if at < 0 {
		return nil
	}
	left := a.left[at]
	a.left = slices.Delete(a.left, at, at+1)
	a.adopted[one.now.GetUID()] = left.pods
	return withPods(left.workload, left.pods)
}

// after notes what a change has left. A pod that ends is nobody's to take over.
func (a *adoptions) after(one *recorded) {
	if one.orphans {
		if workload := a.counted(one.old); podsIn(workload) >= 0 {
			a.left = append(a.left, &leftPods{one.resource.GroupResource(), workload, podsIn(workload)})
		}
		return
	}
	pod, ok := one.old.(*corev1.Pod)
	if !ok || one.verb != "delete" {
		return
	}
	for _, l := range a.left {
		selector, _ := selectedBy(l.workload)
		matches, err := metav1.LabelSelectorAsSelector(selector)
		if err == nil && l.workload.GetNamespace() == pod.Namespace && matches.Matches(labels.Set(pod.Labels)) &&
			named(l.workload, pod) {
			l.pods = max(0, l.pods-1)
		}
	}
}

// counted returns a workload whose status has the pods that it has taken over, unless a controller has counted them.
func (a *adoptions) counted(o reconciletest.Object) reconciletest.Object {
	if pods := podsIn(o); pods == 0 {
		return withPods(o, a.adopted[o.GetUID()])
	}
	return o
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
