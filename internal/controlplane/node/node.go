package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

const (
	heartbeat     = 10 * time.Second // between two renewals of the node's Lease
	leaseDuration = 40               // seconds, as a kubelet says
)

// nodeReconciler keeps one Node in existence, Ready and renewed. Its heartbeat is a reconcile that asks for the next
// one.
type nodeReconciler struct {
	name   string
	client kubernetes.Interface
	nodes  *informer.SharedIndexInformer[*corev1.Node]
}

func (r *nodeReconciler) Reconcile(ctx context.Context, key informer.Key) (reconcile.Result, error) {
	node, ok := r.nodes.Get(key)
	if !ok {
		// its arrival in the cache brings us back here
		return reconcile.Result{}, ignoreExists(create(ctx, r.client, r.name))
	}
	if !isReady(node) {
		if err := r.reportReady(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: heartbeat}, r.renew(ctx, node)
}

// register makes the Node, however long the API server takes to answer: without an object there is no key to reconcile.
func register(ctx context.Context, client kubernetes.Interface, name string) error {
	for {
		err := ignoreExists(create(ctx, client, name))
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) {
			return err
		}
		klog.FromContext(ctx).Error(err, "Trying again in a second", "node", name)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func create(ctx context.Context, client kubernetes.Interface, name string) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: readyConditions(),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64",
				KubeletVersion: "v0.0.0-standin"},
		},
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	return nil
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

// reportReady takes back what the node controller concluded while nothing was heard of the node.
func (r *nodeReconciler) reportReady(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": readyConditions()}})
	if err != nil {
		return err
	}
	if _, err := r.client.CoreV1().Nodes().PatchStatus(ctx, r.name, patch); err != nil {
		return fmt.Errorf("report node %s as ready: %w", r.name, err)
	}
	return nil
}

// renew says that the node is alive. Where nobody does, the node controller has all its pods evicted.
func (r *nodeReconciler) renew(ctx context.Context, node *corev1.Node) error {
	leases := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"holderIdentity": r.name, "renewTime": now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, r.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(leaseDuration)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: r.name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &r.name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the lease of node %s: %w", r.name, err)
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
