package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// begin makes a cluster "r" of one member that begins with a backup.
func (w *backupWorld) begin(backup string, version v1.Version) {
	_, err := w.clusters.Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: v1.EtcdClusterSpec{Size: 1, Version: version, Restore: &v1.Restore{Backup: backup}}},
		metav1.CreateOptions{})
	require.NoError(w, err)
}

// condition returns one of an EtcdCluster.
func (w *backupWorld) condition(cluster, name string) metav1.Condition {
	now, err := w.clusters.Get(w.Context(), cluster, metav1.GetOptions{})
	require.NoError(w, err)
	c, _ := objects.FindCondition(now.Status.Conditions, name)
	return c
}

var restoreBehaviours = map[string]func(w *backupWorld){
	"the first member begins with the backup, and no other one": func(w *backupWorld) {
		w.make(newBackup("b", "a", 0))
		w.begin("b", "3.6.16") // and waits for it
		time.Sleep(time.Second)
		require.Equal(w, v1.ReasonNoBackup, w.condition("r", v1.Restored).Reason)
		time.Sleep(time.Minute)
		require.Equal(w, metav1.ConditionTrue, w.condition("r", v1.Restored).Status)
		pod, ok := reconciletest.Get[*corev1.Pod](w.server, "pods", "default", "r-1")
		require.True(w, ok)
		args := pod.Spec.InitContainers[0].Args
		status := w.says("b", metav1.ConditionTrue, v1.ReasonVerified, "")
		require.Contains(w, args, "--file="+status.File)
		require.Contains(w, args, "--sha256="+status.SHA256)
		require.Contains(w, args, "--peer-url=http://r-1.r.default.svc:2380")
		require.NoError(w, w.pods.Delete(w.Context(), "r-1", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		pod, ok = reconciletest.Get[*corev1.Pod](w.server, "pods", "default", "r-1")
		require.True(w, ok)
		require.Empty(w, pod.Spec.InitContainers, "the disk has the data already")
	},
	"a backup that is not there, and one of another version": func(w *backupWorld) {
		w.begin("none", "3.6.16")
		time.Sleep(time.Minute)
		require.Equal(w, v1.ReasonNoBackup, w.condition("r", v1.Restored).Reason)
		require.Equal(w, 1, w.told(v1.ReasonNoBackup))
		require.NoError(w, w.clusters.Delete(w.Context(), "r", metav1.DeleteOptions{}))
		w.make(newBackup("b", "a", 0))
		time.Sleep(time.Minute)
		w.begin("b", "3.5.35")
		time.Sleep(time.Minute)
		require.Equal(w, v1.ReasonWrongVersion, w.condition("r", v1.Restored).Reason)
		_, ok := reconciletest.Get[*corev1.Pod](w.server, "pods", "default", "r-1")
		require.False(w, ok, "nothing begins empty")
	},
	"restore is for new clusters": func(w *backupWorld) {
		require.ErrorContains(w, w.patch(`{"spec":{"restore":{"backup":"b"}}}`), "for new clusters only")
	},
	"a last backup is made before the end": func(w *backupWorld) {
		require.NoError(w, w.patch(`{"spec":{"lastBackup":{"claim":"backups","retentionDays":3}}}`))
		time.Sleep(time.Second)
		require.NoError(w, w.clusters.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		require.Equal(w, v1.ReasonLastBackup, w.condition("a", v1.Deletable).Reason)
		require.Len(w, ofMembers(reconciletest.List[*corev1.Pod](w.server, "pods", "default")), 1)
		time.Sleep(time.Minute)
		_, ok := reconciletest.Get[*v1.EtcdCluster](w.server, "etcdclusters.etcd.example.com", "default", "a")
		require.False(w, ok)
		require.Empty(w, ofMembers(reconciletest.List[*corev1.Pod](w.server, "pods", "default")))
		require.Len(w, w.names(), 1)
		require.Equal(w, 1, files())
	},
	"a last backup that cannot be made is said, and the way out is open": func(w *backupWorld) {
		require.NoError(w, w.patch(`{"spec":{"lastBackup":{"claim":"none"}}}`))
		time.Sleep(time.Second)
		require.NoError(w, w.clusters.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		is := w.condition("a", v1.Deletable)
		require.Equal(w, v1.ReasonBackupFailed, is.Reason)
		require.Contains(w, is.Message, "there is no PersistentVolumeClaim none")
		require.Contains(w, is.Message, "Remove spec.lastBackup")
		require.Equal(w, 1, w.told(v1.ReasonBackupFailed))
		require.NoError(w, w.patch(`{"spec":{"lastBackup":null}}`))
		time.Sleep(time.Minute)
		_, ok := reconciletest.Get[*v1.EtcdCluster](w.server, "etcdclusters.etcd.example.com", "default", "a")
		require.False(w, ok)
	},
	"a claim that is mended lets the last backup be made": func(w *backupWorld) {
		setFull(true)
		require.NoError(w, w.patch(`{"spec":{"lastBackup":{"claim":"backups"}}}`))
		time.Sleep(time.Second)
		require.NoError(w, w.clusters.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		require.Equal(w, v1.ReasonBackupFailed, w.condition("a", v1.Deletable).Reason)
		setFull(false)
		time.Sleep(time.Minute)
		_, ok := reconciletest.Get[*v1.EtcdCluster](w.server, "etcdclusters.etcd.example.com", "default", "a")
		require.False(w, ok)
		require.Equal(w, 1, files())
	},
}

func TestRestoresAndLastBackups(t *testing.T) {
	for what, test := range restoreBehaviours {
		t.Run(what, func(t *testing.T) { withBackups(t, test) })
	}
}
