package world

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Revision is the annotation by which kubectl and others number the ReplicaSets of a Deployment.
const Revision = "deployment.kubernetes.io/revision"

// rollout is the part of a world that rolls Deployments out.
type rollout struct{ *World }

// deployment rolls a Deployment out: its ReplicaSets get the sizes that they can have now. ReplicaSets that are not
// wanted any more stay, with no pods.
func (w rollout) deployment(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := w.client.AppsV1()
	d, err := c.Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || d.DeletionTimestamp != nil {
		return 0, err
	}
	if d.Spec.Paused {
		return 0, carried(ctx, w.World, d, c.Deployments(namespace).UpdateStatus,
			func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation })
	}
	current, old, err := w.replicaSetsOf(ctx, d)
	if err != nil {
		return 0, err
	}
	sizes := sizesOf(d, current, old)
	if again, err = w.makesRoom(ctx, d, old); err != nil {
		return 0, err
	}
	if again > 0 {
		sizes = append(make([]int32, len(old)), min(*current.Spec.Replicas, *d.Spec.Replicas))
	}
	if w.AtOnce {
		sizes = append(make([]int32, len(old)), *d.Spec.Replicas)
	}
	for i, rs := range append(old, current) {
		minReady := rs.Spec.MinReadySeconds
		if rs == current && !w.AtOnce {
			minReady = d.Spec.MinReadySeconds
		}
		if err := w.resize(ctx, rs, sizes[i], minReady); err != nil {
			return 0, err
		}
		if !w.AtOnce {
			continue
		}
		if _, err := w.replicaSet(ctx, namespace, rs.Name); err != nil {
			return 0, err
		}
	}
	if number := current.Annotations[Revision]; number != "" && d.Annotations[Revision] != number {
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[Revision] = number
		if d, err = c.Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{}); err != nil {
			return 0, err
		}
	}
	return again, carried(ctx, w.World, d, c.Deployments(namespace).UpdateStatus, func(d *appsv1.Deployment) {
		if w.AtOnce {
			rolledOut(d)
			return
		}
		progress(d, current, old)
	})
}

// makesRoom returns how long to wait until the old pods of a Deployment that recreates may be gone; zero: they are.
func (w rollout) makesRoom(ctx context.Context, d *appsv1.Deployment, old []*appsv1.ReplicaSet) (again time.Duration,
	err error) {
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || w.AtOnce {
		return 0, nil
	}
	for _, rs := range old {
		pods, going, err := w.podsOf(ctx, rs)
		if err != nil {
			return 0, err
		}
		if len(pods)+len(going) > 0 {
			again = time.Second
		}
	}
	return again, nil
}

// resize gives a ReplicaSet a size and how long its pods have to be ready, and makes it if it is a new one.
func (w rollout) resize(ctx context.Context, rs *appsv1.ReplicaSet, size, minReady int32) (err error) {
	c := w.client.AppsV1().ReplicaSets(rs.Namespace)
	isNew := rs.UID == ""
	if !isNew && *rs.Spec.Replicas == size && rs.Spec.MinReadySeconds == minReady {
		return nil
	}
	rs.Spec.MinReadySeconds = minReady
	if rs.Spec.Replicas = &size; isNew {
		_, err = c.Create(ctx, rs, metav1.CreateOptions{})
	} else {
		_, err = c.Update(ctx, rs, metav1.UpdateOptions{})
	}
	return err
}

// replicaSetsOf returns the ReplicaSet of the Deployment's template, which is a new one if there is none, and the
// others.
func (w rollout) replicaSetsOf(ctx context.Context, d *appsv1.Deployment) (current *appsv1.ReplicaSet,
	old []*appsv1.ReplicaSet, err error) {
	c := w.client.AppsV1().ReplicaSets(d.Namespace)
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	newest := 0
	for i := range list.Items {
		rs := &list.Items[i]
		if takesOver(d, rs) {
			if rs, err = c.Update(ctx, rs, metav1.UpdateOptions{}); err != nil {
				return nil, nil, err
			}
		}
		if !metav1.IsControlledBy(rs, d) || rs.DeletionTimestamp != nil {
			continue
		}
		number, _ := strconv.Atoi(rs.Annotations[Revision]) // none is 0
		newest = max(newest, number)
		if current == nil && SameTemplate(rs.Spec.Template, d.Spec.Template) {
			current = rs
		} else {
			old = append(old, rs)
		}
	}
	if current == nil {
		current = w.newReplicaSet(d, newest+1)
	}
	return current, old, nil
}

