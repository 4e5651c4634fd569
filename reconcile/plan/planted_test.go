package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
)

// app is what a small operator wants in a namespace: planted changes are changes of it.
type app struct {
	settings   *corev1ac.ConfigMapApplyConfiguration
	secret     *corev1ac.SecretApplyConfiguration
	service    *corev1ac.ServiceApplyConfiguration
	claim      *corev1ac.PersistentVolumeClaimApplyConfiguration
	deployment *appsv1ac.DeploymentApplyConfiguration
	set        *appsv1ac.StatefulSetApplyConfiguration
	policy     *networkingv1ac.NetworkPolicyApplyConfiguration
	// more is what it does beside.
	more func(ctx context.Context, c kubernetes.Interface, namespace string) error
}

func newApp(namespace string) *app {
	pod := func(name string) *corev1ac.PodTemplateSpecApplyConfiguration {
		return corev1ac.PodTemplateSpec().WithLabels(map[string]string{"app": name}).WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName(name).WithImage(name+":1").WithEnv(
				corev1ac.EnvVar().WithName("A").WithValue("1"), corev1ac.EnvVar().WithName("B").WithValue("2"))))
	}
	selector := func(name string) *metav1ac.LabelSelectorApplyConfiguration {
		return metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app": name})
	}
	return &app{
		settings: corev1ac.ConfigMap("settings", namespace).WithData(map[string]string{"level": "info"}),
		secret:   corev1ac.Secret("password", namespace).WithStringData(map[string]string{"password": "hunter2"}),
		service: corev1ac.Service("web", namespace).WithSpec(corev1ac.ServiceSpec().WithSelector(
			map[string]string{"app": "web"}).WithPorts(corev1ac.ServicePort().WithPort(80))),
		claim: corev1ac.PersistentVolumeClaim("data", namespace).WithSpec(corev1ac.PersistentVolumeClaimSpec().
			WithAccessModes(corev1.ReadWriteOnce).WithResources(corev1ac.VolumeResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceStorage: resourceOf("1Gi")}))),
		deployment: appsv1ac.Deployment("web", namespace).WithSpec(appsv1ac.DeploymentSpec().WithReplicas(2).
			WithSelector(selector("web")).WithTemplate(pod("web"))),
		set: appsv1ac.StatefulSet("db", namespace).WithSpec(appsv1ac.StatefulSetSpec().WithReplicas(2).
			WithServiceName("db").WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithSelector(selector("db")).WithTemplate(pod("db"))),
		policy: networkingv1ac.NetworkPolicy("web", namespace).WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(selector("web"))),
	}
}

