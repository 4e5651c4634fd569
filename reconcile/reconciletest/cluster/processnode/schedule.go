package processnode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// scheduler is the part of a pool that decides which node runs a pod.
type scheduler struct{ *Pool }

// run binds pods to the nodes of the pool until it ends. It looks when a pod or a volume has changed, and
// every second, since nodes change as well.
func (s scheduler) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		case <-s.schedule:
		}
		s.complain(s.ctx, s.scheduleAll(s.ctx))
	}
}

// scheduleAll tries to bind each pod that has no node, the oldest first.
func (s scheduler) scheduleAll(ctx context.Context) error {
	s.mu.Lock()
	var unbound, bound []*corev1.Pod
	for _, pod := range s.pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		switch {
		case pod.Spec.NodeName != "" && !ended:
			bound = append(bound, pod)
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
			s.asks(pod):
			unbound = append(unbound, pod)
		}
	}
	s.mu.Unlock()
	if len(unbound) == 0 {
		return nil
	}
	slices.SortFunc(unbound, func(a, b *corev1.Pod) int {
		if n := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); n != 0 {
			return n
		}
		return strings.Compare(keyOf(a).String(), keyOf(b).String())
	})
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: PoolLabel + "=" + s.o.Name})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, pod := range unbound {
		node, why := s.place(ctx, pod, nodes.Items, bound)
		if node == "" {
			s.complain(ctx, s.unschedulable(ctx, pod, why))
			continue
		}
		if err := s.bind(ctx, pod, node); err != nil {
			s.complain(ctx, fmt.Errorf("bind pod %s: %w", keyOf(pod), err))
			continue
		}
		copied := pod.DeepCopy()
		copied.Spec.NodeName = node
		bound = append(bound, copied)
	}
	return nil
}

// asks reports whether a pod is for this pool: it names a label of its nodes, or the pool takes all.
func (s scheduler) asks(pod *corev1.Pod) bool {
	if s.o.AllPods || pod.Spec.NodeSelector[PoolLabel] == s.o.Name {
		return true
	}
	return slices.ContainsFunc(s.nodes,
		func(n *Node) bool { return pod.Spec.NodeSelector[corev1.LabelHostname] == n.Name })
}

// place returns the node for a pod: of those that may run it, the one with the fewest pods. If there is none it returns
// why.
func (s scheduler) place(ctx context.Context, pod *corev1.Pod, nodes []corev1.Node, bound []*corev1.Pod) (string,
	string) {
	disks, err := s.disksOf(ctx, pod)
	if err != nil {
		return "", err.Error()
	}
	best, fewest, why := "", 0, []string{}
	for i := range nodes {
		node := &nodes[i]
		if problem := misfit(pod, node, bound, disks); problem != "" {
			why = append(why, node.Name+" "+problem)
			continue
		}
		n := 0
		for _, other := range bound {
			if other.Spec.NodeName == node.Name {
				n++
			}
		}
		if best == "" || n < fewest {
			best, fewest = node.Name, n
		}
	}
	return best, fmt.Sprintf("0/%d nodes are available: %s", len(nodes), strings.Join(why, ", "))
}

// disksOf returns the nodes that have the disks of a pod.
func (s scheduler) disksOf(ctx context.Context, pod *corev1.Pod) (nodes []string, err error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		name := v.PersistentVolumeClaim.ClaimName
		claim, err := s.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		volume := claim.Spec.VolumeName
		if volume == "" {
			volume = "pvc-" + string(claim.UID) // as provision names it
		}
		disk, err := s.client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		switch {
		case err == nil:
			nodes = append(nodes, disk.Annotations[onNode])
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return nodes, nil
}

// misfit says why a node may not run a pod, or nothing.
func misfit(pod *corev1.Pod, node *corev1.Node, bound []*corev1.Pod, disks []string) string {
	for _, disk := range disks {
		if disk != node.Name {
			return "does not have its disk"
		}
	}
	if node.Spec.Unschedulable {
		return "is cordoned"
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok || err != nil {
		return "is not what its nodeSelector or nodeAffinity asks for"
	}
	for _, taint := range node.Spec.Taints {
		tolerates := func(t corev1.Toleration) bool { return tolerates(t, taint) }
		if taint.Key != PoolLabel && taint.Effect != corev1.TaintEffectPreferNoSchedule &&
			!slices.ContainsFunc(pod.Spec.Tolerations, tolerates) {
			return "has the taint " + taint.ToString()
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "is not ready"
		}
	}
	for _, other := range bound {
		if other.Spec.NodeName == node.Name && (avoids(pod, other) || avoids(other, pod)) {
			return "has a pod that it must not share a node with"
		}
	}
	return ""
}

// tolerates is ToleratesTaint of package corev1, whose signature depends on the version of client-go, without the
// operators Lt and Gt, which Kubernetes has switched off.
func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return t.Value == taint.Value
	default:
		return false
	}
}

// avoids reports whether a pod must not run on the node of another by its podAntiAffinity.
func avoids(pod, other *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		near := len(term.Namespaces) == 0 && other.Namespace == pod.Namespace ||
			slices.Contains(term.Namespaces, other.Namespace)
		if err == nil && term.TopologyKey == corev1.LabelHostname && near &&
			selector.Matches(labels.Set(other.Labels)) {
			return true
		}
	}
	return false
}

// bind makes the disks of a pod on a node, and gives the pod to it.
func (s scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claims := s.client.CoreV1().PersistentVolumeClaims(pod.Namespace)
		claim, err := claims.Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Spec.VolumeName == "" {
			if err := storage(s).provision(ctx, claim, node); err != nil {
				return s.unschedulable(ctx, pod, err.Error())
			}
		}
	}
	err := s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or bound: the watch is about to deliver that
	}
	return err
}

// unschedulable reports why a pod was not bound, unless the pod says so already.
func (s scheduler) unschedulable(ctx context.Context, pod *corev1.Pod, why string) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Message == why {
			return nil
		}
	}
	recorder(s).event(pod, "", corev1.EventTypeWarning, "FailedScheduling", why)
	return s.patchPod(ctx, pod, corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
		LastTransitionTime: metav1.Now(),
	}}})
}

// alone returns an error if the pool is to take all pods and another node would take them as well.
func (s scheduler) alone(ctx context.Context) error {
	if !s.o.AllPods {
		return nil
	}
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		if nodes.Items[i].Labels[PoolLabel] != s.o.Name {
			return fmt.Errorf("the pool cannot take all pods: node %s would take them as well; start the cluster with "+
				"DisableNode", nodes.Items[i].Name)
		}
	}
	return nil
}
