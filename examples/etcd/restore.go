package main

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/reconcile"
)

const restoring = "restore" // the init container

// source is the backup that a cluster begins with.
type source struct {
	backup *v1.EtcdBackup // nil: it cannot begin
	reason string         // then
	why    string
}

// source looks for the backup that the spec names. Its minor version is that of the cluster, or the one before: etcd
// reads what its predecessor has written.
func (r *call) source() source {
	name := r.cluster.Spec.Restore.Backup
	backup, ok := r.backups.Cache.Get(reconcile.Key{Namespace: r.cluster.Namespace, Name: name})
	switch {
	case !ok || backup.DeletionTimestamp != nil:
		return source{nil, v1.ReasonNoBackup, "there is no EtcdBackup " + name}
	case !complete(backup):
		return source{nil, v1.ReasonNoBackup, "EtcdBackup " + name + " is not complete"}
	}
	of, err := plan.ParseVersion(backup.Status.Version)
	wanted, err2 := plan.ParseVersion(r.wanted())
	if err != nil || err2 != nil || of.Minor != wanted.Minor && of.Minor+1 != wanted.Minor {
		return source{nil, v1.ReasonWrongVersion,
			fmt.Sprintf("EtcdBackup %s is of etcd %s, which %s does not read: ask for "+
				"a version of %d.%d", name, backup.Status.Version, r.wanted(), of.Major, of.Minor)}
	}
	return source{backup, "", ""}
}

// begins reports whether an action makes the pod of the first member.
func begins(seen observed, a plan.Action) bool { return a.Do == plan.CreatePod && !seen.Formed }

// withRestore lets a pod copy the backup to its disk before etcd starts. The copy is made once: see the command
// snapshot.
func (r *call) withRestore(pod *corev1.Pod, from *v1.EtcdBackup) {
	c := &pod.Spec.Containers[0]
	pod.Spec.InitContainers = []corev1.Container{{
		Name: restoring, Image: r.snapshotImage, SecurityContext: confinement(),
		Env: []corev1.EnvVar{c.Env[0]}, // POD_IP
		Args: []string{"restore", "--dir=" + backupDir, "--file=" + from.Status.File, "--sha256=" + from.Status.SHA256,
			"--name=" + pod.Name, "--peer-url=" + r.peerURL(r.host(pod.Name, "$(POD_IP)")),
			"--token=" + string(r.cluster.UID), "--data-dir=" + dataDir, "--message=" + messageFile},
		VolumeMounts: append([]corev1.VolumeMount{{Name: "backups", MountPath: backupDir, ReadOnly: true}},
			c.VolumeMounts...),
	}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume("backups", from.Spec.Claim))
}

// restored is the condition Restored.
func (r *call) restored(seen observed) metav1.Condition {
	c := metav1.Condition{Type: v1.Restored, Status: metav1.ConditionFalse, Reason: v1.ReasonRestoring,
		Message: "the first member copies EtcdBackup " + r.cluster.Spec.Restore.Backup}
	if seen.Formed {
		c.Status, c.Reason = metav1.ConditionTrue, v1.ReasonRestored
		c.Message = "the cluster has begun with the data of EtcdBackup " + r.cluster.Spec.Restore.Backup
		return c
	}
	for pod := range r.podsOf.Get(r.cluster.UID) {
		for _, s := range pod.Status.InitContainerStatuses {
			if text := lastMessage([]corev1.ContainerStatus{s}); text != "" {
				c.Reason, c.Message = v1.ReasonRestoreFailed, "try "+strconv.Itoa(int(s.RestartCount)+1)+": "+text
			}
		}
		return c
	}
	if from := r.source(); from.backup == nil {
		c.Reason, c.Message = from.reason, from.why
	}
	return c
}
