package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// hold keeps an EtcdCluster for as long as its last backup is not complete. It returns false when nothing is to be done
// for the EtcdCluster any more. While the backup is made, the members are kept as always: it is made of them.
func (r *call) hold(ctx context.Context) (goOn bool, err error) {
	c := r.cluster
	deleting, held := c.DeletionTimestamp != nil, slices.Contains(c.Finalizers, v1.LastBackupFinalizer)
	if !held && (deleting || c.Spec.LastBackup == nil) {
		return !deleting, nil
	}
	released := false
	r.cluster, _, err = objects.Finalize(ctx, r.clusters.In(c.Namespace), c, v1.LastBackupFinalizer,
		func(ctx context.Context) (bool, error) {
			var err error
			released, err = r.lastBackup(ctx)
			return released, err
		})
	return !released, err
}

// lastBackup makes the last backup, and returns true when it is complete, or none is asked for any more.
func (r *call) lastBackup(ctx context.Context) (bool, error) {
	c := r.cluster
	if c.Spec.LastBackup == nil || c.Status.ClusterID == "" { // nothing was ever in it
		return true, nil
	}
	name := "last-" + string(c.UID)
	backup, ok := r.backups.Cache.Get(reconcile.Key{Namespace: c.Namespace, Name: name})
	if !ok {
		_, err := r.backups.In(c.Namespace).Create(ctx, &v1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.EtcdBackupSpec{Cluster: c.Name, Claim: c.Spec.LastBackup.Claim,
				RetentionDays: c.Spec.LastBackup.RetentionDays}}, metav1.CreateOptions{})
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			klog.FromContext(ctx).Error(err, "No last backup can be made in a namespace that is being deleted")
			return true, nil
		case err != nil && !apierrors.IsAlreadyExists(err):
			return false, err
		}
		return false, r.undeletable(ctx, v1.ReasonLastBackup, "EtcdBackup "+name+" is made")
	}
	state, _ := objects.FindCondition(backup.Status.Conditions, v1.Complete)
	switch {
	case complete(backup):
		return true, nil
	case backup.Status.Finished != nil: // it has failed for good: its successor has the same name
		err := r.backups.In(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(backup.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		fallthrough
	case state.Reason != "" && state.Reason != v1.ReasonRunning:
		return false, r.undeletable(ctx, v1.ReasonBackupFailed,
			fmt.Sprintf("EtcdBackup %s: %s: %s; it is tried again. "+
				"Remove spec.lastBackup to let the EtcdCluster go without", name, state.Reason, state.Message))
	}
	return false, r.undeletable(ctx, v1.ReasonLastBackup, "EtcdBackup "+name+" is under way")
}

// undeletable says why the EtcdCluster is still there.
func (r *call) undeletable(ctx context.Context, reason, message string) error {
	before, _ := objects.FindCondition(r.cluster.Status.Conditions, v1.Deletable)
	now, err := objects.UpdateStatus(ctx, r.clusters.In(r.cluster.Namespace), r.cluster, func(c *v1.EtcdCluster) error {
		return objects.SetCondition(&c.Status.Conditions, c.Generation, metav1.Condition{Type: v1.Deletable,
			Status: metav1.ConditionFalse, Reason: reason, Message: message[:min(len(message), 1500)]})
	})
	if err != nil {
		return err
	}
	r.cluster = now
	if before.Reason != reason {
		kind := corev1.EventTypeNormal
		if reason == v1.ReasonBackupFailed {
			kind = corev1.EventTypeWarning
		}
		r.events.Event(now, kind, reason, message)
	}
	return nil
}
