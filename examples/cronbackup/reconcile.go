package main

import (
	"context"
	"errors"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// cleanupLabels tell the Jobs that clean up from those of CronJobs, which the operator does not look at.
var cleanupLabels = map[string]string{"backups.example.com/cleanup": "true"}

// lastWord undoes what other clients set in the fields that the operator sets.
var lastWord = metav1.ApplyOptions{FieldManager: name, Force: true}

// reconciler makes the cluster match the CronBackups.
type reconciler struct {
	options
	backups  *informer.Cached[*v1.CronBackup]
	cronJobs *informer.Cached[*batchv1.CronJob]
	cleanups *informer.Cached[*batchv1.Job]
	events   *events.Recorder
}

// Reconcile makes the CronJob of a CronBackup what it should be, and cleans up when the CronBackup is being deleted.
func (r *reconciler) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	backup, ok := r.backups.Cache.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	owner := objects.NewOwner(r.backups.In(key.Namespace), backup, r.backups.GroupVersionKind())
	backup, alive, err := objects.Finalize(ctx, r.backups.In(key.Namespace), backup, v1.Finalizer,
		func(ctx context.Context) (bool, error) { return r.cleanUp(ctx, owner, backup) })
	if err != nil || !alive {
		return reconcile.Result{}, err
	}
	seen, _ := r.cronJobs.Cache.Get(key)
	job, err := objects.ApplyOwned(ctx, owner, r.cronJobs.In(key.Namespace), seen, r.cronJob(backup), lastWord, nil)
	ready, reason, message := metav1.ConditionTrue, v1.ReasonScheduled, "the CronJob starts the backups"
	var taken *objects.TakenError
	switch {
	case errors.As(err, &taken): // that CronJob is followed, too: its end brings the key back
		ready, reason, message = metav1.ConditionFalse, v1.ReasonNameTaken, err.Error()
	case apierrors.IsInvalid(err): // only a change of the CronBackup can help
		ready, reason, message = metav1.ConditionFalse, v1.ReasonRefused, err.Error()
	case err != nil:
		return reconcile.Result{}, err
	case backup.Spec.Suspend:
		reason, message = v1.ReasonSuspended, "no backups are started"
	}
	return reconcile.Result{}, r.report(ctx, backup, job, ready, reason, message)
}

// invalid is called in place of Reconcile while a CronBackup does not fit its Go type. Its CronJob goes on as it is.
func (r *reconciler) invalid(_ context.Context, _ reconcile.Key, why *informer.InvalidError) (reconcile.Result, error) {
	r.events.Event(why.Object, corev1.EventTypeWarning, v1.ReasonInvalid, why.Error())
	return reconcile.Result{}, nil
}

// cleanUp deletes the CronJob first, so that no backup is made any more, and then runs a Job that deletes the backups.
// It returns true when that Job has succeeded. Changes of both bring the key back.
func (r *reconciler) cleanUp(ctx context.Context, owner *objects.Owner, backup *v1.CronBackup) (bool, error) {
	if backup.Annotations[v1.SkipCleanup] == "true" {
		return true, nil
	}
	cronJob, _ := r.cronJobs.Cache.Get(informer.KeyOf(backup))
	gone, err := objects.DeleteOwned(ctx, owner, r.cronJobs.In(backup.Namespace), cronJob,
		metav1.DeletePropagationForeground) // its Jobs and pods go before it
	if err != nil || !gone {
		return false, err
	}
	config := r.cleanupJob(backup)
	job, _ := r.cleanups.Cache.Get(reconcile.Key{Namespace: backup.Namespace, Name: *config.Name})
	if job == nil || !metav1.IsControlledBy(job, backup) { // any client can make a Job of that name with those labels
		job, err = objects.ApplyOwned(ctx, owner, r.cleanups.In(backup.Namespace), job, config, lastWord, nil)
	}
	reason, message := v1.ReasonCleaningUp, "a Job is at work"
	var taken *objects.TakenError
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		klog.FromContext(ctx).Error(err, "No Job can clean up in a namespace that is being deleted; the backups stay")
		return true, nil
	case errors.As(err, &taken): // the end of that Job is not seen, so the error brings the key back
		reason, message = v1.ReasonNameTaken, err.Error()
	case err != nil:
		return false, err
	case finished(job, batchv1.JobComplete):
		return true, nil
	case finished(job, batchv1.JobFailed):
		reason, message = v1.ReasonCleanupFailed, "Job "+job.Name+
			" failed; another one follows in 5 minutes, unless the annotation "+v1.SkipCleanup+" is \"true\""
	}
	return false, errors.Join(err, r.report(ctx, backup, nil, metav1.ConditionFalse, reason, message))
}

