package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// backUp stops the clients, and makes a backup.
func (s *story) backUp(ctx context.Context) (string, error) {
	s.clients.Stop()
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}}
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if _, err := s.claims.In(s.namespace).Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	backups := s.backups.In(s.namespace)
	now, err := backups.Create(ctx, &v1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{Name: backup},
		Spec: v1.EtcdBackupSpec{Cluster: database, Claim: claim}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	err = wait(ctx, "the backup", func() (bool, error) {
		if now, err = backups.Get(ctx, backup, metav1.GetOptions{}); err != nil {
			return false, err
		}
		complete, _ := objects.FindCondition(now.Status.Conditions, v1.Complete)
		return complete.Status == metav1.ConditionTrue, nil
	})
	return fmt.Sprintf("the backup has revision %d, %d keys, %d KiB, and the hash that the member has said",
		now.Status.Revision, now.Status.Keys, now.Status.Size>>10), err
}

// destroy deletes the EtcdCluster. The garbage collector deletes what it owns.
func (s *story) destroy(ctx context.Context) (string, error) {
	if err := s.clusters.In(s.namespace).Delete(ctx, database, metav1.DeleteOptions{}); err != nil {
		return "", err
	}
	return "no member and no disk is left", wait(ctx, "the end of all members", func() (bool, error) {
		pods, err := s.pods.In(s.namespace).List(ctx, ofMembers)
		if err != nil {
			return false, err
		}
		claims, err := s.claims.In(s.namespace).List(ctx, ofMembers)
		return err == nil && len(pods.Items)+len(claims.Items) == 0, err
	})
}

// restore makes an EtcdCluster with the data of the backup.
func (s *story) restore(ctx context.Context) (string, error) {
	if err := s.create(ctx, newer, &v1.Restore{Backup: backup}); err != nil {
		return "", err
	}
	now, err := s.until(ctx, "three restored members", settled)
	if err != nil {
		return "", err
	}
	restored, _ := objects.FindCondition(now.Status.Conditions, v1.Restored)
	if restored.Status != metav1.ConditionTrue {
		return "", fmt.Errorf("the backup was not restored: %s", restored.Message)
	}
	return "three members vote", nil
}

// goOn lets the clients read and write again.
func (s *story) goOn(ctx context.Context) (string, error) {
	s.clients.Resume(ctx)
	return s.watch(ctx)
}
