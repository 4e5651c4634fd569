package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// quiet is for programs that return, which ends the wait: none of their pauses is as long.
const quiet = 10 * time.Second

// still is for those that go on, and for forks whose clients are done: what then follows is the garbage collector's.
const still = 2 * time.Second

// world is a cluster in memory, and what a plan has asked it for.
type world struct {
	*testing.T
	server *reconciletest.Server
	link   *reconciletest.Link
}

// newWorld makes one, and lets the test run beside others: most of its time it waits for quiet.
func newWorld(t *testing.T, o reconciletest.Options) *world {
	t.Parallel()
	s := reconciletest.NewServer(t, o)
	return &world{t, s, s.Link()}
}

func (w *world) clients() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(w.server.Config())
}

// plan returns what a program would change. It fails the test if the plan has asked the cluster for more than to read.
func (w *world) plan(run func(ctx context.Context, c kubernetes.Interface) error) *plan.Report {
	w.Helper()
	before := w.server.Version()
	report, err := plan.Run(w.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		return run(ctx, kubernetes.NewForConfigOrDie(cfg))
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(w, err)
	require.True(w, report.Settled)
	w.onlyRead(before)
	return report
}

func (w *world) onlyRead(version int64) {
	w.Helper()
	for _, r := range w.link.Requests() {
		require.Contains(w, []string{"get", "list"}, r.Verb, r)
	}
	require.Equal(w, version, w.server.Version())
}

// verbs are the changes of a report in short.
func verbs(r *plan.Report) (all []string) {
	for _, c := range r.Changes {
		line := c.Verb + " " + c.Object.String()
		if c.Subresource != "" {
			line += " " + c.Subresource
		}
		if c.LosesData {
			line += " data"
		}
		if c.Restarts != nil {
			line += fmt.Sprintf(" restarts %d", c.Restarts.Pods)
		}
		all = append(all, line)
	}
	return all
}

func paths(c plan.Change) (all []string) {
	for _, f := range c.Fields {
		all = append(all, f.Path)
	}
	return all
}

var podLabels = map[string]string{"app": "web"}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}}}
}

func deployment(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: podLabels},
			Template: template("web:1")}}
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

// rolledOut makes a Deployment with its ReplicaSet and pods, as controllers have made them, and a claim that it owns.
func (w *world) rolledOut(replicas int32) *appsv1.Deployment {
	c, ctx := w.clients(), w.Context()
	d, err := c.AppsV1().Deployments("default").Create(ctx, deployment(replicas), metav1.CreateOptions{})
	require.NoError(w, err)
	d.Status.Replicas, d.Status.UpdatedReplicas = replicas, replicas
	d, err = c.AppsV1().Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	require.NoError(w, err)
	owned := func(kind, name string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}}
	}
	rs, err := c.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", OwnerReferences: owned("Deployment", "web", d.UID)},
		Spec:       appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: template("web:1"), Replicas: &replicas},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	for i := range replicas {
		_, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-1-", i), Labels: podLabels,
				OwnerReferences: owned("ReplicaSet", "web-1", rs.UID)}, Spec: template("web:1").Spec,
		}, metav1.CreateOptions{})
		require.NoError(w, err)
	}
	data := claim()
	data.OwnerReferences = owned("Deployment", "web", d.UID)
	_, err = c.CoreV1().PersistentVolumeClaims("default").Create(ctx, data, metav1.CreateOptions{})
	require.NoError(w, err)
	return d
}

