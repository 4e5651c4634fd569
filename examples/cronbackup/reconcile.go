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
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

var (
	kind     = v1.GroupVersion.WithKind("CronBackup")
	lastWord = metav1.ApplyOptions{FieldManager: name, Force: true}
	// cleanupLabels tell the Jobs that clean up from those of CronJobs, which the operator does not look at.
	cleanupLabels = map[string]string{"backups.example.com/cleanup": "true"}
)

// reconciler makes the cluster match the CronBackups.
type reconciler struct {
	options
	backups  followed[*v1.CronBackup]
	cronJobs followed[*batchv1.CronJob]
	cleanups followed[*batchv1.Job]
	events   record.EventRecorder
}

// Reconcile makes the CronJob of a CronBackup what it should be, and cleans up when the CronBackup is being deleted.
func (r *reconciler) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	backup, ok := r.backups.cache.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	backup, alive, err := objects.Finalize(ctx, r.backups.In(key.Namespace), backup, v1.Finalizer,
		func(ctx context.Context) (bool, error) { return r.cleanUp(ctx, key, backup) })
	if err != nil || !alive {
		return reconcile.Result{}, err
	}
	seen, _ := r.cronJobs.cache.Get(key)
	job, err := objects.ApplyOwned(ctx, r.owner(backup), r.cronJobs.In(key.Namespace), seen, r.cronJob(backup),
		lastWord, nil)
	var taken *objects.TakenError
	switch {
	case errors.As(err, &taken): // that CronJob is followed, too: its end brings the key back
		return reconcile.Result{}, r.report(ctx, backup, nil, metav1.ConditionFalse, v1.ReasonNameTaken, err.Error())
	case apierrors.IsInvalid(err): // only a change of the CronBackup can help
		return reconcile.Result{}, r.report(ctx, backup, nil, metav1.ConditionFalse, v1.ReasonRefused, err.Error())
	case err != nil:
		return reconcile.Result{}, err
	case backup.Spec.Suspend:
		err = r.report(ctx, backup, job, metav1.ConditionTrue, v1.ReasonSuspended, "no backups are started")
	default:
		err = r.report(ctx, backup, job, metav1.ConditionTrue, v1.ReasonScheduled, "the CronJob starts the backups")
	}
	return reconcile.Result{}, err
}

// cleanUp deletes the CronJob first, so that no backup is made any more, and then runs a Job that deletes the backups.
// It returns true when that Job has succeeded. Changes of both bring the key back.
func (r *reconciler) cleanUp(ctx context.Context, key reconcile.Key, backup *v1.CronBackup) (done bool, err error) {
	if backup.Annotations[v1.SkipCleanup] == "true" {
		return true, nil
	}
	if job, ok := r.cronJobs.cache.Get(key); ok && metav1.IsControlledBy(job, backup) {
		if job.DeletionTimestamp == nil {
			foreground := metav1.DeletePropagationForeground // the CronJob goes when its Jobs and pods have gone
			err = r.cronJobs.In(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
				PropagationPolicy: &foreground, Preconditions: metav1.NewUIDPreconditions(string(job.UID))})
		}
		return false, err
	}
	config := r.cleanupJob(backup)
	job, ok := r.cleanups.cache.Get(reconcile.Key{Namespace: key.Namespace, Name: *config.Name})
	if !ok {
		job, err = objects.ApplyOwned(ctx, r.owner(backup), r.cleanups.In(key.Namespace), nil, config, lastWord, nil)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		klog.FromContext(ctx).Error(err, "No Job can clean up in a namespace that is being deleted; the backups stay")
		return true, nil
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

func (r *reconciler) owner(backup *v1.CronBackup) *objects.Owner {
	return objects.NewOwner(r.backups.In(backup.Namespace), backup, kind)
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
	return batchv1ac.JobSpec().WithBackoffLimit(2).WithTemplate(corev1ac.PodTemplateSpec().WithSpec(
		corev1ac.PodSpec().WithRestartPolicy(corev1.RestartPolicyNever).WithContainers(container)))
}

func finished(job *batchv1.Job, how batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == how && c.Status == corev1.ConditionTrue
	})
}
