package cronbackuptest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
)

// behaviours are what an operator has to do. Each begins with an empty namespace.
func behaviours() map[string]func(*world) {
	return map[string]func(*world){
		"each CronBackup has a CronJob":          checkCronJob,
		"the CronJob follows the spec":           checkSpecChange,
		"a suspended CronBackup starts nothing":  checkSuspend,
		"drift is undone within a second":        checkDrift,
		"an orphaned CronJob is not taken over":  checkOrphan,
		"a CronJob of another owner stays":       checkTaken,
		"a schedule that the server refuses":     checkRefused,
		"the status shows the last schedule":     checkLastSchedule,
		"nothing is written when nothing is new": checkCalm,
		"transitions are Events":                 checkEvents,
		"a deletion cleans up":                   checkCleanup,
		"a clean-up that fails is made again":    checkCleanupFails,
		"an annotation skips the clean-up":       checkSkip,
		"a Job of another owner cleans nothing":  checkForeignCleanup,
		"a namespace that goes away":             checkNamespace,
	}
}

// ready makes a CronBackup, and waits until its CronJob is there.
func (w *world) ready(name string) *batchv1.CronJob {
	w.Helper()
	w.create(name)
	w.Eventually(w.is(name, metav1.ConditionTrue, v1.ReasonScheduled))
	job, err := w.cronJob(name)
	require.NoError(w, err)
	return job
}

func checkCronJob(w *world) {
	w.create("a", func(b *v1.CronBackup) { b.Spec.RetentionDays = 0 }) // the default
	w.Eventually(w.is("a", metav1.ConditionTrue, v1.ReasonScheduled))
	b, err := w.get("a")
	require.NoError(w, err)
	require.Equal(w, "a", b.Status.CronJobName)
	require.Contains(w, b.Finalizers, v1.Finalizer)
	job, err := w.cronJob("a")
	require.NoError(w, err)
	require.True(w, metav1.IsControlledBy(job, b))
	require.Equal(w, b.Spec.Schedule, job.Spec.Schedule)
	require.False(w, *job.Spec.Suspend)
	env := map[string]string{}
	for _, e := range job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	require.Equal(w, map[string]string{"BACKUP": w.namespace + "/a", "TARGET_DATABASE": "orders",
		"RETENTION_DAYS": "7"}, env)
}

func checkSpecChange(w *world) {
	before := w.ready("a")
	w.patch("a", `{"spec":{"schedule":"@weekly","retentionDays":2}}`)
	w.Eventually(w.is("a", metav1.ConditionTrue, v1.ReasonScheduled))
	job, err := w.cronJob("a")
	require.NoError(w, err)
	require.Equal(w, "@weekly", job.Spec.Schedule)
	require.Equal(w, before.UID, job.UID)
}

func checkSuspend(w *world) {
	w.ready("a")
	for _, suspend := range []bool{true, false} {
		w.patch("a", fmt.Sprintf(`{"spec":{"suspend":%t}}`, suspend))
		reason := v1.ReasonScheduled
		if suspend {
			reason = v1.ReasonSuspended
		}
		w.Eventually(w.is("a", metav1.ConditionTrue, reason))
		job, err := w.cronJob("a")
		require.NoError(w, err)
		require.Equal(w, suspend, *job.Spec.Suspend)
	}
}

func checkDrift(w *world) {
	want := w.ready("a")
	jobs := w.client.BatchV1().CronJobs(w.namespace)
	const image = `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[` +
		`{"name":"backup","image":"x"}]}}}}}}`
	for _, drift := range []string{`{"spec":{"schedule":"@hourly"}}`, `{"spec":{"suspend":true}}`, image} {
		_, err := jobs.Patch(w.Context(), "a", types.StrategicMergePatchType, []byte(drift), metav1.PatchOptions{})
		require.NoError(w, err)
		w.Soon(func() error {
			is, err := jobs.Get(w.Context(), "a", metav1.GetOptions{})
			if err == nil && !(is.Spec.Schedule == want.Spec.Schedule && !*is.Spec.Suspend &&
				is.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image ==
					want.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image) {
				err = fmt.Errorf("after %s: %+v", drift, is.Spec)
			}
			return err
		})
	}
	background := metav1.DeletePropagationBackground
	require.NoError(w, jobs.Delete(w.Context(), "a", metav1.DeleteOptions{PropagationPolicy: &background}))
	w.Soon(func() error {
		_, err := w.cronJob("a")
		return err
	})
}