func TestAForkShowsWhatWasWritten(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.rolledOut(1)
	before := w.server.Version()
	fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	c := kubernetes.NewForConfigOrDie(fork.Config()).AppsV1().Deployments("default")
	inCluster, err := w.clients().AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)

	d, err := c.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, inCluster, d, "an object is as in the cluster, with its UID, its version and its managed fields")
	old := d.DeepCopy()
	list, err := c.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEqual(t, d.ResourceVersion, list.ResourceVersion)
	fromObject, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: d.ResourceVersion})
	require.NoError(t, err)
	defer fromObject.Stop()
	events, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	defer events.Stop()
	fromTheBegin, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	require.NoError(t, err)
	defer fromTheBegin.Stop()
	e := <-fromTheBegin.ResultChan()
	require.Equal(t, d.ResourceVersion, e.Object.(*appsv1.Deployment).ResourceVersion, "what has changed since then")

	d.Spec.Replicas = new(int32(3))
	d, err = c.Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, old.Generation+1, d.Generation)
	require.NotEqual(t, old.ResourceVersion, d.ResourceVersion)
	for _, w := range []watch.Interface{events, fromObject, fromTheBegin} {
		e = <-w.ResultChan()
		require.Equal(t, watch.Modified, e.Type)
		require.Equal(t, d.ResourceVersion, e.Object.(*appsv1.Deployment).ResourceVersion)
	}
	_, err = c.Update(t.Context(), old, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), err)
	scale, err := c.GetScale(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 3, scale.Spec.Replicas)
	_, err = c.Apply(t.Context(), appsv1ac.Deployment("web", "default").WithSpec(appsv1ac.DeploymentSpec().
		WithReplicas(2)), metav1.ApplyOptions{FieldManager: "another"})
	require.True(t, apierrors.IsConflict(err), "the replicas belong to who has updated them: %v", err)
	list, err = c.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.EqualValues(t, 3, *list.Items[0].Spec.Replicas)
	w.onlyRead(before)

	report, err := fork.Settle(t.Context(), still)
	require.NoError(t, err)
	require.Equal(t, []string{"update Deployment default/web"}, verbs(report))
	require.Equal(t, []plan.Field{{Path: "spec.replicas", Old: int64(1), New: int64(3)}}, report.Changes[0].Fields)
	require.Equal(t, "plan.test", report.Changes[0].By)
	require.Empty(t, report.Refused, "a conflict is nothing to tell of")
}

// TestAServiceGetsWhatIsFree has one in the cluster, and one with an address and a port of its own. A dry run, by which
// the cluster is asked, draws nothing.
func TestAServiceGetsWhatIsFree(t *testing.T) {
	for _, admission := range []bool{false, true} {
		t.Run(fmt.Sprint("admission ", admission), func(t *testing.T) {
			w := newWorld(t, reconciletest.Options{})
			service := func(name, ip string, port int32) *corev1.Service {
				s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
				s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeNodePort, ip
				s.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: port}}
				return s
			}
			is, err := w.clients().CoreV1().Services("default").Create(t.Context(), service("is", "", 0),
				metav1.CreateOptions{})
			require.NoError(t, err)
			fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{Admission: admission})
			require.NoError(t, err)
			defer func() { require.NoError(t, fork.Close()) }()
			taken := map[any]bool{is.Spec.ClusterIP: true, is.Spec.Ports[0].NodePort: true}
			for n := range 30 {
				ip, port := "", int32(0)
				if n == 0 {
					ip, port = "10.96.0.20", 30001
				}
				s, err := kubernetes.NewForConfigOrDie(fork.Config()).CoreV1().Services("default").Create(t.Context(),
					service(fmt.Sprint("new-", n), ip, port), metav1.CreateOptions{})
				require.NoError(t, err)
				require.NotEmpty(t, s.Spec.ClusterIP)
				for _, drawn := range []any{s.Spec.ClusterIP, s.Spec.Ports[0].NodePort} {
					require.False(t, taken[drawn], drawn)
					taken[drawn] = true
				}
			}
			require.True(t, taken["10.96.0.20"])
			require.True(t, taken[int32(30001)])
		})
	}
}

func TestATemplateThatChangesRestartsPods(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   *plan.Restarts
	}{
		"image": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:2" },
			&plan.Restarts{Pods: 2, Why: []string{"spec.template.spec.containers[web].image"}}},
		"label of the template": {func(d *appsv1.Deployment) {
			d.Spec.Template.Labels = map[string]string{"app": "web", "v": "2"}
		}, &plan.Restarts{Pods: 2, Why: []string{"spec.template.metadata.labels[v]"}}},
		"paused": {func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Spec.Template.Spec.Containers[0].Image = true, "web:2"
		}, &plan.Restarts{Pods: 2, Why: []string{"spec.template.spec.containers[web].image"},
			When: "when it is no longer paused"}},
		"label of the Deployment": {func(d *appsv1.Deployment) { d.Labels = map[string]string{"v": "2"} }, nil},
		"defaults left out":       {func(d *appsv1.Deployment) { d.Spec = deployment(2).Spec }, nil},
		"empty affinity": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Affinity = &corev1.Affinity{} },
			&plan.Restarts{Pods: 2, Why: []string{"spec.template.spec.affinity"}}},
		"fewer": {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) },
			&plan.Restarts{Pods: 1, Why: []string{"spec.replicas"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, reconciletest.Options{})
			w.rolledOut(2)
			report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
				d, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
				if err != nil {
					return err
				}
				test.change(d)
				_, err = c.AppsV1().Deployments("default").Update(ctx, d, metav1.UpdateOptions{})
				return err
			})
			if name == "defaults left out" {
				require.Empty(t, report.Changes)
				return
			}
			require.Len(t, report.Changes, 1)
			require.Equal(t, test.want, report.Changes[0].Restarts)
		})
	}
}

