package plan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/internal/world"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// lossy are the resources whose deletion loses data: of a volume, of a Secret, or of everything in a namespace or of a
// kind.
var lossy = []schema.GroupResource{
	{Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"}, {Resource: "secrets"},
	{Resource: "namespaces"}, definitions.GroupResource(),
}

func losesData(r schema.GroupResource) bool { return slices.Contains(lossy, r) }

// scalesDataAway reports whether a change makes a StatefulSet smaller that deletes the claims of the pods which go.
func scalesDataAway(one *recorded) bool {
	was, ok1 := one.old.(*appsv1.StatefulSet)
	now, ok2 := one.now.(*appsv1.StatefulSet)
	if !ok1 || !ok2 || one.verb != "update" || one.status || len(now.Spec.VolumeClaimTemplates) == 0 {
		return false
	}
	policy := now.Spec.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType &&
		wanted(now) < wanted(was)
}

// wanted returns how many pods a StatefulSet is to have.
func wanted(s *appsv1.StatefulSet) int32 {
	if s.Spec.Replicas == nil {
		return 1
	}
	return *s.Spec.Replicas
}

// restarts says which pods a change ends or replaces, by what the controllers of Kubernetes do. A pod template of any
// other kind, such as that of a Job, is for new pods only. before and now are the workloads to compare: see adoptions.
func restarts(one *recorded, before, now reconciletest.Object) (*Restarts, error) {
	if pod, ok := one.old.(*corev1.Pod); ok {
		return ofPod(one, pod), nil
	}
	if now == nil || before == nil || one.status {
		return nil, nil
	}
	fields, err := changed(before, now)
	if err != nil {
		return nil, err
	}
	var why []string
	for _, f := range fields {
		if f.Path == "spec.template" || strings.HasPrefix(f.Path, "spec.template.") {
			why = append(why, f.Path)
		}
	}
	switch was := before.(type) {
	case *appsv1.Deployment:
		return ofDeployment(was, now.(*appsv1.Deployment), why), nil
	case *appsv1.StatefulSet:
		return ofStatefulSet(was, now.(*appsv1.StatefulSet), why), nil
	case *appsv1.DaemonSet:
		return ofDaemonSet(was, now.(*appsv1.DaemonSet), why), nil
	case *appsv1.ReplicaSet:
		return fewer(was.Status.Replicas, now.(*appsv1.ReplicaSet).Spec.Replicas), nil
	}
	return nil, nil
}

// adopts reports whether a workload takes over the pods, or the ReplicaSets, that one of its name has left: its
// selector matches them.
func adopts(now, left reconciletest.Object) bool {
	selector, _ := world.SelectedBy(now)
	_, pods := world.SelectedBy(left)
	matches, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && pods != nil && matches.Matches(labels.Set(pods.Labels))
}

// ofPod is about the pod itself: it is deleted, or a container gets another image, with which the kubelet starts it
// anew.
func ofPod(one *recorded, was *corev1.Pod) *Restarts {
	if was.Status.Phase == corev1.PodSucceeded || was.Status.Phase == corev1.PodFailed {
		return nil
	}
	if one.verb == "delete" {
		return &Restarts{Pods: 1}
	}
	var why []string
	if now, ok := one.now.(*corev1.Pod); ok && one.verb == "update" {
		for i, c := range now.Spec.Containers {
			if i < len(was.Spec.Containers) && was.Spec.Containers[i].Image != c.Image {
				why = append(why, "spec.containers["+c.Name+"].image")
			}
		}
	}
	if len(why) == 0 {
		return nil
	}
	return &Restarts{Pods: 1, Why: why}
}

func ofDeployment(was, now *appsv1.Deployment, why []string) *Restarts {
	pending := was.Spec.Paused && !now.Spec.Paused && was.Status.UpdatedReplicas < was.Status.Replicas
	switch r := (&Restarts{Pods: int(was.Status.Replicas), Why: why}); {
	case len(why) > 0 && now.Spec.Paused:
		r.When = "when it is no longer paused"
		return r
	case len(why) > 0:
		return r
	case pending: // the template was changed before
		return &Restarts{Pods: int(was.Status.Replicas - was.Status.UpdatedReplicas), Why: []string{"spec.paused"}}
	}
	return fewer(was.Status.Replicas, now.Spec.Replicas)
}

func ofStatefulSet(was, now *appsv1.StatefulSet, why []string) *Restarts {
	byHand := func(s *appsv1.StatefulSet) bool {
		return s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	}
	partition := func(s *appsv1.StatefulSet) int {
		rolling := s.Spec.UpdateStrategy.RollingUpdate
		if rolling == nil || rolling.Partition == nil {
			return 0
		}
		return int(*rolling.Partition)
	}
	pods := int(was.Status.Replicas)
	pending := was.Status.UpdateRevision != was.Status.CurrentRevision
	switch r := (&Restarts{Pods: pods, Why: why}); {
	case len(why) > 0 && byHand(now):
		r.When = "when they are deleted (OnDelete)"
		return r
	case len(why) > 0:
		if r.Pods = max(0, pods-partition(now)); r.Pods == 0 {
			r.When = fmt.Sprintf("when the partition is less than %d", partition(now))
		}
		return r
	case pending && byHand(was) && !byHand(now): // the template was changed before
		return &Restarts{Pods: max(0, pods-max(int(was.Status.UpdatedReplicas), partition(now))),
			Why: []string{"spec.updateStrategy.type"}}
	case pending && !byHand(now) && min(partition(was), pods) > partition(now):
		return &Restarts{Pods: min(partition(was), pods) - partition(now),
			Why: []string{"spec.updateStrategy.rollingUpdate.partition"}}
	}
	return fewer(was.Status.Replicas, now.Spec.Replicas)
}

func ofDaemonSet(was, now *appsv1.DaemonSet, why []string) *Restarts {
	if len(why) == 0 || was.UID != now.UID && world.TemplateGeneration(was) == world.TemplateGeneration(now) {
		return nil // a new one takes pods for its own by the number of their template
	}
	r := &Restarts{Pods: int(was.Status.CurrentNumberScheduled), Why: why}
	if now.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		r.When = "when they are deleted (OnDelete)"
	}
	return r
}

