package main

import (
	"context"
	"errors"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
)

// cleanupLabels tell the Jobs that clean up from those of CronJobs, which the operator does not look at.
var cleanupLabels = map[string]string{"backups.example.com/cleanup": "true"}

var errTaken = errors.New("an object of that name belongs to another owner, or to none")

// CronBackupReconciler makes the cluster match the CronBackups.
type CronBackupReconciler struct {
	client.Client
	events record.EventRecorder
	options
}

// Reconcile makes the CronJob of a CronBackup what it should be, and cleans up when the CronBackup is being deleted.
func (r *CronBackupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var backup v1.CronBackup
	if err := r.Get(ctx, req.NamespacedName, &backup); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := backup.DeepCopy()
	if !backup.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &backup)
	}
	if controllerutil.AddFinalizer(&backup, v1.Finalizer) {
		if err := r.patch(ctx, &backup, before); err != nil {
			return ctrl.Result{}, err
		}
	}
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: backup.Namespace, Name: backup.Name}}
	_, err := controllerutil.CreateOrPatch(ctx, r.Client, job, func() error {
		if job.UID != "" && !metav1.IsControlledBy(job, &backup) {
			return errTaken
		}
		r.setCronJob(job, &backup)
		return controllerutil.SetControllerReference(&backup, job, r.Scheme())
	})
	switch {
	case errors.Is(err, errTaken): // that CronJob is followed, too: its end brings the key back
		err = r.report(ctx, &backup, nil, metav1.ConditionFalse, v1.ReasonNameTaken, err.Error())
	case apierrors.IsInvalid(err): // only a change of the CronBackup can help
		err = r.report(ctx, &backup, nil, metav1.ConditionFalse, v1.ReasonRefused, err.Error())
	case err != nil:
	case backup.Spec.Suspend:
		err = r.report(ctx, &backup, job, metav1.ConditionTrue, v1.ReasonSuspended, "no backups are started")
	default:
		err = r.report(ctx, &backup, job, metav1.ConditionTrue, v1.ReasonScheduled, "the CronJob starts the backups")
	}
	return ctrl.Result{}, err
}