// TestAWorkloadThatIsMadeAnewTakesItsPods has what is done to change what cannot be changed: the workload is deleted,
// its pods are left, and another one of its name adopts and replaces them.
func TestAWorkloadThatIsMadeAnewTakesItsPods(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.rolledOut(2)
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		deployments := c.AppsV1().Deployments("default")
		if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationOrphan)}); err != nil {
			return err
		}
		next := deployment(2)
		next.Spec.Template.Spec.Containers[0].Image = "web:2"
		for { // until the garbage collector has let the old one go
			_, err := deployments.Create(ctx, next, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	})
	all := verbs(report)
	require.Equal(t, "delete Deployment default/web", all[0])
	require.Contains(t, all, "create Deployment default/web restarts 2")
	require.Equal(t, 2, report.Pods())
}

// TestPathsThatAreNoDocumentsStayInTheFork has paths by which a client that does not clean them would pass the fork.
func TestPathsThatAreNoDocumentsStayInTheFork(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	cfg := fork.Config()
	client, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	get := func(path string) int {
		resp, err := client.Get(cfg.Host + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/version/../api/v1/secrets", "/version/%2e%2e/api/v1/namespaces/x/pods/y/proxy/z",
		"/api//v1/secrets", "/metrics", "/logs/", "/openapi/v3/../../api/v1/secrets", "/apis/a/b/c"} {
		require.GreaterOrEqual(t, get(path), 400, path)
	}
	for _, r := range w.link.Requests() {
		require.NotRegexp(t, "secrets|proxy|metrics|logs", r.Path+r.Resource.Resource, "it has reached the cluster")
	}
	for _, path := range []string{"/version", "/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/readyz"} {
		require.Equal(t, http.StatusOK, get(path), path)
	}
}

// TestDeletionsTakeWhatTheProgramHasNotRead has a program that deletes a Deployment and knows nothing else.
func TestDeletionsTakeWhatTheProgramHasNotRead(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.rolledOut(2)
	_, err := w.clients().CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		return c.AppsV1().Deployments("default").Delete(ctx, "web", metav1.DeleteOptions{})
	})
	all := verbs(report)
	require.Equal(t, "delete Deployment default/web", all[0])
	require.ElementsMatch(t, []string{"delete Deployment default/web", "delete ReplicaSet default/web-1",
		"delete Pod default/web-1-0 restarts 1", "delete Pod default/web-1-1 restarts 1",
		"delete PersistentVolumeClaim default/data data"}, all)
	require.Equal(t, 1, report.Losses())
	require.Equal(t, 2, report.Pods())
}

// TestTheClustersOwnWorkIsLeftToIt has objects that the garbage collector of the cluster is about to delete.
func TestTheClustersOwnWorkIsLeftToIt(t *testing.T) {
	w := newWorld(t, reconciletest.Options{CollectAfter: time.Hour})
	maps := w.clients().CoreV1().ConfigMaps("default")
	for _, o := range []metav1.ObjectMeta{
		{Name: "orphan", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone",
			UID: "gone"}}},
		{Name: "going", Finalizers: []string{metav1.FinalizerDeleteDependents}},
	} {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: o}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, maps.Delete(t.Context(), "going", metav1.DeleteOptions{}))
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "a"}}, metav1.CreateOptions{})
		return err
	})
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
}

func TestManyObjectsComeInPages(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	const n = 1001
	maps := w.clients().CoreV1().ConfigMaps("default")
	for i := range n {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%04d", i)}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		list, err := c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != n {
			return fmt.Errorf("there are %d objects", len(list.Items))
		}
		return err
	})
	require.Len(t, w.link.Requests(), 3)
}