// changesPods reports whether a pod template is another one, anywhere below a value. One that was not there before is
// as well: pods may have been made of a default.
func changesPods(old, now any) bool {
	if isTemplate(old) || isTemplate(now) {
		return !reflect.DeepEqual(old, now)
	}
	was, ok1 := mapOf(old)
	is, ok2 := mapOf(now)
	if ok1 && ok2 {
		differs := func(name string) bool { return changesPods(was[name], is[name]) }
		return slices.ContainsFunc(slices.Collect(maps.Keys(was)), differs) ||
			slices.ContainsFunc(slices.Collect(maps.Keys(is)), differs)
	}
	before, after := sliceOf(old), sliceOf(now)
	at := func(l []any, i int) any {
		if i < len(l) {
			return l[i]
		}
		return nil
	}
	for i := range max(len(before), len(after)) {
		if changesPods(at(before, i), at(after, i)) {
			return true
		}
	}
	return false
}

// isTemplate reports whether a value looks like a pod template: it has a spec with containers.
func isTemplate(v any) bool {
	m, _ := v.(map[string]any)
	spec, _ := m["spec"].(map[string]any)
	return len(sliceOf(spec["containers"])) > 0
}

// replicas is why pods end, and no others come, if fewer are wanted.
const replicas = "spec.replicas"

// ends reports whether no pods come in place of those that end. One that is deleted may have an owner that makes
// another one.
func (r *Restarts) ends() bool { return len(r.Why) == 0 || len(r.Why) == 1 && r.Why[0] == replicas }

// fewer says which pods end since less of them are wanted.
func fewer(have int32, want *int32) *Restarts {
	if want == nil || have <= *want {
		return nil
	}
	return &Restarts{Pods: int(have - *want), Why: []string{replicas}}
}
