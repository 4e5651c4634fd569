package plan

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
)

// revision is the annotation by which kubectl and others number the ReplicaSets of a Deployment.
const revision = "deployment.kubernetes.io/revision"

// deployment rolls a Deployment out.
func (w *world) deployment(ctx context.Context, namespace, name string) error {
	c := w.client.AppsV1()
	d, err := c.Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || d.DeletionTimestamp != nil {
		return err
	}
	if d.Spec.Paused {
		return carried(ctx, name, c.Deployments(namespace).Get, c.Deployments(namespace).UpdateStatus,
			func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation })
	}
	current, old, err := w.replicaSetsOf(ctx, d)
	if err != nil {
		return err
	}
	for _, rs := range append(old, current) {
		want := int32(0)
		if rs == current {
			want = *d.Spec.Replicas
		}
		if *rs.Spec.Replicas != want {
			rs.Spec.Replicas = &want
			if _, err := c.ReplicaSets(namespace).Update(ctx, rs, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		if err := w.replicaSet(ctx, namespace, rs.Name); err != nil {
			return err
		}
	}
	if number := current.Annotations[revision]; number != "" && d.Annotations[revision] != number {
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[revision] = number
		if _, err := c.Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return carried(ctx, name, c.Deployments(namespace).Get, c.Deployments(namespace).UpdateStatus, rolledOut)
}

// replicaSetsOf returns the ReplicaSet of the Deployment's template, which it makes if there is none, and the others.
func (w *world) replicaSetsOf(ctx context.Context, d *appsv1.Deployment) (current *appsv1.ReplicaSet,
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
		number, _ := strconv.Atoi(rs.Annotations[revision]) // none is 0
		newest = max(newest, number)
		if current == nil && sameTemplate(rs.Spec.Template, d.Spec.Template) {
			current = rs
		} else {
			old = append(old, rs)
		}
	}
	if current == nil {
		current, err = w.newReplicaSet(ctx, d, newest+1)
	}
	return current, old, err
}

func (w *world) newReplicaSet(ctx context.Context, d *appsv1.Deployment, number int) (*appsv1.ReplicaSet, error) {
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
		ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-" + hash, Labels: with(d.Spec.Template.Labels),
			Annotations:     map[string]string{revision: strconv.Itoa(number)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kindOf(d))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector.DeepCopy(),
			Template: *d.Spec.Template.DeepCopy(), MinReadySeconds: d.Spec.MinReadySeconds},
	}
	rs.Spec.Selector.MatchLabels = with(rs.Spec.Selector.MatchLabels)
	rs.Spec.Template.Labels = with(rs.Spec.Template.Labels)
	return w.client.AppsV1().ReplicaSets(d.Namespace).Create(ctx, rs, metav1.CreateOptions{})
}

// sameTemplate reports whether two templates make the same pods. That of a ReplicaSet has a label of its own.
func sameTemplate(a, b corev1.PodTemplateSpec) bool {
	own := func(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		t.Labels = maps.Clone(t.Labels)
		delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		return t
	}
	return apiequality.Semantic.DeepEqual(own(a), own(b))
}

// hashOf tells templates apart. It is not the hash of Kubernetes' own controllers.
func (w *world) hashOf(t corev1.PodTemplateSpec) string {
	sum := fnv.New32a()
	fmt.Fprint(sum, t.String())
	hash := rand.SafeEncodeString(strconv.Itoa(int(sum.Sum32())))
	w.drew(hash)
	return hash
}

// replicaSet gives a ReplicaSet as many pods as it wants.
func (w *world) replicaSet(ctx context.Context, namespace, name string) error {
	c := w.client.AppsV1().ReplicaSets(namespace)
	rs, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || rs.DeletionTimestamp != nil {
		return err
	}
	pods, err := w.podsOf(ctx, rs)
	if err != nil {
		return err
	}
	want := int(*rs.Spec.Replicas)
	for len(pods) > want {
		if err := w.remove(ctx, pods[len(pods)-1]); err != nil {
			return err
		}
		pods = pods[:len(pods)-1]
	}
	for range want - len(pods) {
		pod := newPod(rs, rs.Spec.Template)
		pod.GenerateName = rs.Name + "-"
		if err := w.run(ctx, pod); err != nil {
			return err
		}
	}
	return carried(ctx, name, c.Get, c.UpdateStatus, func(rs *appsv1.ReplicaSet) {
		n := *rs.Spec.Replicas
		rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = n, n, n
		rs.Status.FullyLabeledReplicas, rs.Status.ObservedGeneration = n, rs.Generation
	})
}

// revisions are those of a StatefulSet, and which pod is to be of which.
type revisions struct {
	update, current string
	byHand          bool // pods are replaced when they are deleted
	partition       int
	pods            map[string]int32 // by revision
}

