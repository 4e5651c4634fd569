package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// realBackups makes a claim for backups, and returns the client of EtcdBackups.
func (w *real) realBackups() *informer.Resource[*v1.EtcdBackup] {
	cfg := w.cluster.Config()
	claims, err := informer.NewResource[*corev1.PersistentVolumeClaim](cfg,
		corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), informer.ResourceOptions{})
	require.NoError(w, err)
	_, err = claims.In(w.namespace).Create(w.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "backups"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Resources: corev1.
					VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	backups, err := informer.NewResource[*v1.EtcdBackup](cfg, v1.GroupVersion.WithResource("etcdbackups"),
		informer.ResourceOptions{})
	require.NoError(w, err)
	return backups.In(w.namespace)
}

// isComplete waits for a backup.
func (w *real) isComplete(backups *informer.Resource[*v1.EtcdBackup], name string) (now *v1.EtcdBackup) {
	begin := time.Now()
	for time.Since(begin) < 3*time.Minute {
		var err error
		if now, err = backups.Get(w.Context(), name, metav1.GetOptions{}); err == nil && complete(now) {
			w.Logf("backup %s: %.1f s, %d keys, revision %d, %d bytes", name, time.Since(begin).Seconds(),
				now.Status.Keys, now.Status.Revision, now.Status.Size)
			return now
		}
		<-time.After(50 * time.Millisecond)
	}
	w.Fatalf("backup %s: not complete: %+v", name, now)
	return nil
}

// write writes keys, and returns those that were acknowledged.
func (w *real) write(n int) (acknowledged []string) {
	c, err := clientv3.New(clientv3.Config{Endpoints: w.endpoints(), Logger: zap.NewNop()})
	require.NoError(w, err)
	defer c.Close()
	for i := range n {
		key := fmt.Sprintf("key-%06d", i)
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		if _, err := c.Put(ctx, key, key); err == nil {
			acknowledged = append(acknowledged, key)
		}
		cancel()
	}
	require.NotEmpty(w, acknowledged)
	return acknowledged
}

// keys are those of the cluster with a prefix.
func (w *real) keys(prefix string) map[string]bool {
	c, err := clientv3.New(clientv3.Config{Endpoints: w.endpoints(), Logger: zap.NewNop()})
	require.NoError(w, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	all, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(w, err)
	there := map[string]bool{}
	for _, kv := range all.Kvs {
		there[string(kv.Key)] = true
	}
	return there
}

// TestBackupAndRestore writes, backs up, destroys the cluster with its disks, and restores it: all that was
// acknowledged before the backup is there. Beside that, a CronJob makes backups of its own.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	w := newReal(t, "3.6.16")
	backups := w.realBackups()
	schedules := w.schedule()
	w.create(3, "3.6.16")
	w.settles("three members")
	l := w.load()
	acknowledged := w.write(500)
	_, err := backups.Create(t.Context(), newBackup("b", "a", 0), metav1.CreateOptions{})
	require.NoError(t, err)
	status := w.isComplete(backups, "b").Status
	l.check()
	require.Equal(t, "3.6.16", status.Version)
	require.Len(t, status.SHA256, 64)
	require.NotZero(t, status.HashKV)

	w.patch(`{"spec":{"lastBackup":{"claim":"backups"}}}`)
	require.Eventually(t, func() bool {
		now, err := w.clusters.In(w.namespace).Get(t.Context(), "a", metav1.GetOptions{})
		return err == nil && slices.Contains(now.Finalizers, v1.LastBackupFinalizer)
	}, time.Minute, 50*time.Millisecond, "the EtcdCluster is held")
	old, err := w.clusters.In(w.namespace).Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, w.clusters.In(w.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	last := w.isComplete(backups, "last-"+string(old.UID))
	require.Eventually(t, func() bool {
		pods, err := w.pods.In(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1.ClusterLabel})
		return err == nil && len(pods.Items) == 0
	}, time.Minute, 50*time.Millisecond, "the members are gone")

	_, err = w.clusters.In(w.namespace).Create(t.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: 3, Version: "3.6.16", Image: "etcd",
			Restore: &v1.Restore{Backup: last.Name}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	now := w.settles("three members with the data of the last backup")
	restored, _ := objects.FindCondition(now.Status.Conditions, v1.Restored)
	require.Equal(t, metav1.ConditionTrue, restored.Status, restored.Message)
	require.NotEqual(t, old.Status.ClusterID, now.Status.ClusterID)
	there := w.keys("key-")
	for _, key := range acknowledged {
		require.True(t, there[key], "%s was acknowledged, and is lost", key)
	}
	w.isScheduled(schedules, backups)
	t.Logf("%d acknowledged writes, all of them there", len(acknowledged))
}
