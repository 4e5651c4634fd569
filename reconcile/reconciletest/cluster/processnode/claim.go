package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// StorageClass is the name of the StorageClass of all pools in a cluster. Where a pool takes all pods it is the default
// class.
const StorageClass = "processnode"

// storage is the part of a pool that makes disks for claims.
type storage struct{ *Pool }

// ensureStorageClass makes the class. It stays when the pool ends.
func (s storage) ensureStorageClass(ctx context.Context) error {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{}},
		Provisioner:       PoolLabel,
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	if s.o.AllPods {
		class.Annotations["storageclass.kubernetes.io/is-default-class"] = "true"
	}
	_, err := s.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// disk returns the folder of a claim that a pod on a node mounts, once the claim is bound to it.
func (s storage) disk(ctx context.Context, namespace, name, node string) (string, error) {
	claim, err := s.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Spec.VolumeName == "" {
		if err := s.provision(ctx, claim, node); err != nil {
			return "", err
		}
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("claim %s is not bound yet", name)
	}
	v, err := s.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	switch {
	case v.Labels[PoolLabel] != s.o.Name:
		return "", fmt.Errorf("claim %s is bound to volume %s, which is none of this pool", name, v.Name)
	case v.Annotations[onNode] != node:
		return "", fmt.Errorf("claim %s is bound to a disk of node %s", name, v.Annotations[onNode])
	}
	return s.diskDir(v.Name), nil
}

// onNode is the annotation of a PersistentVolume with the node that has the disk.
const onNode = PoolLabel + "/node"

func (s storage) diskDir(volume string) string { return filepath.Join(s.dir, "disks", volume) }

// provision makes a disk on a node for a claim of our class. The controller manager then binds the claim.
func (s storage) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	class := or(claim.Spec.StorageClassName, "")
	if class != StorageClass {
		return fmt.Errorf("claim %s is of StorageClass %q; this node has disks of class %s only", claim.Name, class,
			StorageClass)
	}
	name := "pvc-" + string(claim.UID)
	if err := os.MkdirAll(s.diskDir(name), 0o755); err != nil {
		return err
	}
	_, err := s.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{PoolLabel: s.o.Name},
			Annotations: map[string]string{
				onNode: node, "pv.kubernetes.io/provisioned-by": PoolLabel,
			}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      claim.Spec.Resources.Requests,
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              StorageClass,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: s.diskDir(name)},
			},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: claim.Namespace,
				Name:      claim.Name, UID: claim.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}}}},
			}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// run removes the disks whose claims are gone, until the pool ends.
func (s storage) run() {
	for {
		s.complain(s.ctx, s.follow(s.ctx))
		if !lifecycle.Sleep(s.ctx, retryAfter) {
			return
		}
	}
}

func (s storage) follow(ctx context.Context) error {
	client := s.client.CoreV1().PersistentVolumes()
	ours := metav1.ListOptions{LabelSelector: PoolLabel + "=" + s.o.Name}
	list, err := client.List(ctx, ours)
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for i := range list.Items {
		if err := s.reclaim(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	ours.ResourceVersion = list.ResourceVersion
	w, err := client.Watch(ctx, ours)
	if err != nil {
		return fmt.Errorf("watch volumes: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		v, ok := event.Object.(*corev1.PersistentVolume)
		if !ok {
			return fmt.Errorf("watch volumes: %w", apierrors.FromObject(event.Object))
		}
		if event.Type == watch.Deleted {
			continue
		}
		if err := s.reclaim(ctx, v); err != nil {
			return err
		}
		s.kick() // a pod may have waited for its claim
	}
	return nil
}

// reclaim deletes a volume and its disk when its claim is gone.
func (s storage) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Status.Phase != corev1.VolumeReleased || v.DeletionTimestamp != nil ||
		v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if err := os.RemoveAll(s.diskDir(v.Name)); err != nil {
		return err
	}
	err := s.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// removeObjects takes back what the pool has in the API server: the nodes, their pods and their volumes. What cannot be
// removed stays: the cluster is about to end, or has.
func (p *Pool) removeObjects(ctx context.Context) {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	var failed []error
	p.mu.Lock()
	pods := p.pods
	p.pods = nil
	for _, a := range p.addresses {
		a.held.Close()
	}
	p.mu.Unlock()
	for _, pod := range pods {
		if strings.HasPrefix(pod.Spec.NodeName, p.o.Name+"-") && ctx.Err() == nil && failed == nil {
			if err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, now); !apierrors.IsNotFound(err) {
				failed = append(failed, err)
			}
		}
	}
	if errors.Join(failed...) != nil {
		return
	}
	for _, n := range p.nodes {
		_ = p.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
		_ = p.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, n.Name, metav1.DeleteOptions{})
	}
	_ = p.client.CoreV1().PersistentVolumes().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: PoolLabel + "=" + p.o.Name})
}