func TestTheDeletionOfANamespaceTakesWhatItHolds(t *testing.T) {
	w := newWorld(t, reconciletest.Options{Namespaces: []string{"default", "other"}})
	for _, namespace := range []string{"default", "other"} {
		_, err := w.clients().CoreV1().Secrets(namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.link.Inject(func(reconciletest.Request) reconciletest.Fault { // slower than the garbage collector
		return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
			<-time.After(100 * time.Millisecond)
			return serve()
		}
	})
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Namespaces().Delete(ctx, "other", metav1.DeleteOptions{})
	})
	require.Equal(t, []string{"delete Namespace other data", "delete Secret other/password data"}, verbs(report))
}

// TestValuesOfSecretsAreShownNowhere looks for them in every form of a report.
func TestValuesOfSecretsAreShownNowhere(t *testing.T) {
	const value = "hunter2"
	w := newWorld(t, reconciletest.Options{})
	c := w.clients().CoreV1().Secrets("default")
	for _, s := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: "changed"}, Data: map[string][]byte{"password": []byte(value + "-old")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "deleted"}, Data: map[string][]byte{"password": []byte(value)}},
		{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Immutable: new(true),
			Data: map[string][]byte{"a": []byte(value)}},
	} {
		_, err := c.Create(t.Context(), s, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		secrets := c.CoreV1().Secrets("default")
		changed, err := secrets.Get(ctx, "changed", metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed.Data["password"] = []byte(value)
		changed.Labels = map[string]string{"shown": "yes"}
		changed.Annotations = map[string]string{"note": value,
			corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + value + `"}}`}
		_, err1 := secrets.Update(ctx, changed, metav1.UpdateOptions{})
		_, err2 := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "made"},
			StringData: map[string]string{"password": value}}, metav1.CreateOptions{})
		err3 := secrets.Delete(ctx, "deleted", metav1.DeleteOptions{})
		_, err4 := secrets.Patch(ctx, "fixed", types.MergePatchType,
			[]byte(`{"data":{"a":"aHVudGVyMw=="}}`), metav1.PatchOptions{})
		_, err5 := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "applied", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: value}}},
			metav1.CreateOptions{})
		if !apierrors.IsInvalid(err4) {
			return fmt.Errorf("an immutable Secret was changed: %w", err4)
		}
		return errors.Join(err1, err2, err3, err5)
	})
	require.Len(t, report.Changes, 4)
	require.Equal(t, []plan.Field{{Path: "data", Hidden: true},
		{Path: "metadata.annotations[" + corev1.LastAppliedConfigAnnotation + "]", Hidden: true},
		{Path: "metadata.annotations", Hidden: true},
		{Path: "metadata.labels[shown]", New: "yes"}}, fieldsOf(report, "Secret default/changed"))
	require.Len(t, report.Refused, 1)
	var all bytes.Buffer
	require.NoError(t, report.WriteText(&all))
	require.NoError(t, report.WriteMarkdown(&all))
	require.NoError(t, json.NewEncoder(&all).Encode(report))
	require.NotContains(t, all.String(), value)
	require.NotContains(t, all.String(), "aHVudGVy", "nor in base64")
	require.Contains(t, all.String(), "DATA IS LOST")
}

// fieldsOf are the fields of the first change of an object.
func fieldsOf(r *plan.Report, object string) []plan.Field {
	for _, c := range r.Changes {
		if c.Object.String() == object {
			return c.Fields
		}
	}
	return nil
}

func TestALeaseIsFreeAndNoChange(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	now := metav1.NowMicro()
	_, err := w.clients().CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("the one that runs"), LeaseDurationSeconds: new(int32(15)), RenewTime: &now}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		lease, err := c.CoordinationV1().Leases("default").Get(ctx, "operator", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *lease.Spec.HolderIdentity != "" {
			return fmt.Errorf("the Lease is held by %s", *lease.Spec.HolderIdentity)
		}
		lease.Spec.HolderIdentity = new("planned")
		_, err = c.CoordinationV1().Leases("default").Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	require.Empty(t, report.Changes)
}

// TestACampaignIsWaitedFor has an elector that makes a Lease, and waits longer than it takes to settle before it takes
// it.
func TestACampaignIsWaitedFor(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	report, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		c := kubernetes.NewForConfigOrDie(cfg)
		leases := c.CoordinationV1().Leases("default")
		lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * still):
		}
		lease.Spec.HolderIdentity = new("planned")
		if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			return err
		}
		_, err1 := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "a"}}, metav1.CreateOptions{})
		<-ctx.Done()
		return err1
	}, plan.RunOptions{Quiet: still})
	require.NoError(t, err)
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
}

