package world

import (
	"cmp"
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// job lets a Job run, without pods, and end when its time is over.
func (w *World) job(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := w.client.BatchV1().Jobs(namespace)
	job, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || job.DeletionTimestamp != nil || hasEnded(job) {
		return 0, err
	}
	switch {
	case job.Spec.Suspend != nil && *job.Spec.Suspend && w.AtOnce:
		return 0, nil
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		delete(w.begun, job.UID) // it begins anew when it goes on
		return 0, carried(ctx, w, job, c.UpdateStatus, suspended)
	case job.Spec.Parallelism != nil && *job.Spec.Parallelism == 0 && !w.AtOnce:
		return 0, carried(ctx, w, job, c.UpdateStatus, func(j *batchv1.Job) { j.Status.Active = 0 })
	}
	again = w.left(w.begun, job)
	finish := running
	switch health := w.health(job); {
	case health == Ailing:
		finish = retrying
	case again > 0:
	case health == Failing:
		finish = failed
	default:
		finish = succeeded
	}
	return again, carried(ctx, w, job, c.UpdateStatus, finish)
}

func hasEnded(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// suspended is the status of a Job without pods, until it goes on.
func suspended(j *batchv1.Job) {
	j.Status.Active, j.Status.StartTime = 0, nil
	setSuspended(j, corev1.ConditionTrue, "JobSuspended")
}

func setSuspended(j *batchv1.Job, status corev1.ConditionStatus, reason string) {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == batchv1.JobSuspended {
			if c.Status != status {
				c.Status, c.Reason, c.LastTransitionTime = status, reason, now()
			}
			return
		}
	}
	if status == corev1.ConditionTrue {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended,
			Status: status, LastProbeTime: now(), LastTransitionTime: now(), Reason: reason})
	}
}

// running is the status of a Job whose pods run.
func running(j *batchv1.Job) {
	setSuspended(j, corev1.ConditionFalse, "JobResumed")
	if j.Status.StartTime == nil {
		j.Status.StartTime = new(now())
	}
	j.Status.Active = 1
	if j.Spec.Parallelism != nil {
		j.Status.Active = *j.Spec.Parallelism
	}
	if j.Spec.Completions != nil {
		j.Status.Active = min(j.Status.Active, *j.Spec.Completions)
	}
}

// retrying is the status of a Job of which a pod has failed, if its backoffLimit allows one.
func retrying(j *batchv1.Job) {
	if running(j); j.Spec.BackoffLimit == nil || *j.Spec.BackoffLimit > 0 {
		j.Status.Failed = 1
	}
}

func succeeded(j *batchv1.Job) {
	ended(j, "CompletionsReached", batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	j.Status.CompletionTime = new(now())
	if j.Status.Succeeded = 1; j.Spec.Completions != nil {
		j.Status.Succeeded = *j.Spec.Completions
	}
}

func failed(j *batchv1.Job) {
	ended(j, "BackoffLimitExceeded", batchv1.JobFailureTarget, batchv1.JobFailed)
	j.Status.Failed = 1
	if j.Spec.BackoffLimit != nil {
		j.Status.Failed = *j.Spec.BackoffLimit + 1
	}
}

func ended(j *batchv1.Job, reason string, conditions ...batchv1.JobConditionType) {
	setSuspended(j, corev1.ConditionFalse, "JobResumed")
	at := now()
	j.Status.StartTime, j.Status.Active = cmp.Or(j.Status.StartTime, &at), 0
	for _, kind := range conditions {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue,
			LastProbeTime: at, LastTransitionTime: at, Reason: reason})
	}
}