// run makes the cluster what the operator wants. It goes on after an error, as an operator with several objects does.
func (a *app) run(ctx context.Context, cfg *rest.Config, namespace string) error {
	c := kubernetes.NewForConfigOrDie(cfg)
	o := metav1.ApplyOptions{FieldManager: "operator", Force: true}
	var errs []error
	did := func(_ any, err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if a.settings != nil {
		did(c.CoreV1().ConfigMaps(namespace).Apply(ctx, a.settings, o))
	}
	if a.secret != nil {
		did(c.CoreV1().Secrets(namespace).Apply(ctx, a.secret, o))
	}
	if a.deployment != nil {
		did(c.AppsV1().Deployments(namespace).Apply(ctx, a.deployment, o))
	}
	did(c.CoreV1().Services(namespace).Apply(ctx, a.service, o))
	did(c.CoreV1().PersistentVolumeClaims(namespace).Apply(ctx, a.claim, o))
	did(c.AppsV1().StatefulSets(namespace).Apply(ctx, a.set, o))
	did(c.NetworkingV1().NetworkPolicies(namespace).Apply(ctx, a.policy, o))
	if a.more != nil {
		did(nil, a.more(ctx, c, namespace))
	}
	for _, err := range errs {
		if !apierrors.IsInvalid(err) { // which is what one of the changes comes to
			return err
		}
	}
	return nil
}

// planted are changes of an operator, with the truth of what each does: the changes of objects, and how many pods are
// ended or replaced.
var planted = map[string]struct {
	change func(*app)
	writes []string
	pods   int
	later  int  // pods that the report names, and that only somebody else's act ends
	loose  bool // the fork says that it is not exact there
}{
	"nothing": {change: func(*app) {}},
	"image": {change: func(a *app) { a.deployment.Spec.Template.Spec.Containers[0].WithImage("web:2") },
		writes: []string{"update Deployment web"}, pods: 2},
	"label of the template": {change: func(a *app) {
		a.deployment.Spec.Template.WithLabels(map[string]string{"v": "2"})
	}, writes: []string{"update Deployment web"}, pods: 2},
	"time in the template": {change: func(a *app) {
		a.set.Spec.Template.WithAnnotations(map[string]string{"at": time.Unix(0, 0).String()})
	}, writes: []string{"update StatefulSet db"}, pods: 2},
	"time on the object": {change: func(a *app) {
		a.deployment.WithAnnotations(map[string]string{"at": time.Unix(0, 0).String()})
	}, writes: []string{"update Deployment web"}},
	"default written out": {change: func(a *app) {
		a.deployment.Spec.Template.Spec.WithTerminationGracePeriodSeconds(30)
	}, writes: []string{"update Deployment web"}},
	"order of a list": {change: func(a *app) { slices.Reverse(a.deployment.Spec.Template.Spec.Containers[0].Env) },
		writes: []string{"update Deployment web"}, pods: 2},
	"finalizer": {change: func(a *app) { a.settings.WithFinalizers("example.com/mine") },
		writes: []string{"update ConfigMap settings"}},
	"renamed child": {change: func(a *app) {
		a.settings.WithName("settings-v2")
		a.more = func(ctx context.Context, c kubernetes.Interface, namespace string) error {
			return c.CoreV1().ConfigMaps(namespace).Delete(ctx, "settings", metav1.DeleteOptions{})
		}
	}, writes: []string{"create ConfigMap settings-v2", "delete ConfigMap settings"}},
	"deleted child": {change: func(a *app) {
		a.secret = nil
		a.more = func(ctx context.Context, c kubernetes.Interface, namespace string) error {
			return c.CoreV1().Secrets(namespace).Delete(ctx, "password", metav1.DeleteOptions{})
		}
	}, writes: []string{"delete Secret password"}},
	"wrong selector": {change: func(a *app) {
		a.deployment.Spec.Selector.WithMatchLabels(map[string]string{"v": "2"})
		a.deployment.Spec.Template.WithLabels(map[string]string{"v": "2"})
	}},
	"on delete": {change: func(a *app) {
		a.set.Spec.WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(
			appsv1.OnDeleteStatefulSetStrategyType))
		a.set.Spec.Template.Spec.Containers[0].WithImage("db:2")
	}, writes: []string{"update StatefulSet db"}, later: 2, loose: true},
	"more replicas": {change: func(a *app) { a.deployment.Spec.WithReplicas(3) },
		writes: []string{"update Deployment web"}},
	"fewer replicas": {change: func(a *app) { a.set.Spec.WithReplicas(1) },
		writes: []string{"update StatefulSet db"}, pods: 1},
	"renamed workload": {change: func(a *app) {
		a.deployment.WithName("web-v2")
		a.more = func(ctx context.Context, c kubernetes.Interface, namespace string) error {
			return c.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{})
		}
	}, writes: []string{"create Deployment web-v2", "delete Deployment web"}, pods: 2},
	"port": {change: func(a *app) { a.service.Spec.Ports[0].WithTargetPort(intstr.FromInt32(8080)) },
		writes: []string{"update Service web"}},
	"deleted claim": {change: func(a *app) {
		claim := *a.claim
		claim.WithName("data-v2")
		a.claim = &claim
		a.more = func(ctx context.Context, c kubernetes.Interface, namespace string) error {
			return c.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "data", metav1.DeleteOptions{})
		}
	}, writes: []string{"create PersistentVolumeClaim data-v2", "delete PersistentVolumeClaim data"}},
	"init container": {change: func(a *app) {
		a.deployment.Spec.Template.Spec.WithInitContainers(corev1ac.Container().WithName("first").WithImage("first:1"))
	}, writes: []string{"update Deployment web"}, pods: 2, loose: true},
	"spread": {change: func(a *app) {
		a.deployment.Spec.Template.Spec.WithTopologySpreadConstraints(corev1ac.TopologySpreadConstraint().
			WithMaxSkew(1).WithTopologyKey("zone").WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app": "web"})))
	}, writes: []string{"update Deployment web"}, pods: 2, loose: true},
	"value of a Secret": {change: func(a *app) { a.secret.WithStringData(map[string]string{"password": "hunter3"}) },
		writes: []string{"update Secret password"}},
	"put without defaults": {change: func(a *app) {
		a.deployment = nil
		a.more = func(ctx context.Context, c kubernetes.Interface, namespace string) error {
			d, err := c.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			bare := appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: d.Spec.Selector}
			bare.Template.Labels = d.Spec.Template.Labels
			bare.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:1",
				Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}}
			d.Spec = bare
			_, err = c.AppsV1().Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{})
			return err
		}
	}},
	"new kinds": {change: func(a *app) {
		a.more = func(ctx context.Context, c kubernetes.Interface, namespace string) error {
			o := metav1.ApplyOptions{FieldManager: "operator"}
			_, err1 := c.PolicyV1().PodDisruptionBudgets(namespace).Apply(ctx, policyv1ac.PodDisruptionBudget("web",
				namespace).WithSpec(policyv1ac.PodDisruptionBudgetSpec().WithMinAvailable(intstr.FromInt32(1)).
				WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app": "web"}))), o)
			_, err2 := c.BatchV1().CronJobs(namespace).Apply(ctx, batchv1ac.CronJob("backup", namespace).WithSpec(
				batchv1ac.CronJobSpec().WithSchedule("0 3 * * *").WithJobTemplate(batchv1ac.JobTemplateSpec().WithSpec(
					batchv1ac.JobSpec().WithTemplate(corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().
						WithRestartPolicy(corev1.RestartPolicyNever).WithContainers(corev1ac.Container().
						WithName("backup").WithImage("backup:1"))))))), o)
			return first(err1, err2)
		}
	}, writes: []string{"create PodDisruptionBudget web", "create CronJob backup"}},
	"made anew": {change: func(a *app) {
		a.more = a.makeAnew(func() { a.set.Spec.Template.Spec.Containers[0].WithImage("db:2") })
	}, writes: []string{"delete StatefulSet db", "create StatefulSet db"}, pods: 2},
	"made anew as it was": {change: func(a *app) {
		a.more = a.makeAnew(func() { a.set.Spec.WithPodManagementPolicy(appsv1.OrderedReadyPodManagement) })
	}, writes: []string{"delete StatefulSet db", "create StatefulSet db"}},
	"network policy": {change: func(a *app) {
		a.policy.Spec.WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithPorts(
			networkingv1ac.NetworkPolicyPort().WithPort(intstr.FromInt32(80))))
	}, writes: []string{"update NetworkPolicy web"}},
}

