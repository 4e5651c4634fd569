package main

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// The two Jobs of an EtcdBackup. Their names begin so, and end with its UID.
const (
	saving   = "save"
	removing = "remove"
)

const (
	backupDir   = "/backups"             // where the claim is mounted
	messageFile = "/dev/termination-log" // what a container writes here is in the status of its pod
)

func jobName(what string, b *v1.EtcdBackup) string { return what + "-" + string(b.UID) }

// file is the name of the file on the claim. Another EtcdBackup of that name has another file.
func (c *backupCall) file() string { return c.backup.Name + "-" + string(c.backup.UID) + ".db" }

// job returns a Job of the backup, or nil.
func (c *backupCall) job(what string) *batchv1.Job {
	job, ok := c.jobs.Cache.Get(reconcile.Key{Namespace: c.backup.Namespace, Name: jobName(what, c.backup)})
	if !ok || !metav1.IsControlledBy(job, c.backup) {
		return nil
	}
	return job
}

func (c *backupCall) deleteJob(ctx context.Context, job *batchv1.Job) error {
	_, err := objects.DeleteOwned(ctx, c.owner, c.jobs.In(job.Namespace), job, metav1.DeletePropagationBackground)
	return err
}

// saveJob makes the file. A pod that fails is not tried again in the same Job: the next Job asks the members that are
// healthy then.
func (c *backupCall) saveJob(cluster *v1.EtcdCluster, urls []string) *batchv1.Job {
	left := max(1, int64(time.Until(c.deadline())/time.Second))
	job := c.newJob(saving, 3600, "--endpoints="+strings.Join(urls, ","))
	job.Spec.ActiveDeadlineSeconds = &left
	if cluster.Spec.TLS != nil {
		pod := &job.Spec.Template.Spec
		pod.Volumes = append(pod.Volumes, secretVolume("tls", clientSecret(cluster.Name)))
		of := &pod.Containers[0]
		of.VolumeMounts = append(of.VolumeMounts, corev1.VolumeMount{Name: "tls", MountPath: tlsDir, ReadOnly: true})
		of.Args = append(of.Args, "--tls="+tlsDir)
	}
	return job
}

// removeJob removes the file.
func (c *backupCall) removeJob() *batchv1.Job { return c.newJob(removing, 300) }

func (c *backupCall) newJob(what string, ttl int32, args ...string) *batchv1.Job {
	labels := map[string]string{v1.BackupLabel: c.backup.Name, "app.kubernetes.io/name": "etcd-backup"}
	args = append([]string{what, "--dir=" + backupDir, "--file=" + c.file(), "--message=" + messageFile}, args...)
	pod := confined(corev1.Container{Name: "snapshot", Image: c.snapshotImage, Args: args,
		VolumeMounts: []corev1.VolumeMount{{Name: "backups", MountPath: backupDir}}})
	pod.RestartPolicy = corev1.RestartPolicyNever
	pod.Volumes = []corev1.Volume{claimVolume("backups", c.backup.Spec.Claim)}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobName(what, c.backup), Namespace: c.backup.Namespace,
		Labels: labels}, Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: &ttl,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}}}
}

// ended reports whether a Job has ended so.
func ended(job *batchv1.Job, how batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == how && c.Status == corev1.ConditionTrue
	})
}

// endOf is when a Job has ended.
func endOf(job *batchv1.Job) (at time.Time) {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// failure is why a Job has failed: what its pod has said, or else the Job controller.
func (c *backupCall) failure(job *batchv1.Job) (why string) {
	for _, condition := range job.Status.Conditions {
		if condition.Type == batchv1.JobFailed {
			why = condition.Message
		}
	}
	for pod := range c.podsOfJob(job) {
		if text := lastMessage(pod.Status.ContainerStatuses); text != "" {
			why = text
		}
	}
	return why
}

func (c *backupCall) podsOfJob(job *batchv1.Job) iter.Seq[*corev1.Pod] {
	return c.jobPodsOf.Get(job.UID)
}

// lastMessage is what the container has said last.
func lastMessage(containers []corev1.ContainerStatus) string {
	for _, s := range containers {
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil && t.Message != "" {
				return t.Message
			}
		}
	}
	return ""
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}