// report writes the status if it changes, and an Event if the reason does. job may be nil.
func (r *reconciler) report(ctx context.Context, backup *v1.CronBackup, job *batchv1.CronJob,
	ready metav1.ConditionStatus, reason, message string) error {
	before, _ := objects.FindCondition(backup.Status.Conditions, v1.Ready)
	_, err := objects.UpdateStatus(ctx, r.backups.In(backup.Namespace), backup, func(b *v1.CronBackup) error {
		b.Status.ObservedGeneration = b.Generation
		if job != nil {
			b.Status.CronJobName, b.Status.LastScheduleTime = job.Name, job.Status.LastScheduleTime
			b.Status.LastSuccessfulTime = job.Status.LastSuccessfulTime
		}
		return objects.SetCondition(&b.Status.Conditions, b.Generation,
			metav1.Condition{Type: v1.Ready, Status: ready, Reason: reason, Message: message})
	})
	if err == nil && before.Reason != reason {
		kind := corev1.EventTypeNormal
		if ready == metav1.ConditionFalse && reason != v1.ReasonCleaningUp {
			kind = corev1.EventTypeWarning
		}
		r.events.Event(backup, kind, reason, message)
	}
	return err
}

func (r *reconciler) cronJob(backup *v1.CronBackup) *batchv1ac.CronJobApplyConfiguration {
	return batchv1ac.CronJob(backup.Name, backup.Namespace).WithSpec(batchv1ac.CronJobSpec().
		WithSchedule(backup.Spec.Schedule).
		WithTimeZone("Etc/UTC").
		WithSuspend(backup.Spec.Suspend).
		WithConcurrencyPolicy(batchv1.ForbidConcurrent).
		WithStartingDeadlineSeconds(600). // without one, a CronJob that has missed 100 starts never starts again
		WithJobTemplate(batchv1ac.JobTemplateSpec().WithSpec(r.jobSpec(backup, r.backup))))
}

// cleanupJob is the Job that deletes the backups. Five minutes after its end Kubernetes deletes it, and the operator
// makes another one if it has failed.
func (r *reconciler) cleanupJob(backup *v1.CronBackup) *batchv1ac.JobApplyConfiguration {
	return batchv1ac.Job(backup.Name+"-cleanup", backup.Namespace).WithLabels(cleanupLabels).
		WithSpec(r.jobSpec(backup, r.cleanup).WithTTLSecondsAfterFinished(300))
}

// jobSpec runs a command, which learns from its environment what it is for.
func (r *reconciler) jobSpec(backup *v1.CronBackup, command []string) *batchv1ac.JobSpecApplyConfiguration {
	container := corev1ac.Container().WithName("backup").WithImage(r.image).WithCommand(command...).WithEnv(
		corev1ac.EnvVar().WithName("BACKUP").WithValue(backup.Namespace+"/"+backup.Name),
		corev1ac.EnvVar().WithName("TARGET_DATABASE").WithValue(backup.Spec.TargetDatabase),
		corev1ac.EnvVar().WithName("RETENTION_DAYS").WithValue(strconv.Itoa(int(backup.Spec.RetentionDays))))
	pod := corev1ac.PodSpec().WithRestartPolicy(corev1.RestartPolicyNever).WithContainers(container)
	if r.account != "" {
		pod = pod.WithServiceAccountName(r.account)
	}
	return batchv1ac.JobSpec().WithBackoffLimit(2).WithTemplate(corev1ac.PodTemplateSpec().WithSpec(pod))
}

func finished(job *batchv1.Job, how batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == how && c.Status == corev1.ConditionTrue
	})
}