// TestAHealthyWorldGoesOn has a program of three steps, each of which waits for the one before to be carried out.
func TestAHealthyWorldGoesOn(t *testing.T) {
	steps := func(ctx context.Context, cfg *rest.Config) error {
		c := kubernetes.NewForConfigOrDie(cfg)
		d, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Spec.Template.Spec.Containers[0].Image = "web:2"
		d, err = c.AppsV1().Deployments("default").Update(ctx, d, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		rollout, err := c.AppsV1().Deployments("default").Watch(ctx, metav1.ListOptions{
			ResourceVersion: d.ResourceVersion})
		if err != nil {
			return err
		}
		for e := range rollout.ResultChan() {
			is, ok := e.Object.(*appsv1.Deployment)
			if ok && is.Status.ObservedGeneration == is.Generation && is.Status.AvailableReplicas == 2 {
				break
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "migrate"}, Spec: batchv1.JobSpec{
			Template: template("migrate:2")}}
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		job, err = c.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		ends, err := c.BatchV1().Jobs("default").Watch(ctx, metav1.ListOptions{ResourceVersion: job.ResourceVersion})
		if err != nil {
			return err
		}
		for e := range ends.ResultChan() {
			if is, ok := e.Object.(*batchv1.Job); ok && is.Status.Succeeded == 1 && len(is.Status.Conditions) == 2 {
				break
			}
		}
		_, err = c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "done"}}, metav1.CreateOptions{})
		return err
	}
	for world, want := range map[plan.World][]string{
		plan.Still: {"update Deployment default/web restarts 2"},
		plan.Healthy: {"create ConfigMap default/done", "update Deployment default/web restarts 2",
			"create Job default/migrate"},
	} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			w := newWorld(t, reconciletest.Options{})
			w.rolledOut(2)
			before := w.server.Version()
			report, err := plan.Run(t.Context(), w.link.Config(), steps, plan.RunOptions{Quiet: quiet,
				Options: plan.Options{World: world}})
			require.NoError(t, err)
			w.onlyRead(before)
			require.Equal(t, want, verbs(report))
			require.Empty(t, report.Refused)
			require.Equal(t, world == plan.Healthy, len(report.Approximate) > 0)
		})
	}
}

func TestAHealthyWorldCarriesOutEachKind(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{World: plan.Healthy})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	c, ctx := kubernetes.NewForConfigOrDie(fork.Config()), t.Context()
	set := func(name string, strategy appsv1.StatefulSetUpdateStrategy) {
		_, err := c.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)),
				UpdateStrategy: strategy, Selector: &metav1.LabelSelector{MatchLabels: podLabels},
				Template: template("db:1")}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	set("rolling", appsv1.StatefulSetUpdateStrategy{})
	set("partition", appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}})
	set("on-delete", appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType})
	_, err = c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: template("a:1").Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim(), metav1.CreateOptions{})
	require.NoError(t, err)
	paused := deployment(2)
	paused.Spec.Paused = true
	_, err = c.AppsV1().Deployments("default").Create(ctx, paused, metav1.CreateOptions{})
	require.NoError(t, err)
	report, err := fork.Settle(ctx, still)
	require.NoError(t, err)
	require.Len(t, report.Changes, 6, "what the world does is no change")

	sets, err := c.AppsV1().StatefulSets("default").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, set := range sets.Items { // new ones, which have but one revision
		require.EqualValues(t, 3, set.Status.ReadyReplicas)
		require.EqualValues(t, 3, set.Status.UpdatedReplicas, set.Name)
		require.Equal(t, set.Status.CurrentRevision, set.Status.UpdateRevision)
	}
	pod, err := c.CoreV1().Pods("default").Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
	bound, err := c.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ClaimBound, bound.Status.Phase)
	d, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Status.ObservedGeneration)
	require.Zero(t, d.Status.Replicas, "a paused Deployment is seen, and not rolled out")
}

// TestAHealthyWorldReplacesPods has a program that restarts a pod, and waits for the next.
func TestAHealthyWorldReplacesPods(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.rolledOut(1)
	report, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default")
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if err := pods.Delete(ctx, "web-1-0", metav1.DeleteOptions{}); err != nil {
			return err
		}
		next, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			return err
		}
		for e := range next.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Name != "web-1-0" && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return ctx.Err()
	}, plan.RunOptions{Quiet: quiet, Options: plan.Options{World: plan.Healthy}})
	require.NoError(t, err)
	require.True(t, report.Settled)
	require.Equal(t, []string{"delete Pod default/web-1-0 restarts 1"}, verbs(report))
}