// checkOrphan takes the owner reference away: the CronJob might be meant for somebody else now. It stays, and the user
// is told.
func checkOrphan(w *world) {
	w.ready("a")
	_, err := w.client.BatchV1().CronJobs(w.namespace).Patch(w.Context(), "a", types.MergePatchType,
		[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	require.NoError(w, err)
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonNameTaken))
	job, err := w.cronJob("a")
	require.NoError(w, err)
	require.Empty(w, job.OwnerReferences)
}

func checkTaken(w *world) {
	jobs := w.client.BatchV1().CronJobs(w.namespace)
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "theirs", Image: "none"}}}}
	theirs, err := jobs.Create(w.Context(), &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: batchv1.CronJobSpec{Schedule: "0 1 1 1 *", JobTemplate: batchv1.JobTemplateSpec{
			Spec: batchv1.JobSpec{Template: template}}}}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.create("a")
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonNameTaken))
	is, err := w.cronJob("a")
	require.NoError(w, err)
	require.Equal(w, withoutStatus(theirs), withoutStatus(is), "it was changed")
	require.NoError(w, jobs.Delete(w.Context(), "a", metav1.DeleteOptions{}))
	w.Eventually(w.is("a", metav1.ConditionTrue, v1.ReasonScheduled))
}

func checkRefused(w *world) {
	w.create("a", func(b *v1.CronBackup) { b.Spec.Schedule = "99 * * * *" })
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonRefused))
	w.calm("a")
	w.patch("a", `{"spec":{"schedule":"@daily"}}`)
	w.Eventually(w.is("a", metav1.ConditionTrue, v1.ReasonScheduled))
}

func checkLastSchedule(w *world) {
	job := w.ready("a")
	then := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	job.Status.LastScheduleTime, job.Status.LastSuccessfulTime = &then, &then
	_, err := w.client.BatchV1().CronJobs(w.namespace).UpdateStatus(w.Context(), job, metav1.UpdateOptions{})
	require.NoError(w, err)
	w.Eventually(func() error {
		b, err := w.get("a")
		if err == nil && (!b.Status.LastScheduleTime.Equal(&then) || !b.Status.LastSuccessfulTime.Equal(&then)) {
			err = fmt.Errorf("status %+v", b.Status)
		}
		return err
	})
}

// calm checks for 2 seconds that a CronBackup is not written.
func (w *world) calm(name string) {
	w.Helper()
	before, err := w.get(name)
	require.NoError(w, err)
	w.Always(2*time.Second, func() error {
		is, err := w.get(name)
		if err == nil && is.ResourceVersion != before.ResourceVersion {
			err = errors.New("it was written")
		}
		return err
	})
}

func checkCalm(w *world) {
	before := w.ready("a")
	w.patch("a", `{"metadata":{"labels":{"a":"b"}}}`)
	w.calm("a")
	is, err := w.cronJob("a")
	require.NoError(w, err)
	require.Equal(w, withoutStatus(before), withoutStatus(is), "the CronJob was written")
}

// withoutStatus is a CronJob without what Kubernetes' own controller may write at any time.
func withoutStatus(job *batchv1.CronJob) *batchv1.CronJob {
	job = job.DeepCopy()
	job.ResourceVersion, job.ManagedFields, job.Status = "", nil, batchv1.CronJobStatus{}
	return job
}

func checkEvents(w *world) {
	w.ready("a")
	w.Eventually(func() error {
		list, err := w.client.CoreV1().Events(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "CronBackup" && e.InvolvedObject.Name == "a" && e.Reason == v1.ReasonScheduled {
				return nil
			}
		}
		return fmt.Errorf("of %d Events none is about it", len(list.Items))
	})
}

