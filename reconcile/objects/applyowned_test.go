package objects_test

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
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Both servers decide alike what a condition of an apply does.

func TestApplyOwnedInMemory(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	testApplyOwned(t, server.Config(), "default")
}

func TestApplyOwnedOnAServer(t *testing.T) {
	c := testcluster.Shared(t)
	testApplyOwned(t, c.Config(), c.Namespace(t))
}

// family is an owner, a ConfigMap, and what it applies: a CronJob.
type family struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	jobs      *patches
	owner     *objects.Owner
	object    *corev1.ConfigMap // the owner
}

// patches are the CronJobs, with their applies counted, and something that happens before the next one.
type patches struct {
	objects.Applier[*batchv1.CronJob]
	sent   int
	before func()
}

func (p *patches) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
	subresources ...string) (*batchv1.CronJob, error) {
	p.sent++
	if before := p.before; before != nil {
		p.before = nil
		before()
	}
	return p.Applier.Patch(ctx, name, pt, data, opts, subresources...)
}

func newFamily(t *testing.T, cfg *rest.Config, namespace, name string) *family {
	client := kubernetes.NewForConfigOrDie(cfg)
	maps := client.CoreV1().ConfigMaps(namespace)
	o, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	return &family{T: t, client: client, namespace: namespace, object: o,
		jobs:  &patches{Applier: client.BatchV1().CronJobs(namespace)},
		owner: objects.NewOwner(maps, o, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
}

// config is that of a CronJob with a list of each sort, and with fields that the server adds to.
func (f *family) config(schedule string) *batchv1ac.CronJobApplyConfiguration {
	container := corev1ac.Container().WithName("main").WithImage("none").WithArgs("a", "b").
		WithEnv(corev1ac.EnvVar().WithName("x").WithValue("1"), corev1ac.EnvVar().WithName("y").WithValue("2")).
		WithPorts(corev1ac.ContainerPort().WithContainerPort(80))
	pod := corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().WithContainers(container).WithRestartPolicy("Never"))
	return batchv1ac.CronJob(f.object.Name, f.namespace).WithLabels(map[string]string{"app": "x"}).
		WithSpec(batchv1ac.CronJobSpec().WithSchedule(schedule).WithSuspend(true).
			WithJobTemplate(batchv1ac.JobTemplateSpec().WithSpec(batchv1ac.JobSpec().WithTemplate(pod))))
}

func (f *family) apply(seen *batchv1.CronJob, schedule string, adopt func(*batchv1.CronJob) bool) (*batchv1.CronJob,
	error) {
	return objects.ApplyOwned(f.Context(), f.owner, f.jobs, seen, f.config(schedule),
		metav1.ApplyOptions{FieldManager: "me", Force: true}, adopt)
}

// foreign makes a CronJob of the name that another client wants.
func (f *family) foreign(schedule string, refs ...metav1.OwnerReference) *batchv1.CronJob {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: "Never",
		Containers: []corev1.Container{{Name: "theirs", Image: "none"}}}}
	o, err := f.client.BatchV1().CronJobs(f.namespace).Create(f.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: f.object.Name, OwnerReferences: refs},
		Spec: batchv1.CronJobSpec{Schedule: schedule, JobTemplate: batchv1.JobTemplateSpec{
			Spec: batchv1.JobSpec{Template: template}}},
	}, metav1.CreateOptions{})
	require.NoError(f, err)
	return o
}

func (f *family) now() *batchv1.CronJob {
	o, err := f.client.BatchV1().CronJobs(f.namespace).Get(f.Context(), f.object.Name, metav1.GetOptions{})
	require.NoError(f, err)
	return o
}

func (f *family) patch(patch string) *batchv1.CronJob {
	o, err := f.client.BatchV1().CronJobs(f.namespace).Patch(f.Context(), f.object.Name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{FieldManager: "them"})
	require.NoError(f, err)
	return o
}

// taken says that the error is a TakenError, and that the CronJob is as it was.
func (f *family) taken(err error, before *batchv1.CronJob) {
	f.Helper()
	var taken *objects.TakenError
	require.ErrorAs(f, err, &taken)
	require.Equal(f, metav1.GetControllerOf(before), taken.Controller)
	require.Equal(f, before.ResourceVersion, f.now().ResourceVersion, "it was changed")
}