// patch writes the metadata, if the object is still at the version that was seen.
func (r *CronBackupReconciler) patch(ctx context.Context, backup, before *v1.CronBackup) error {
	return r.Patch(ctx, backup, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// finalize removes the finalizer when the clean-up is done.
func (r *CronBackupReconciler) finalize(ctx context.Context, backup *v1.CronBackup) error {
	if !controllerutil.ContainsFinalizer(backup, v1.Finalizer) {
		return nil
	}
	if done, err := r.cleanUp(ctx, backup); err != nil || !done {
		return err
	}
	before := backup.DeepCopy()
	controllerutil.RemoveFinalizer(backup, v1.Finalizer)
	return client.IgnoreNotFound(r.patch(ctx, backup, before))
}

// cleanUp deletes the CronJob first, so that no backup is made any more, and then runs a Job that deletes the backups.
// It returns true when that Job has succeeded. Changes of both bring the key back.
func (r *CronBackupReconciler) cleanUp(ctx context.Context, backup *v1.CronBackup) (done bool, err error) {
	if backup.Annotations[v1.SkipCleanup] == "true" {
		return true, nil
	}
	var cronJob batchv1.CronJob
	err = r.Get(ctx, client.ObjectKeyFromObject(backup), &cronJob)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	if err == nil && metav1.IsControlledBy(&cronJob, backup) {
		if cronJob.DeletionTimestamp.IsZero() {
			// The CronJob goes when its Jobs and pods have gone.
			err = client.IgnoreNotFound(r.Delete(ctx, &cronJob, client.Preconditions{UID: &cronJob.UID},
				client.PropagationPolicy(metav1.DeletePropagationForeground)))
		}
		return false, err
	}
	job := r.cleanupJob(backup)
	if err = r.Get(ctx, client.ObjectKeyFromObject(job), job); apierrors.IsNotFound(err) {
		if err = controllerutil.SetControllerReference(backup, job, r.Scheme()); err == nil {
			err = r.Create(ctx, job)
		}
	} else if err == nil && !metav1.IsControlledBy(job, backup) { // any client can make a Job of that name
		err = errTaken
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		log.FromContext(ctx).Error(err, "No Job can clean up in a namespace that is being deleted; the backups stay")
		return true, nil
	case errors.Is(err, errTaken): // the error brings the key back
		return false, errors.Join(err, r.report(ctx, backup, nil, metav1.ConditionFalse, v1.ReasonNameTaken,
			err.Error()))
	case err != nil:
		return false, err
	case finished(job, batchv1.JobComplete):
		return true, nil
	case finished(job, batchv1.JobFailed):
		return false, r.report(ctx, backup, nil, metav1.ConditionFalse, v1.ReasonCleanupFailed, "Job "+job.Name+
			" failed; another one follows in 5 minutes, unless the annotation "+v1.SkipCleanup+" is \"true\"")
	}
	return false, r.report(ctx, backup, nil, metav1.ConditionFalse, v1.ReasonCleaningUp, "Job "+job.Name+" is at work")
}

// report writes the status if it changes, and an Event if the reason does. job may be nil.
func (r *CronBackupReconciler) report(ctx context.Context, backup *v1.CronBackup, job *batchv1.CronJob,
	ready metav1.ConditionStatus, reason, message string) error {
	before, status := backup.Status.DeepCopy(), &backup.Status
	status.ObservedGeneration = backup.Generation
	if job != nil {
		status.CronJobName, status.LastScheduleTime = job.Name, job.Status.LastScheduleTime
		status.LastSuccessfulTime = job.Status.LastSuccessfulTime
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1.Ready, Status: ready, Reason: reason,
		Message: message, ObservedGeneration: backup.Generation})
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	if err := r.Status().Update(ctx, backup); err != nil {
		return err
	}
	if old := meta.FindStatusCondition(before.Conditions, v1.Ready); old == nil || old.Reason != reason {
		kind := corev1.EventTypeNormal
		if ready == metav1.ConditionFalse && reason != v1.ReasonCleaningUp {
			kind = corev1.EventTypeWarning
		}
		r.events.Event(backup, kind, reason, message)
	}
	return nil
}

// setCronJob gives a CronJob what it should have, and leaves the fields of others alone.
func (o options) setCronJob(job *batchv1.CronJob, backup *v1.CronBackup) {
	job.Spec.Schedule = backup.Spec.Schedule
	job.Spec.TimeZone = ptr.To("Etc/UTC")
	job.Spec.Suspend = &backup.Spec.Suspend
	job.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
	job.Spec.StartingDeadlineSeconds = ptr.To[int64](600) // without one, 100 missed starts are the end
	o.setJobSpec(&job.Spec.JobTemplate.Spec, backup, o.backup)
}

// cleanupJob is the Job that deletes the backups. Five minutes after its end Kubernetes deletes it, and the operator
// makes another one if it has failed.
func (o options) cleanupJob(backup *v1.CronBackup) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: backup.Namespace, Name: backup.Name + "-cleanup",
		Labels: cleanupLabels}}
	o.setJobSpec(&job.Spec, backup, o.cleanup)
	job.Spec.TTLSecondsAfterFinished = ptr.To[int32](300)
	return job
}

// setJobSpec runs a command, which learns from its environment what it is for.
func (o options) setJobSpec(spec *batchv1.JobSpec, backup *v1.CronBackup, command []string) {
	spec.BackoffLimit = ptr.To[int32](2)
	pod := &spec.Template.Spec
	pod.RestartPolicy = corev1.RestartPolicyNever
	if len(pod.Containers) != 1 {
		pod.Containers = make([]corev1.Container, 1)
	}
	c := &pod.Containers[0] // the server has filled in the rest of it
	c.Name, c.Image, c.Command = "backup", o.image, command
	c.Env = []corev1.EnvVar{{Name: "BACKUP", Value: backup.Namespace + "/" + backup.Name},
		{Name: "TARGET_DATABASE", Value: backup.Spec.TargetDatabase},
		{Name: "RETENTION_DAYS", Value: strconv.Itoa(int(backup.Spec.RetentionDays))}}
}

func finished(job *batchv1.Job, how batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == how && c.Status == corev1.ConditionTrue
	})
}