// crd is a custom resource with defaults, pruning, two versions and a list that is merged by a key.
const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: sets, singular: set, kind: Set}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 3, maximum: 9}
              volumes:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, gb: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1beta1
    served: true
    storage: false
    subresources: {status: {}}
    schema: *schema
`

// As programs do that use typed clients for their own kinds.
func init() {
	scheme.Scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Set"},
		&metav1.PartialObjectMetadata{})
}

func TestCustomResourcesHaveTheirSchemas(t *testing.T) {
	w := newWorld(t, reconciletest.Options{CRDs: []string{fileOf(t, crd)}})
	sets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"}
	set := func(version string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/" + version, "kind": "Set",
			"metadata": map[string]any{"name": "a"}, "spec": spec}}
	}
	_, err := dynamic.NewForConfigOrDie(w.server.Config()).Resource(sets).Namespace("default").Create(t.Context(),
		set("v1", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
	require.NoError(t, err)
	before := w.server.Version()
	report, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		c := dynamic.NewForConfigOrDie(cfg)
		old := sets
		old.Version = "v1beta1"
		is, err := c.Resource(old).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if is.GetAPIVersion() != "example.com/v1beta1" {
			return fmt.Errorf("it is shown in %s", is.GetAPIVersion())
		}
		spec := map[string]any{"volumes": []any{map[string]any{"name": "data", "gb": int64(5)}}}
		if _, err := c.Resource(sets).Namespace("default").Apply(ctx, "a", set("v1", spec), metav1.ApplyOptions{
			FieldManager: "operator"}); err != nil {
			return err
		}
		_, err = c.Resource(sets).Namespace("default").Apply(ctx, "a", set("v1", map[string]any{"size": int64(10)}),
			metav1.ApplyOptions{FieldManager: "another", Force: true})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("a size of 10 is not refused: %w", err)
		}
		return nil
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	w.onlyRead(before)
	require.Equal(t, []string{"update Set default/a"}, verbs(report))
	require.Equal(t, []string{"spec.volumes[data].gb", "spec.volumes[data].name"}, paths(report.Changes[0]))
	require.Len(t, report.Refused, 1)
	require.Empty(t, report.Approximate)

	report, err = plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		return dynamic.NewForConfigOrDie(cfg).Resource(definitions).Delete(ctx, "sets.example.com",
			metav1.DeleteOptions{})
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	require.Equal(t, []string{"delete CustomResourceDefinition sets.example.com data"}, verbs(report))
	require.NotEmpty(t, report.Approximate, "the objects of the kind are not listed")
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// TestMissingRightsAreNamed has a plan that may read ConfigMaps in one namespace, and nothing else.
func TestMissingRightsAreNamed(t *testing.T) {
	role := fileOf(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: planner, namespace: default}]
`)
	w := newWorld(t, reconciletest.Options{Roles: []string{role}})
	w.link = w.server.LinkAs(reconciletest.ServiceAccount("default", "planner"))
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		_, err1 := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "a"}}, metav1.CreateOptions{})
		_, err2 := c.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err2) {
			return fmt.Errorf("the Secrets: %w", err2)
		}
		return err1
	})
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
	var missing []string
	for _, m := range report.Missing {
		missing = append(missing, m.Verb+" "+m.Resource+" "+m.Namespace)
	}
	require.Equal(t, []string{"list namespaces ", "list secrets ", "list secrets default",
		"list mutatingwebhookconfigurations ", "list validatingwebhookconfigurations "}, missing)
	require.Len(t, report.Refused, 1)
	require.EqualValues(t, http.StatusForbidden, report.Refused[0].Code)
	require.True(t, slices.ContainsFunc(report.Approximate, func(a plan.Approximation) bool {
		return strings.Contains(a.Why, "whether its namespace exists")
	}))
}

func TestAKindThatTheClusterDoesNotHaveIsNamed(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.NetworkingV1().Ingresses("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Ingresses: %w", err)
		}
		return nil
	})
	require.Equal(t, []string{"ingresses.v1.networking.k8s.io"}, report.Unserved)
}