// newReplicaSet returns one that nobody has made yet.
func (w rollout) newReplicaSet(d *appsv1.Deployment, number int) *appsv1.ReplicaSet {
	hash := w.hashOf(d.Spec.Template)
	with := func(all map[string]string) map[string]string {
		all = maps.Clone(all)
		if all == nil {
			all = map[string]string{}
		}
		all[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		return all
	}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash,
			Labels:          with(d.Spec.Template.Labels),
			Annotations:     map[string]string{Revision: strconv.Itoa(number)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kindOf(d))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Selector: d.Spec.Selector.DeepCopy(),
			Template: *d.Spec.Template.DeepCopy(), MinReadySeconds: d.Spec.MinReadySeconds},
	}
	rs.Spec.Selector.MatchLabels = with(rs.Spec.Selector.MatchLabels)
	rs.Spec.Template.Labels = with(rs.Spec.Template.Labels)
	return rs
}

// sizesOf returns how many pods the old ReplicaSets are to have now, and last the current one. A rolling update keeps
// to what may be too many and what may be missing: the current one grows as far as it may, and when it may not, pods of
// the old ones go, first those that are not available.
func sizesOf(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) []int32 {
	want, now := *d.Spec.Replicas, *current.Spec.Replicas
	sizes := make([]int32, 0, len(old)+1)
	total, available, there := now, current.Status.AvailableReplicas, int32(0)
	for _, rs := range old {
		sizes = append(sizes, *rs.Spec.Replicas)
		total += *rs.Spec.Replicas
		available += rs.Status.AvailableReplicas
		there += rs.Status.Replicas
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		if there > 0 || total > now {
			return append(make([]int32, len(old)), min(now, want))
		}
		return append(sizes, want)
	}
	surge, missing := boundsOf(d)
	if grown := now + min(want-now, max(0, want+surge-total)); grown != now {
		return append(sizes, grown)
	}
	spare := total - (want - missing) - max(0, now-current.Status.AvailableReplicas)
	for i, rs := range old {
		broken := min(max(0, sizes[i]-rs.Status.AvailableReplicas), max(0, spare))
		sizes[i] -= broken
		spare -= broken
	}
	for i := range old {
		fewer := min(sizes[i], max(0, available-(want-missing)), max(0, spare))
		sizes[i] -= fewer
		spare -= fewer
		available -= fewer
	}
	return append(sizes, now)
}

// boundsOf returns how many pods of a Deployment may be too many, and how many may be missing.
func boundsOf(d *appsv1.Deployment) (surge, missing int32) {
	scaled := func(of *intstr.IntOrString, up bool) int32 {
		if of == nil {
			return 0
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(of, int(*d.Spec.Replicas), up)
		if err != nil { // the server has refused it
			return 0
		}
		return int32(n)
	}
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil {
		surge, missing = scaled(rolling.MaxSurge, true), scaled(rolling.MaxUnavailable, false)
	}
	if surge == 0 && missing == 0 {
		missing = 1
	}
	return surge, missing
}

// progress writes the status of a Deployment, as its ReplicaSets say.
func progress(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	var t appsv1.ReplicaSetStatus
	for _, rs := range append(slices.Clone(old), current) {
		t.Replicas += rs.Status.Replicas
		t.ReadyReplicas += rs.Status.ReadyReplicas
		t.AvailableReplicas += rs.Status.AvailableReplicas
	}
	s, want := &d.Status, *d.Spec.Replicas
	s.ObservedGeneration = d.Generation
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas = t.Replicas, t.ReadyReplicas, t.AvailableReplicas
	s.UpdatedReplicas, s.UnavailableReplicas = current.Status.Replicas, max(0, t.Replicas-t.AvailableReplicas)
	_, missing := boundsOf(d)
	available := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue,
		Reason: "MinimumReplicasAvailable"}
	if t.AvailableReplicas < want-missing {
		available.Status, available.Reason = corev1.ConditionFalse, "MinimumReplicasUnavailable"
	}
	progressing := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
		Reason: "ReplicaSetUpdated"}
	if s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want {
		progressing.Reason = "NewReplicaSetAvailable"
	}
	setCondition(d, available)
	setCondition(d, progressing)
}

func rolledOut(d *appsv1.Deployment) {
	d.Status.ObservedGeneration = d.Generation
	n := *d.Spec.Replicas
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, n, n, n
	d.Status.UnavailableReplicas = 0
	setCondition(d, appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue,
		Reason: "MinimumReplicasAvailable"})
	setCondition(d, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
		Reason: "NewReplicaSetAvailable"})
}

// setCondition gives a Deployment a condition, unless it has it.
func setCondition(d *appsv1.Deployment, c appsv1.DeploymentCondition) {
	c.LastTransitionTime, c.LastUpdateTime = metav1.Now(), metav1.Now()
	at := slices.IndexFunc(d.Status.Conditions, func(is appsv1.DeploymentCondition) bool { return is.Type == c.Type })
	switch {
	case at < 0:
		d.Status.Conditions = append(d.Status.Conditions, c)
	case d.Status.Conditions[at].Status != c.Status || d.Status.Conditions[at].Reason != c.Reason:
		d.Status.Conditions[at] = c
	}
}