// revisionsOf returns those of a StatefulSet. revised: its template may be another one than its status is of.
func (w *world) revisionsOf(ctx context.Context, set *appsv1.StatefulSet, revised bool) (*revisions, error) {
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

// statefulSet gives a StatefulSet its pods. Those of an older template are replaced.
func (w *world) statefulSet(ctx context.Context, namespace, name string, revised bool) error {
	c := w.client.AppsV1().StatefulSets(namespace)
	set, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || set.DeletionTimestamp != nil {
		return err
	}
	pods, err := w.podsOf(ctx, set)
	if err != nil {
		return err
	}
	have := map[string]*corev1.Pod{}
	for _, pod := range pods {
		have[pod.Name] = pod
	}
	first := 0
	r, err := w.revisionsOf(ctx, set, revised)
	if err != nil {
		return err
	}
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	for i := first; i < first+int(*set.Spec.Replicas); i++ {
		name := fmt.Sprintf("%s-%d", set.Name, i)
		pod := have[name]
		delete(have, name)
		if pod != nil && !r.replaces(pod, i) {
			r.pods[pod.Labels[appsv1.StatefulSetRevisionLabel]]++
			continue
		}
		if pod != nil {
			if err := w.remove(ctx, pod); err != nil {
				return err
			}
		}
		if err := w.newMember(ctx, set, i, r.of(i)); err != nil {
			return err
		}
		r.pods[r.of(i)]++
	}
	for _, pod := range have {
		if err := w.remove(ctx, pod); err != nil {
			return err
		}
	}
	return carried(ctx, name, c.Get, c.UpdateStatus, r.finish)
}

// finish writes the status of a StatefulSet whose pods are as it wants them.
func (r *revisions) finish(s *appsv1.StatefulSet) {
	n := *s.Spec.Replicas
	s.Status.ObservedGeneration, s.Status.UpdateRevision, s.Status.CurrentRevision = s.Generation, r.update, r.current
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = n, n, n
	s.Status.UpdatedReplicas, s.Status.CurrentReplicas = r.pods[r.update], r.pods[r.current]
	if !r.byHand && r.pods[r.update] == n {
		s.Status.CurrentRevision, s.Status.CurrentReplicas = r.update, n
	}
}

// newMember makes the pod of an ordinal, and its claims.
func (w *world) newMember(ctx context.Context, set *appsv1.StatefulSet, ordinal int, revision string) error {
	pod := newPod(set, set.Spec.Template)
	pod.Name = fmt.Sprintf("%s-%d", set.Name, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	for _, template := range set.Spec.VolumeClaimTemplates {
		claim := template.DeepCopy()
		claim.Name, claim.Namespace, claim.Status = template.Name+"-"+pod.Name, "", corev1.PersistentVolumeClaimStatus{}
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		if err := w.claim(ctx, set.Namespace, claim); err != nil {
			return err
		}
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == template.Name
		})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: template.Name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: claim.Name}}})
	}
	return w.run(ctx, pod)
}

// claim makes a claim that is bound, unless there is one.
func (w *world) claim(ctx context.Context, namespace string, claim *corev1.PersistentVolumeClaim) error {
	c := w.client.CoreV1().PersistentVolumeClaims(namespace)
	_, err := c.Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return carried(ctx, claim.Name, c.Get, c.UpdateStatus, bound)
}

// hashOfPods is the label of the pods that a DaemonSet's template makes.
func (w *world) hashOfPods(ctx context.Context, set *appsv1.DaemonSet) (string, error) {
	known, err := w.revisionOf(ctx, set)
	if err != nil || known == nil {
		return w.hashOf(set.Spec.Template), err
	}
	return known.Labels[appsv1.ControllerRevisionHashLabelKey], nil
}

const templateGenerationLabel = "pod-template-generation"

// daemonSet gives a DaemonSet a pod on each node that its template selects by labels.
func (w *world) daemonSet(ctx context.Context, namespace, name string, revised bool) error {
	c := w.client.AppsV1().DaemonSets(namespace)
	set, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || set.DeletionTimestamp != nil {
		return err
	}
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(set.Spec.Template.Spec.NodeSelector).String()})
	if err != nil {
		return err
	}
	pods, err := w.podsOf(ctx, set)
	if err != nil {
		return err
	}
	hash, err := w.hashOfPods(ctx, set)
	if err != nil {
		return err
	}
	byHand := set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	if !revised && len(pods) > 0 { // the name that its own controller has given to the template
		hash = pods[0].Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	served, updated := map[string]bool{}, int32(0)
	for _, pod := range pods {
		is := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
		if pod.Labels[templateGenerationLabel] == templateGeneration(set) { // whatever it is made of
			is = hash
		}
		if revised && !byHand && is != hash {
			if err := w.remove(ctx, pod); err != nil {
				return err
			}
			continue
		} else if is == hash {
			updated++
		}
		served[pod.Spec.NodeName] = true
	}
	for _, node := range nodes.Items {
		if served[node.Name] {
			continue
		}
		pod := newPod(set, set.Spec.Template)
		pod.GenerateName, pod.Spec.NodeName = set.Name+"-", node.Name
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
		pod.Labels[templateGenerationLabel] = templateGeneration(set)
		if err := w.run(ctx, pod); err != nil {
			return err
		}
		served[node.Name] = true
		updated++
	}
	return carried(ctx, name, c.Get, c.UpdateStatus, func(s *appsv1.DaemonSet) {
		n := int32(len(served))
		s.Status.ObservedGeneration, s.Status.UpdatedNumberScheduled = s.Generation, updated
		s.Status.CurrentNumberScheduled, s.Status.DesiredNumberScheduled = n, n
		s.Status.NumberReady, s.Status.NumberAvailable, s.Status.NumberUnavailable = n, n, 0
	})
}

func rolledOut(d *appsv1.Deployment) {
	d.Status.ObservedGeneration = d.Generation
	n := *d.Spec.Replicas
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, n, n, n
	d.Status.UnavailableReplicas = 0
	for _, c := range []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Reason: "MinimumReplicasAvailable"},
		{Type: appsv1.DeploymentProgressing, Reason: "NewReplicaSetAvailable"},
	} {
		c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.Now()
		c.LastUpdateTime = c.LastTransitionTime
		at := slices.IndexFunc(d.Status.Conditions, func(is appsv1.DeploymentCondition) bool {
			return is.Type == c.Type
		})
		switch {
		case at < 0:
			d.Status.Conditions = append(d.Status.Conditions, c)
		case d.Status.Conditions[at].Status != c.Status || d.Status.Conditions[at].Reason != c.Reason:
			d.Status.Conditions[at] = c
		}
	}
}
