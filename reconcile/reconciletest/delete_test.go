package reconciletest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestWhoeverDeletesAJobDeletesWhatItOwns: of Jobs alone a deletion that names no policy leaves the dependents behind,
// without an owner.
func TestWhoeverDeletesAJobDeletesWhatItOwns(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		jobs := c.core.BatchV1().Jobs(g.GetNamespace())
		job, err := jobs.Get(ctx, g.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			job, err = jobs.Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: g.GetName()},
				Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{})
		}
		if err == nil && job.DeletionTimestamp != nil {
			err = errors.New("the Job is on its way out") // look again later
		}
		if err != nil {
			return err
		}
		owner := *metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))
		_, err = c.core.CoreV1().ConfigMaps(g.GetNamespace()).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: g.GetName(), OwnerReferences: []metav1.OwnerReference{owner}},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}))
	s.Server.Roles, s.User = nil, ""
	s.Settled = func(s *reconciletest.Server) error {
		job, _ := reconciletest.Get[*batchv1.Job](s, "jobs", "default", "a")
		owned, _ := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "default", "a")
		if job == nil || owned == nil || !metav1.IsControlledBy(owned, job) {
			return errors.New("the Job does not own the ConfigMap")
		}
		return nil
	}
	const job = "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: " +
		"{restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"
	remove := func(policy metav1.DeletionPropagation) []reconciletest.Step {
		return append(reconciletest.ApplyYAML(greeting("hello")),
			reconciletest.DeleteWith(policy, "jobs", "default", "a"))
	}
	for name, c := range map[string]struct {
		steps []reconciletest.Step
		what  string
	}{
		"a step":        {append(remove("")[:1], reconciletest.Delete("jobs", "default", "a")), ""},
		"in front":      {remove(metav1.DeletePropagationForeground), ""},
		"a third party": {reconciletest.ApplyYAML(greeting("hello")), "delete jobs in step 1"},
		"a namesake":    {reconciletest.ApplyYAML(greeting("hello") + job), "namesake after step 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			s.Steps = c.steps
			s.Replay = "v1 seed=0 steps=" + string(rune('0'+len(c.steps))) + ": " + c.what
			require.Empty(t, reconciletest.Search(t, s))
		})
	}
	s.Steps = remove(metav1.DeletePropagationOrphan)
	s.Replay = "v1 seed=0 steps=2: "
	all := reconciletest.Search(t, s)
	require.NotEmpty(t, all, "the policy does not reach the server")
	found := all[0]
	require.Contains(t, found.Detail[0], "does not own")
}
