package processnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	// PoolLabel is a label of each node, and of each PersistentVolume, with the name of its pool. The nodes have a
	// taint of this name as well, which keeps DaemonSets away, unless the pool takes all pods.
	PoolLabel = "processnode"

	lookEvery     = time.Second
	heartbeat     = 10 * time.Second
	leaseDuration = 40 // seconds
	retryAfter    = 200 * time.Millisecond
	unlimited     = time.Duration(math.MaxInt64)
)

// Node is one node of a [Pool].
type Node struct {
	Name string
	pool *Pool

	starting sync.Mutex // held by Start and Stop, which therefore run one after the other

	// Guarded by pool.mu. The group has a goroutine for the Node object, and one for each pod. None is added once up is
	// false.
	up     bool
	cancel context.CancelFunc
	ctx    context.Context
	group  *lifecycle.Group
}

// Start registers the node, or brings it back after [Node.Stop]: the containers of its pods start again, on the disks
// that they had. It returns when the Node object is Ready. If ctx ends before, the node does not start. Start of a node
// that runs does nothing.
func (n *Node) Start(ctx context.Context) error {
	n.starting.Lock()
	defer n.starting.Unlock()
	p := n.pool
	if n.isUp() {
		return nil
	}
	if err := p.eventually(ctx, n.look); err != nil {
		return fmt.Errorf("start node %s: %w", n.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return fmt.Errorf("start node %s: the pool is closed", n.Name)
	}
	n.up, n.group = true, &lifecycle.Group{}
	n.ctx, n.cancel = context.WithCancel(p.ctx)
	ctx = n.ctx
	n.group.Go("node "+n.Name, func() { n.keep(ctx) })
	for _, pod := range p.pods {
		p.assign(pod)
	}
	p.kick()
	return nil
}

// Stop loses the node: all its processes are killed, its Lease is no longer renewed, and its pods and their disks stay
// as they were. It reports what the node controller reports 50 seconds after it last heard of a node: the condition
// Ready of the Node becomes Unknown and that of its pods False. The taints and evictions that follow are the node
// controller's. After Stop, deleting the Node object takes the node away for good. If ctx ends first, the processes are
// killed all the same.
func (n *Node) Stop(ctx context.Context) error {
	n.starting.Lock()
	defer n.starting.Unlock()
	n.kill()
	if err := n.pool.eventually(ctx, n.reportLost); err != nil {
		return fmt.Errorf("report node %s as lost: %w", n.Name, err)
	}
	return nil
}

func (n *Node) isUp() bool {
	n.pool.mu.Lock()
	defer n.pool.mu.Unlock()
	return n.up
}

// kill ends the goroutines of the node, and with them all its processes.
func (n *Node) kill() {
	n.pool.mu.Lock()
	wasUp := n.up
	n.up = false
	n.pool.mu.Unlock()
	if wasUp {
		n.cancel()
		n.pool.complain(context.Background(), n.group.Wait(unlimited))
	}
}

// keep keeps the Node in existence and Ready, and its Lease renewed.
func (n *Node) keep(ctx context.Context) {
	var renewed time.Time
	for {
		err := n.look(ctx)
		if err == nil && time.Since(renewed) > heartbeat {
			if err = n.renew(ctx); err == nil {
				renewed = time.Now()
			}
		}
		n.pool.complain(ctx, err)
		if !lifecycle.Sleep(ctx, lookEvery) {
			return
		}
	}
}

// look creates the Node if it is missing, and reports it as ready if it is not.
func (n *Node) look(ctx context.Context) error {
	nodes := n.pool.client.CoreV1().Nodes()
	o, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = nodes.Create(ctx, n.object(), metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if o.Labels[PoolLabel] != n.pool.o.Name {
		return fmt.Errorf("there is a node %s that is none of this pool", n.Name)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
			o.Status.DaemonEndpoints.KubeletEndpoint.Port == n.pool.kubelet.port {
			return nil
		}
	}
	return n.patch(ctx, n.object().Status)
}

func (n *Node) object() *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
			PoolLabel: n.pool.o.Name,
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{n.ready(corev1.ConditionTrue, "ProcessNodeReady")},
			// Not a name, which the API server would try to resolve when it asks for logs.
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP}},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: runtime.GOARCH,
				KubeletVersion: "v0.0.0-processnode"},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: n.pool.kubelet.port},
			},
		},
	}
	if !n.pool.o.AllPods {
		o.Spec.Taints = []corev1.Taint{{Key: PoolLabel, Value: n.pool.o.Name, Effect: corev1.TaintEffectNoSchedule}}
	}
	return o
}

func (n *Node) ready(status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: reason, LastHeartbeatTime: now,
		LastTransitionTime: now}
}

func (n *Node) patch(ctx context.Context, status corev1.NodeStatus) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = n.pool.client.CoreV1().Nodes().PatchStatus(ctx, n.Name, patch)
	return err
}

// renew shows that the node is alive. The node controller evicts the pods of a node whose Lease is not renewed.
func (n *Node) renew(ctx context.Context) error {
	leases := n.pool.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(leaseDuration)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds,
				RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	return err
}

// reportLost does what the node controller does when it has not heard of a node for some time.
func (n *Node) reportLost(ctx context.Context) error {
	lost := corev1.NodeStatus{Conditions: []corev1.NodeCondition{n.ready(corev1.ConditionUnknown, "NodeStatusUnknown")}}
	if err := n.patch(ctx, lost); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	n.pool.mu.Lock()
	var pods []*corev1.Pod
	for _, pod := range n.pool.pods {
		if pod.Spec.NodeName == n.Name && isReady(pod) {
			pods = append(pods, pod)
		}
	}
	n.pool.mu.Unlock()
	var failed []error
	for _, pod := range pods {
		failed = append(failed, n.pool.patchPod(ctx, pod, corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "NodeNotReady",
			LastTransitionTime: metav1.Now(),
		}}}))
	}
	return errors.Join(failed...)
}

// eventually tries again until there is no error, or ctx has ended.
func (p *Pool) eventually(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if !lifecycle.Sleep(ctx, retryAfter) {
			return errors.Join(err, ctx.Err())
		}
	}
}