func TestWebhooksThatWouldBeAskedAreNamed(t *testing.T) {
	w := newWorld(t, reconciletest.Options{Manifests: []string{fileOf(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: configmaps.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: default, name: policy}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`)}})
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Apply(ctx, corev1ac.ConfigMap("a", "default"), metav1.ApplyOptions{
			FieldManager: "x"})
		return err
	})
	require.Equal(t, []plan.Approximation{{Resource: "configmaps", Times: 1,
		Why: "the webhook configmaps.example.com of policy would be asked"}}, report.Approximate)
}

func TestTheClusterGoesDownInTheMiddle(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "a"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		w.link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.ConnectionRefused })
		_, err := c.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("the Secrets: %w", err)
		}
		w.link.Inject(nil)
		_, err = c.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		return err
	})
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
	require.Len(t, report.Refused, 1)
}

// bare is the registry of a kind that nothing is done to.
type bare struct{}

func (bare) Default(runtime.Object)           {}
func (bare) Fields(runtime.Object) fields.Set { return nil }

func (bare) Create(_ reconciletest.Attempt, o runtime.Object) (runtime.Object, error) { return o, nil }

func (bare) Update(_ reconciletest.Attempt, o, _ runtime.Object) (runtime.Object, bool, error) {
	return o, false, nil
}

// TestTheScaleOfAKindThatIsNotModelled is refused: a fork has not the defaults of a ReplicationController, so that one
// may have no number.
func TestTheScaleOfAKindThatIsNotModelled(t *testing.T) {
	gvr := corev1.SchemeGroupVersion.WithResource("replicationcontrollers")
	verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	w := newWorld(t, reconciletest.Options{Kinds: []reconciletest.Kind{{Registry: bare{},
		Resource: reconciletest.Resource{GroupVersionResource: gvr, Kind: "ReplicationController"},
		Discovery: []metav1.APIResource{{Name: gvr.Resource, Namespaced: true, Kind: "ReplicationController",
			Verbs: verbs}},
		ResetFields: map[string]map[fieldpath.APIVersion]fieldpath.Filter{"": nil},
	}}})
	fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{})
	require.NoError(t, err)
	defer fork.Close()
	controllers := kubernetes.NewForConfigOrDie(fork.Config()).CoreV1().ReplicationControllers("default")
	_, err = controllers.Create(t.Context(), &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = controllers.GetScale(t.Context(), "c", metav1.GetOptions{})
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, http.StatusNotImplemented, status.Status().Code, "%v", err)
}

func TestAForkNeedsItsToken(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{})
	require.NoError(t, err)
	stranger := fork.Config()
	stranger.BearerToken = "guessed"
	_, err = kubernetes.NewForConfigOrDie(stranger).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsUnauthorized(err), err)
	require.Empty(t, w.link.Requests())
	info, err := os.Stat(fork.Kubeconfig())
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	require.NoError(t, fork.Close())
	_, err = os.Stat(filepath.Dir(fork.Kubeconfig()))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAProgramThatFails(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	broken := errors.New("broken")
	report, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		return errors.Join(err, broken)
	}, plan.RunOptions{})
	require.ErrorIs(t, err, broken)
	require.Len(t, report.Changes, 1, "what it has done before is told")
	_, err = plan.Run(t.Context(), w.link.Config(), func(context.Context, *rest.Config) error { return nil },
		plan.RunOptions{})
	require.ErrorIs(t, err, plan.ErrNoRequest)
	_, err = plan.Run(t.Context(), w.link.Config(), func(context.Context, *rest.Config) error { panic("no") },
		plan.RunOptions{})
	require.Error(t, err)
}

// TestAProgramThatNeverSettles writes to one object until it is ended.
func TestAProgramThatNeverSettles(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	whole, end := context.WithCancel(t.Context())
	defer end()
	report, err := plan.Run(whole, w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		for n := 0; ctx.Err() == nil; n++ {
			if n == 20 {
				end()
			}
			_, err := maps.Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{
				"now": fmt.Sprint(n), "same": "same"}), metav1.ApplyOptions{FieldManager: "x"})
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	require.False(t, report.Settled)
	require.Len(t, report.Changes, 1)
	require.Len(t, report.HotLoops, 1)
	require.Equal(t, []string{"data[now]"}, report.HotLoops[0].Fields)
	require.Greater(t, report.HotLoops[0].Writes, 9)
}

func fileOf(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}