// gone says that there is no such CronBackup.
func (w *world) gone(name string) func() error {
	return func() error {
		b, err := w.get(name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is still there: %+v", b.Status)
	}
}

func checkCleanup(w *world) {
	w.ready("a")
	w.remove("a")
	job := w.cleanup("a", "")
	_, err := w.cronJob("a")
	require.True(w, apierrors.IsNotFound(err), "backups may still be made: %v", err)
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonCleaningUp))
	w.calm("a")
	w.finish(job, true)
	w.Eventually(w.gone("a"))
}

func checkCleanupFails(w *world) {
	w.ready("a")
	w.remove("a")
	job := w.cleanup("a", "")
	w.finish(job, false)
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonCleanupFailed))
	require.NotZero(w, job.Spec.TTLSecondsAfterFinished, "Kubernetes would never delete it")
	background := metav1.DeletePropagationBackground // as its controller does for the TTL
	require.NoError(w, w.client.BatchV1().Jobs(w.namespace).Delete(w.Context(), job.Name,
		metav1.DeleteOptions{PropagationPolicy: &background}))
	w.finish(w.cleanup("a", job.UID), true)
	w.Eventually(w.gone("a"))
}

func checkSkip(w *world) {
	w.ready("a")
	w.remove("a")
	w.finish(w.cleanup("a", ""), false)
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonCleanupFailed))
	w.patch("a", `{"metadata":{"annotations":{"`+v1.SkipCleanup+`":"true"}}}`)
	w.Eventually(w.gone("a"))
}

// checkForeignCleanup has a Job of the name and with the labels of the one that cleans up, and it has succeeded. It is
// not the operator's, so the backups are still there.
func checkForeignCleanup(w *world) {
	w.ready("a")
	jobs := w.client.BatchV1().Jobs(w.namespace)
	theirs, err := jobs.Create(w.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "a-cleanup",
			Labels: map[string]string{"backups.example.com/cleanup": "true"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "theirs", Image: "none"}}}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.finish(theirs, true)
	w.remove("a")
	w.Eventually(w.is("a", metav1.ConditionFalse, v1.ReasonNameTaken))
	background := metav1.DeletePropagationBackground
	require.NoError(w, jobs.Delete(w.Context(), "a-cleanup", metav1.DeleteOptions{PropagationPolicy: &background}))
	w.finish(w.cleanup("a", theirs.UID), true)
	w.Eventually(w.gone("a"))
}

// checkNamespace: no Job can be made in a namespace that goes away, and it goes even so.
func checkNamespace(w *world) {
	w.ready("a")
	require.NoError(w, w.client.CoreV1().Namespaces().Delete(w.Context(), w.namespace, metav1.DeleteOptions{}))
	w.Eventually(w.gone("a"))
}

// checkDefinition is about the CustomResourceDefinition alone.
func checkDefinition(w *world) {
	for want, change := range map[string]func(*v1.CronBackup){
		"spec.schedule":        func(b *v1.CronBackup) { b.Spec.Schedule = "often" },
		"spec.targetDatabase":  func(b *v1.CronBackup) { b.Spec.TargetDatabase = "Orders; rm -rf" },
		"spec.retentionDays":   func(b *v1.CronBackup) { b.Spec.RetentionDays = -1 },
		"too long for a Cron":  func(b *v1.CronBackup) { b.Name = strings.Repeat("a", 53) },
		"less than or equal t": func(b *v1.CronBackup) { b.Spec.RetentionDays = 10_000 },
	} {
		err := w.tryCreate("a", change)
		require.True(w, apierrors.IsInvalid(err), "%s: %v", want, err)
		require.ErrorContains(w, err, want)
	}
	w.create(strings.Repeat("a", 52))
	_, err := w.backups.Patch(w.Context(), strings.Repeat("a", 52), types.MergePatchType,
		[]byte(`{"spec":{"targetDatabase":"other"}}`), metav1.PatchOptions{})
	require.ErrorContains(w, err, "cannot be changed")
}