// makeAnew does what changes what cannot be changed: the StatefulSet is deleted, its pods are left, and another one is
// made, which takes them over.
func (a *app) makeAnew(change func()) func(context.Context, kubernetes.Interface, string) error {
	return func(ctx context.Context, c kubernetes.Interface, namespace string) error {
		sets := c.AppsV1().StatefulSets(namespace)
		err := sets.Delete(ctx, "db", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)})
		for err == nil { // until its dependents have let it go
			_, err = sets.Get(ctx, "db", metav1.GetOptions{})
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		change()
		_, err = sets.Apply(ctx, a.set, metav1.ApplyOptions{FieldManager: "operator"})
		return err
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ofTheApp are the resources that planted changes are about.
var ofTheApp = []schema.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"}, {Version: "v1", Resource: "persistentvolumeclaims"},
	{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
}

// state is what a namespace holds of the app, without what another run would have otherwise.
func state(ctx context.Context, cfg *rest.Config, namespace string) (map[string]string, error) {
	all := map[string]string{}
	for _, r := range ofTheApp {
		list, err := dynamic.NewForConfigOrDie(cfg).Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			if o.GetName() == "kube-root-ca.crt" {
				continue
			}
			all[o.GetKind()+" "+o.GetName()], err = masked(&o)
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// masked returns what the operator and the API server make of an object: not what other controllers do, nor what is
// drawn at random.
func masked(o *unstructured.Unstructured) (string, error) {
	delete(o.Object, "status")
	metadata := o.Object["metadata"].(map[string]any)
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields",
		"deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(metadata, name)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		if delete(annotations, "deployment.kubernetes.io/revision"); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	if spec, ok := o.Object["spec"].(map[string]any); ok && o.GetKind() == "Service" {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	data, err := json.Marshal(o.Object)
	return string(data), err
}

// versions are the resourceVersions that the app's objects have.
func versions(ctx context.Context, cfg *rest.Config, namespace string) (map[string]string, error) {
	all := map[string]string{}
	for _, r := range ofTheApp {
		list, err := dynamic.NewForConfigOrDie(cfg).Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			version := o.GetResourceVersion()
			if o.GetGeneration() > 0 { // a controller may be writing its status still
				version = fmt.Sprint(o.GetUID(), o.GetGeneration())
			}
			all[o.GetKind()+" "+o.GetName()] = version
		}
	}
	return all, nil
}

// trial is a planted change on its way: planned on a fork, and then made for real.
type trial struct {
	name, namespace string
	before, after   map[types.UID]bool // pods
	report          *plan.Report
	forked          map[string]string
}

// next is the changed operator.
func (r *trial) next() *app {
	a := newApp(r.namespace)
	planted[r.name].change(a)
	return a
}

// plan runs the changed operator on a fork.
func (r *trial) plan(t *testing.T, c *auditedCluster) {
	ctx := t.Context()
	started, err := versions(ctx, c.Config(), r.namespace)
	require.NoError(t, err)
	fork, err := plan.Fork(ctx, c.reader, plan.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	require.NoError(t, r.next().run(ctx, fork.Config(), r.namespace))
	r.report, err = fork.Settle(ctx, still)
	require.NoError(t, err)
	r.forked, err = state(ctx, fork.Config(), r.namespace)
	require.NoError(t, err)
	untouched, err := versions(ctx, c.Config(), r.namespace)
	require.NoError(t, err)
	require.Equal(t, started, untouched, "the plan has changed the cluster")
}

// judge compares what was predicted with what came, and returns a line of the table.
func (r *trial) judge(t *testing.T, c *auditedCluster) string {
	truth := planted[r.name]
	ended, now, later := 0, 0, 0
	for uid := range r.before {
		if !r.after[uid] {
			ended++
		}
	}
	var writes []string
	for _, change := range r.report.Changes {
		if change.By == "operator" || change.By == "plan.test" {
			writes = append(writes, change.Verb+" "+change.Object.Kind+" "+change.Object.Name)
		}
		switch {
		case change.Restarts == nil:
		case change.Restarts.When == "":
			now += change.Restarts.Pods
		default:
			later += change.Restarts.Pods
		}
	}
	require.ElementsMatch(t, truth.writes, writes, "%+v", r.report.Changes)
	require.Equal(t, truth.pods, ended, "the truth of the table")
	require.Equal(t, ended, now, "restarts: %+v", r.report.Changes)
	require.Equal(t, truth.later, later)
	require.Equal(t, truth.loose, len(r.report.Approximate) > 0, "%+v", r.report)
	require.EventuallyWithT(t, func(t *assertCollect) { // a claim goes some time after it was deleted
		real, err := state(context.Background(), c.Config(), r.namespace)
		require.NoError(t, err)
		if truth.loose {
			require.ElementsMatch(t, slices.Collect(maps.Keys(real)), slices.Collect(maps.Keys(r.forked)))
		} else {
			require.Equal(t, real, r.forked)
		}
	}, 2*time.Minute, 200*time.Millisecond)
	return fmt.Sprintf("%-22s pods: %d predicted, %d ended; %d objects written", r.name, now, ended, len(writes))
}

// TestPlantedChanges runs each change of an operator on a fork of a real cluster, and then for real, and compares what
// was predicted with what came: the objects as they are in the end, and the pods that are gone.
func TestPlantedChanges(t *testing.T) {
	c := audited(t)
	var trials []*trial
	for _, name := range slices.Sorted(maps.Keys(planted)) {
		trials = append(trials, &trial{name: name, namespace: c.Namespace(t)})
	}
	require.NoError(t, atOnce(trials, func(r *trial) error {
		return newApp(r.namespace).run(t.Context(), c.Config(), r.namespace)
	}))
	for _, r := range trials {
		r.before = c.rolledOut(t, r.namespace)
	}
	t.Run("plans", func(t *testing.T) {
		for _, r := range trials {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				r.plan(t, c)
			})
		}
	})
	c.requireNoWrites(t)
	require.NoError(t, atOnce(trials, func(r *trial) error {
		return r.next().run(t.Context(), c.Config(), r.namespace)
	}))
	for _, r := range trials {
		t.Run(r.name, func(t *testing.T) {
			r.after = c.rolledOut(t, r.namespace)
			t.Log(r.judge(t, c))
		})
	}
}

// atOnce does something for all trials at the same time.
func atOnce(trials []*trial, do func(*trial) error) error {
	errs := make([]error, len(trials))
	var group sync.WaitGroup
	for i, r := range trials {
		group.Go(func() { errs[i] = do(r) })
	}
	group.Wait()
	return first(errs...)
}

// rolledOut waits until the controllers are done with a namespace, and returns the UIDs of its pods.
func (c *auditedCluster) rolledOut(t *testing.T, namespace string) map[types.UID]bool {
	t.Helper()
	apps, uids := c.Client().AppsV1(), map[types.UID]bool{}
	require.EventuallyWithT(t, func(t *assertCollect) {
		ctx := context.Background()
		deployments, err := apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		wanted := int32(0)
		for _, d := range deployments.Items {
			s := d.Status
			require.Equal(t, d.Generation, s.ObservedGeneration)
			for _, is := range []int32{s.Replicas, s.UpdatedReplicas, s.AvailableReplicas} {
				require.Equal(t, *d.Spec.Replicas, is)
			}
			wanted += *d.Spec.Replicas
		}
		sets, err := apps.StatefulSets(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, s := range sets.Items {
			require.Equal(t, s.Generation, s.Status.ObservedGeneration)
			require.Equal(t, *s.Spec.Replicas, s.Status.ReadyReplicas)
			if s.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
				require.Equal(t, s.Status.UpdateRevision, s.Status.CurrentRevision)
				// One that is made anew over pods begins with both revisions the same, and no pod of it.
				require.Equal(t, *s.Spec.Replicas, s.Status.UpdatedReplicas)
			}
			wanted += *s.Spec.Replicas
		}
		pods, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, pods.Items, int(wanted))
		clear(uids)
		for _, p := range pods.Items {
			uids[p.UID] = true
		}
	}, 3*time.Minute, 200*time.Millisecond)
	return uids
}
