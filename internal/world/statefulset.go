package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// revisions are those of a StatefulSet, and which pod is to be of which.
type revisions struct {
	update, current string
	byHand          bool // pods are replaced when they are deleted
	partition       int
	pods            map[string]int32 // by revision
}

// revisionsOf returns those of a StatefulSet. revised: its template may be another one than its status is of.
func (w *World) revisionsOf(ctx context.Context, set *appsv1.StatefulSet, revised bool) (*revisions, error) {
	r := &revisions{update: set.Status.UpdateRevision, current: set.Status.CurrentRevision,
		byHand: set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType, pods: map[string]int32{}}
	if revised || r.update == "" {
		known, err := w.revisionOf(ctx, set)
		if err != nil {
			return nil, err
		}
		if known != nil {
			r.update = known.Name
		} else {
			r.update = set.Name + "-" + w.hashOf(set.Spec.Template)
		}
	}
	if r.current == "" { // it is a new one
		r.current = r.update
	}
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil {
		r.partition = int(*rolling.Partition)
	}
	return r, nil
}

// of is the revision of a new pod.
func (r *revisions) of(ordinal int) string {
	if !r.byHand && ordinal < r.partition {
		return r.current
	}
	return r.update
}

// replaces reports whether a pod that is there is replaced.
func (r *revisions) replaces(pod *corev1.Pod, ordinal int) bool {
	return !r.byHand && ordinal >= r.partition && pod.Labels[appsv1.StatefulSetRevisionLabel] != r.update
}

// count counts the pods by their revisions.
func (r *revisions) count(pods []*corev1.Pod) {
	for _, pod := range pods {
		r.pods[pod.Labels[appsv1.StatefulSetRevisionLabel]]++
	}
}

// statefulSet gives a StatefulSet its pods.
func (w *World) statefulSet(ctx context.Context, i Item) (again time.Duration, err error) {
	c := w.client.AppsV1().StatefulSets(i.Namespace)
	set, err := c.Get(ctx, i.Name, metav1.GetOptions{})
	if err != nil || set.DeletionTimestamp != nil {
		return 0, err
	}
	r, err := w.revisionsOf(ctx, set, i.Revised || !w.AtOnce)
	if err != nil {
		return 0, err
	}
	pods, going, err := w.podsOf(ctx, set)
	if err != nil {
		return 0, err
	}
	m := &members{World: w, revisions: r, set: set, there: map[string]*corev1.Pod{}, going: map[string]bool{}}
	for _, pod := range pods {
		m.there[pod.Name] = pod
	}
	for _, pod := range going {
		m.going[pod.Name] = true
	}
	if err := m.change(ctx); err != nil {
		return 0, err
	}
	if pods, going, err = w.podsOf(ctx, set); err != nil {
		return 0, err
	}
	r.count(pods)
	t := w.count(append(pods, going...), set.Spec.MinReadySeconds) // Kubernetes counts a pod until it is gone
	return t.again, carried(ctx, w, set, c.UpdateStatus, func(s *appsv1.StatefulSet) { r.report(s, t) })
}

// report writes the status of a StatefulSet that has these pods.
func (r *revisions) report(s *appsv1.StatefulSet, t tally) {
	s.Status.ObservedGeneration, s.Status.UpdateRevision, s.Status.CurrentRevision = s.Generation, r.update, r.current
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = t.all, t.ready, t.available
	s.Status.UpdatedReplicas, s.Status.CurrentReplicas = r.pods[r.update], r.pods[r.current]
	if n := *s.Spec.Replicas; !r.byHand && r.pods[r.update] == n && t.all == n && t.ready == n {
		s.Status.CurrentRevision, s.Status.CurrentReplicas = r.update, n
	}
}

// members are the pods of a StatefulSet while it gets the ones that it wants.
type members struct {
	*World
	*revisions
	set   *appsv1.StatefulSet
	there map[string]*corev1.Pod
	going map[string]bool // these names are not free yet
}

// change makes and removes pods, as far as that may be now: in the order of their ordinals, and one after the other,
// unless the policy says that they need not wait for each other. Then pods of an older template are replaced, the last
// one first.
func (m *members) change(ctx context.Context) error {
	ordered := !m.AtOnce && m.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	surplus := maps.Clone(m.there)
	for _, i := range m.ordinals() {
		name := m.name(i)
		pod := m.there[name]
		delete(surplus, name)
		if pod == nil && !m.going[name] {
			if err := m.join(ctx, i); err != nil {
				return err
			}
		}
		if ordered && (pod == nil || !m.isReady(pod)) {
			return nil
		}
	}
	if ordered && len(m.going) > 0 {
		return nil
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(surplus))) {
		if err := m.evict(ctx, surplus[name]); err != nil || ordered {
			return err
		}
	}
	return m.replace(ctx)
}

// replace replaces pods of an older template. The next one has to wait until the one before is ready.
func (m *members) replace(ctx context.Context) error {
	for _, i := range slices.Backward(m.ordinals()) {
		pod := m.there[m.name(i)]
		switch {
		case pod == nil && m.AtOnce: // it has just been made
		case pod == nil:
			return nil
		case m.replaces(pod, i):
			if err := m.evict(ctx, pod); err != nil || !m.AtOnce {
				return err
			}
			if err := m.join(ctx, i); err != nil {
				return err
			}
		case !m.isReady(pod):
			return nil
		}
	}
	return nil
}

// ordinals are those of the pods that are wanted.
func (m *members) ordinals() (all []int) {
	first := 0
	if m.set.Spec.Ordinals != nil {
		first = int(m.set.Spec.Ordinals.Start)
	}
	for i := range int(*m.set.Spec.Replicas) {
		all = append(all, first+i)
	}
	return all
}

func (m *members) name(ordinal int) string { return fmt.Sprintf("%s-%d", m.set.Name, ordinal) }

// join makes the pod of an ordinal, and its claims.
func (m *members) join(ctx context.Context, ordinal int) error {
	pod := newPod(m.set, m.set.Spec.Template)
	pod.Name = m.name(ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = m.of(ordinal)
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, m.set.Spec.ServiceName
	for _, template := range m.set.Spec.VolumeClaimTemplates {
		claim := template.DeepCopy()
		claim.Name, claim.Namespace, claim.Status = template.Name+"-"+pod.Name, "", corev1.PersistentVolumeClaimStatus{}
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, m.set.Spec.Selector.MatchLabels)
		if err := (claims{m.World}).make(ctx, m.set.Namespace, claim); err != nil {
			return err
		}
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == template.Name
		})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: template.Name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: claim.Name}}})
	}
	return m.make(ctx, pod)
}