func testApplyOwned(t *testing.T, cfg *rest.Config, namespace string) {
	always := func(*batchv1.CronJob) bool { return true }
	for name, test := range map[string]func(f *family){
		"is-created-and-kept": func(f *family) {
			made, err := f.apply(nil, "@daily", nil)
			require.NoError(f, err)
			require.Equal(f, []metav1.OwnerReference{f.owner.Reference()}, made.OwnerReferences)
			require.Nil(f, made.DeletionGracePeriodSeconds)
			again, err := f.apply(made, "@daily", nil)
			require.NoError(f, err)
			require.Same(f, made, again)
			require.Equal(f, 1, f.jobs.sent, "an apply that changes nothing was sent")
			// The cache does not show it yet, or the answer was lost.
			again, err = f.apply(nil, "@daily", nil)
			require.NoError(f, err)
			require.Equal(f, made.ResourceVersion, again.ResourceVersion)
			changed, err := f.apply(made, "@weekly", nil)
			require.NoError(f, err)
			require.Equal(f, "@weekly", changed.Spec.Schedule)
			require.Equal(f, made.UID, changed.UID)
			again, err = f.apply(changed, "@weekly", nil)
			require.NoError(f, err)
			require.Same(f, changed, again)
		},
		"drift-is-undone": func(f *family) {
			_, err := f.apply(nil, "@daily", nil)
			require.NoError(f, err)
			for _, drift := range []string{`{"spec":{"schedule":"@weekly"}}`, `{"metadata":{"labels":{"app":null}}}`,
				`{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"main",` +
					`"image":"other"}]}}}}}}`,
				`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"` + f.object.Name +
					`","uid":"` +
					string(f.object.UID) + `","controller":true}]}}`} {
				mended, err := f.apply(f.patch(drift), "@daily", nil)
				require.NoError(f, err, drift)
				require.Equal(f, "@daily", mended.Spec.Schedule)
				require.Equal(f, "x", mended.Labels["app"])
				require.Equal(f, "none", mended.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image)
				require.Equal(f, []metav1.OwnerReference{f.owner.Reference()}, mended.OwnerReferences)
			}
		},
		"an-integer-that-no-float64-holds-is-compared": func(f *family) {
			const even = 1 << 53
			var seen *batchv1.CronJob
			for _, seconds := range []int64{even, even + 1} {
				config := f.config("@daily")
				config.Spec.JobTemplate.Spec.WithActiveDeadlineSeconds(seconds)
				opts := metav1.ApplyOptions{FieldManager: "me", Force: true}
				if seen != nil {
					apply := f.client.BatchV1().CronJobs(namespace).Apply
					found, err := objects.Drift(f.Context(), f.jobs, apply, config, opts)
					require.NoError(f, err)
					require.Contains(f, found, objects.Difference{Desired: seconds, Is: int64(even),
						Managers: []string{"me"}, Field: ".spec.jobTemplate.spec.activeDeadlineSeconds"})
				}
				var err error
				seen, err = objects.ApplyOwned(f.Context(), f.owner, f.jobs, seen, config, opts, nil)
				require.NoError(f, err)
				require.Equal(f, seconds, *seen.Spec.JobTemplate.Spec.ActiveDeadlineSeconds)
			}
		},
		"a-namesake-stays": func(f *family) {
			theirs := f.foreign("@daily")
			_, err := f.apply(theirs, "@hourly", nil)
			f.taken(err, theirs)
			require.Zero(f, f.jobs.sent)
			_, err = f.apply(nil, "@hourly", nil) // the cache has not shown it
			f.taken(err, theirs)
			_, err = f.apply(theirs, "@hourly", func(*batchv1.CronJob) bool { return false })
			f.taken(err, theirs)
		},
		"a-namesake-with-the-same-fields-stays": func(f *family) {
			theirs := f.foreign("@daily")
			config := batchv1ac.CronJob(f.object.Name, f.namespace).
				WithSpec(batchv1ac.CronJobSpec().WithSchedule("@daily"))
			_, err := objects.ApplyOwned(f.Context(), f.owner, f.jobs, nil, config, asMe, nil)
			f.taken(err, theirs)
		},
		"the-child-of-another-stays": func(f *family) {
			ref := f.owner.Reference()
			ref.UID = "another"
			// The real server's garbage collector deletes a child whose owner does not exist.
			ref.Kind, ref.APIVersion, ref.Name = "Namespace", "v1", namespace
			ns, err := f.client.CoreV1().Namespaces().Get(f.Context(), namespace, metav1.GetOptions{})
			require.NoError(f, err)
			ref.UID = ns.UID
			theirs := f.foreign("@daily", ref)
			_, err = f.apply(theirs, "@daily", always)
			f.taken(err, theirs)
			_, err = f.apply(nil, "@daily", always)
			f.taken(err, theirs)
		},
		"a-namesake-between-look-and-apply": func(f *family) {
			var theirs *batchv1.CronJob
			f.jobs.before = func() { theirs = f.foreign("@daily") }
			_, err := f.apply(nil, "@daily", nil)
			f.taken(err, theirs)
		},
		"a-replacement-between-look-and-apply": func(f *family) {
			made, err := f.apply(nil, "@daily", nil)
			require.NoError(f, err)
			var theirs *batchv1.CronJob
			f.jobs.before = func() {
				f.remove()
				theirs = f.foreign("@daily")
			}
			_, err = f.apply(made, "@weekly", always)
			require.True(f, apierrors.IsConflict(err) || apierrors.IsInvalid(err), err)
			require.Equal(f, theirs.ResourceVersion, f.now().ResourceVersion)
			f.remove()
			_, err = f.apply(made, "@weekly", nil) // nothing is created for one that was seen
			require.True(f, apierrors.IsConflict(err), err)
		},
		"an-orphan-is-adopted": func(f *family) {
			theirs := f.foreign("@daily")
			f.jobs.before = func() { f.patch(`{"metadata":{"labels":{"app":"changed"}}}`) }
			_, err := f.apply(theirs, "@weekly", always)
			require.True(f, apierrors.IsConflict(err), "it is not the one that adopt has seen: %v", err)
			require.Empty(f, f.now().OwnerReferences)
			mine, err := f.apply(f.now(), "@weekly", always)
			require.NoError(f, err)
			require.Equal(f, theirs.UID, mine.UID)
			require.Equal(f, []metav1.OwnerReference{f.owner.Reference()}, mine.OwnerReferences)
			require.Equal(f, "@weekly", mine.Spec.Schedule)
		},
		"no-adoption-for-an-owner-that-is-gone": func(f *family) {
			theirs := f.foreign("@daily")
			require.NoError(f, f.client.CoreV1().ConfigMaps(namespace).Delete(f.Context(), f.object.Name,
				metav1.DeleteOptions{}))
			_, err := f.apply(theirs, "@daily", always)
			require.ErrorIs(f, err, objects.ErrGone)
			require.Empty(f, f.now().OwnerReferences)
		},
		"a-refused-object-is-no-namesake": func(f *family) {
			_, err := f.apply(nil, "99 * * * *", nil)
			require.True(f, apierrors.IsInvalid(err), err)
			require.Equal(f, 1, f.jobs.sent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			test(newFamily(t, cfg, namespace, "a-"+name))
		})
	}
	t.Run("unstructured", func(t *testing.T) { testApplyOwnedUnstructured(t, cfg, namespace) })
}

