package plan

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lossy are the resources whose deletion loses data: of a volume, of a Secret, or of everything in a namespace or of a
// kind.
var lossy = []schema.GroupResource{
	{Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"}, {Resource: "secrets"},
	{Resource: "namespaces"}, definitions.GroupResource(),
}

func losesData(r schema.GroupResource) bool { return slices.Contains(lossy, r) }

// restarts says which pods a change ends or replaces, by what the controllers of Kubernetes do. A pod template of any
// other kind, such as that of a Job, is for new pods only.
func restarts(one *recorded, fields []Field) *Restarts {
	if one.verb == "delete" && one.old != nil {
		if pod, ok := one.old.(*corev1.Pod); ok && pod.Status.Phase != corev1.PodSucceeded &&
			pod.Status.Phase != corev1.PodFailed {
			return &Restarts{Pods: 1}
		}
	}
	if one.verb != "update" || one.status {
		return nil
	}
	var why []string
	for _, f := range fields {
		if strings.HasPrefix(f.Path, "spec.template") {
			why = append(why, f.Path)
		}
	}
	if len(why) == 0 {
		return fewer(one)
	}
	r := &Restarts{Why: why}
	switch was := one.old.(type) {
	case *appsv1.Deployment:
		r.Pods = int(was.Status.Replicas)
		if now := one.now.(*appsv1.Deployment); now.Spec.Paused {
			r.When = "when it is no longer paused"
		}
	case *appsv1.StatefulSet:
		r.Pods = int(was.Status.Replicas)
		strategy := one.now.(*appsv1.StatefulSet).Spec.UpdateStrategy
		switch {
		case strategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
			r.When = "when they are deleted (OnDelete)"
		case strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil:
			partition := int(*strategy.RollingUpdate.Partition)
			if r.Pods = max(0, r.Pods-partition); r.Pods == 0 {
				r.When = fmt.Sprintf("when the partition is less than %d", partition)
			}
		}
	case *appsv1.DaemonSet:
		r.Pods = int(was.Status.CurrentNumberScheduled)
		if one.now.(*appsv1.DaemonSet).Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			r.When = "when they are deleted (OnDelete)"
		}
	default:
		return nil
	}
	return r
}

// fewer says which pods end since less of them are wanted.
func fewer(one *recorded) *Restarts {
	var have, want int32
	switch was := one.old.(type) {
	case *appsv1.Deployment:
		have, want = was.Status.Replicas, *one.now.(*appsv1.Deployment).Spec.Replicas
	case *appsv1.StatefulSet:
		have, want = was.Status.Replicas, *one.now.(*appsv1.StatefulSet).Spec.Replicas
	case *appsv1.ReplicaSet:
		have, want = was.Status.Replicas, *one.now.(*appsv1.ReplicaSet).Spec.Replicas
	}
	if have <= want {
		return nil
	}
	return &Restarts{Pods: int(have - want), Why: []string{"spec.replicas"}}
}
