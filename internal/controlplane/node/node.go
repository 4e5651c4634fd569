// Package node stands in for a node: it does to the API server what a scheduler and a kubelet do, and runs no
// containers.
//
// It registers a Node and keeps it Ready, binds the pods that have no node yet, reports them as Running and Ready, and
// ends those that are deleted. As far as its objects can tell, a control plane without machines is then a cluster.
//
// [Options] say how long each step takes for all pods. Annotations say it for one pod, and can make it fail:
//
//	standin/start-after: 2s          from bound to Running; "never" is a duration, too
//	standin/ready-after: 5s          from Running to Ready
//	standin/end-after: 30s           from the delete request to the end of the pod
//	standin/outcome: Failed          how the pod ends by itself: Failed or Succeeded
//	standin/outcome-after: 3s        from Running to that end; without it at once
//
// Timestamps in the API have whole seconds, so a step may come up to a second early.
//
// With Options.Metrics it also serves metrics.k8s.io for the pods that run, whatever node they are on. Their
// annotations say what each of their containers uses, and a change of them is seen at once:
//
//	standin/usage: cpu=250m,memory=64Mi    each container; a pod without it has no sample
//	standin/usage.web: cpu=1               the container web, instead of what standin/usage says
//
// It is written on client-go alone. What it is a test bed for, it must not be made of.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Options are the name of the node, the durations of a pod's steps, and whether there are metrics.
type Options struct {
	Name       string
	Metrics    bool          // serve metrics.k8s.io; for one node of a cluster
	StartAfter time.Duration // from bound to Running
	ReadyAfter time.Duration // from Running to Ready
	EndAfter   time.Duration // from the delete request to the end of the pod
}

const (
	lookEvery     = time.Second      // between two looks at the Node
	heartbeat     = 10 * time.Second // between two renewals of its Lease
	leaseDuration = 40               // seconds, as a kubelet writes it
	retryAfter    = 200 * time.Millisecond
)

// Run plays the node until ctx ends. What fails is written to standard error and tried again.
func Run(ctx context.Context, client kubernetes.Interface, o Options) {
	n := &node{name: o.Name, client: client}
	p := newPods(o, client)
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	if o.Metrics {
		running.Go(func() { serveMetrics(ctx, client, p) })
	}
	n.run(ctx)
	running.Wait()
}

// complain writes what failed to standard error. What fails after the end of ctx fails because of it.
func complain(ctx context.Context, err error) {
	if ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s node: %v\n", time.Now().Format("15:04:05.000"), err)
	}
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// node keeps one Node in existence, Ready and its Lease renewed.
type node struct {
	name    string
	client  kubernetes.Interface
	renewed time.Time
}

func (n *node) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.look(ctx); err != nil {
			complain(ctx, err)
		}
		sleep(ctx, lookEvery)
	}
}

// look creates the Node if it is missing, reports it as ready if it is not, and renews its Lease in time.
func (n *node) look(ctx context.Context) error {
	o, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		o, err = n.client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{})
		n.renewed = time.Time{} // the Lease belongs to the Node that is gone
	}
	if err != nil {
		return fmt.Errorf("read or create node %s: %w", n.name, err)
	}
	if !isReady(o) {
		if err := n.reportReady(ctx); err != nil {
			return err
		}
	}
	if time.Since(n.renewed) < heartbeat {
		return nil
	}
	return n.renew(ctx, o)
}

func (n *node) object() *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: readyConditions(),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.name}},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64",
				KubeletVersion: "v0.0.0-standin"},
		},
	}
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readyConditions() []corev1.NodeCondition {
	now := metav1.Now()
	condition := func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: status, Reason: reason, LastHeartbeatTime: now,
			LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "StandinReady"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "StandinHasNone"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "StandinHasNone"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "StandinHasNone"),
	}
}

// reportReady takes back what the node controller wrote while the node was silent.
func (n *node) reportReady(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": readyConditions()}})
	if err != nil {
		return err
	}
	if _, err := n.client.CoreV1().Nodes().PatchStatus(ctx, n.name, patch); err != nil {
		return fmt.Errorf("report node %s as ready: %w", n.name, err)
	}
	return nil
}

// renew shows that the node is alive. The node controller evicts the pods of a node whose Lease is not renewed.
func (n *node) renew(ctx context.Context, o *corev1.Node) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"holderIdentity": n.name, "renewTime": now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(leaseDuration)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: o.Name, UID: o.UID},
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the lease of node %s: %w", n.name, err)
	}
	n.renewed = now.Time
	return nil
}