func (f *family) remove() {
	background := metav1.DeletePropagationBackground
	require.NoError(f, f.client.BatchV1().CronJobs(f.namespace).Delete(f.Context(), f.object.Name,
		metav1.DeleteOptions{PropagationPolicy: &background}))
}

func testApplyOwnedUnstructured(t *testing.T, cfg *rest.Config, namespace string) {
	f := newFamily(t, cfg, namespace, "tree")
	maps := objects.Dynamic(dynamic.NewForConfigOrDie(cfg).Resource(corev1.SchemeGroupVersion.
		WithResource("configmaps")).Namespace(namespace))
	config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "child"}, "data": map[string]any{"k": "v"}}}
	made, err := objects.ApplyOwned(t.Context(), f.owner, maps, nil, config, asMe, nil)
	require.NoError(t, err)
	require.True(t, metav1.IsControlledBy(made, f.object))
	again, err := objects.ApplyOwned(t.Context(), f.owner, maps, made, config, asMe, nil)
	require.NoError(t, err)
	require.Same(t, made, again)
	require.Empty(t, config.GetOwnerReferences(), "the configuration was changed")
}

func TestApplyOwnedRefusesWhatCannotWork(t *testing.T) {
	maps := newDesk[*corev1.ConfigMap](t)
	try := func(config any) error {
		_, err := objects.ApplyOwned(testCtx(t), newOwner(t), objects.Applier[*corev1.ConfigMap](maps), nil, config,
			asMe, nil)
		return err
	}
	for want, config := range map[string]any{
		"the configuration is nil":                           nil,
		"the configuration is a *v1.ConfigMap, whose zero f": &corev1.ConfigMap{},
		"the configuration has no name":                      &corev1ac.ConfigMapApplyConfiguration{},
		"the configuration of a has no kind or no apiVe":     map[string]any{"metadata": map[string]any{"name": "a"}},
		"other/a is in another namespace than its owner":     corev1ac.ConfigMap("a", "other"),
	} {
		require.ErrorContains(t, try(config), "ApplyOwned: "+want)
	}
	_, err := objects.ApplyOwned[*corev1.ConfigMap](testCtx(t), newOwner(t), nil, nil, config("v"), asMe, nil)
	require.EqualError(t, err, "ApplyOwned: the client is nil")
	_, err = objects.ApplyOwned(testCtx(t), nil, objects.Applier[*corev1.ConfigMap](maps), nil, config("v"), asMe, nil)
	require.EqualError(t, err, "ApplyOwned: the owner is nil")
	require.Empty(t, maps.took())
	lost := errors.New("connection reset")
	maps.before = func(string) error { return lost }
	require.ErrorIs(t, try(config("v")), lost)
}
