package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// admitted is plan with Options.Admission. It fails the test if the cluster was asked for more than reads and dry runs.
func (w *world) admitted(run func(ctx context.Context, c kubernetes.Interface) error) *plan.Report {
	w.Helper()
	before := w.server.Version()
	report, err := plan.Run(w.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		return run(ctx, kubernetes.NewForConfigOrDie(cfg))
	}, plan.RunOptions{Quiet: quiet, Options: plan.Options{Admission: true}})
	require.NoError(w, err)
	require.True(w, report.Settled)
	for _, r := range w.link.Requests() {
		require.True(w, r.DryRun || r.Verb == "get" || r.Verb == "list", r)
	}
	require.Equal(w, before, w.server.Version())
	return report
}

// sent are the dry runs that the cluster has been asked for.
func (w *world) sent() (all []string) {
	for _, r := range w.link.Requests() {
		if r.DryRun {
			all = append(all, r.String())
		}
	}
	return all
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// What a report says of admission.
const (
	anotherName = "the cluster still has the object that was deleted on the fork, and was asked about one of another " +
		"name"
	onTheForkOnly = "the object is on the fork only: the cluster was asked about its creation as it would be after " +
		"the update, and not whether what changes may change"
	unjudged = ": the fork goes on without the cluster's admission"
)

// whys are the reasons of a report's approximations.
func whys(r *plan.Report) (all []string) {
	for _, a := range r.Approximate {
		all = append(all, a.Resource+": "+a.Why)
	}
	return all
}

func TestEachWriteIsADryRunOfTheCluster(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	d := w.rolledOut(2)
	_, err := w.clients().CoreV1().ConfigMaps("default").Create(t.Context(), configMap("gone", nil),
		metav1.CreateOptions{})
	require.NoError(t, err)
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		maps := c.CoreV1().ConfigMaps("default")
		made, err1 := maps.Create(ctx, configMap("new", nil), metav1.CreateOptions{})
		made.Data = map[string]string{"a": "1"}
		_, err2 := maps.Update(ctx, made, metav1.UpdateOptions{}) // which the cluster does not have
		d := d.DeepCopy()
		d.Spec.Template.Spec.Containers[0].Image = "web:2"
		d, err3 := c.AppsV1().Deployments("default").Update(ctx, d, metav1.UpdateOptions{})
		d.Labels = map[string]string{"once": "more"} // of a version that the cluster does not know
		d, err4 := c.AppsV1().Deployments("default").Update(ctx, d, metav1.UpdateOptions{})
		d.Status.ObservedGeneration = d.Generation
		_, err5 := c.AppsV1().Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
		scale, err6 := c.AppsV1().Deployments("default").GetScale(ctx, "web", metav1.GetOptions{})
		scale.Spec.Replicas = 1
		_, err7 := c.AppsV1().Deployments("default").UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		err8 := maps.Delete(ctx, "gone", metav1.DeleteOptions{})
		_, err9 := maps.Create(ctx, configMap("gone", nil), metav1.CreateOptions{})
		if d.Generation != 2 {
			return fmt.Errorf("generation %d", d.Generation)
		}
		return errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9)
	})
	require.Equal(t, []string{
		"create configmaps default/", "create configmaps default/",
		"update deployments default/web", "update deployments default/web", "update deployments/status default/web",
		"update deployments default/web",
		"delete configmaps default/gone", "create configmaps default/", "create configmaps default/",
	}, w.sent())
	require.Equal(t, []string{"delete ConfigMap default/gone", "create ConfigMap default/gone",
		"create ConfigMap default/new", "update Deployment default/web restarts 2",
		"update Deployment default/web status"}, verbs(report))
	require.Equal(t, []string{"spec.replicas", "spec.template.spec.containers[web].image"},
		paths(report.Changes[3])[1:])
	require.Equal(t, []string{
		"configmaps: " + anotherName,
		"configmaps: " + onTheForkOnly,
	}, whys(report))
	require.Empty(t, report.Refused)
}

func TestWhatTheClusterMakesOfAWriteIsWhatTheProgramSees(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		switch {
		case !r.DryRun || r.Resource.Resource != "configmaps":
			return nil
		case r.Verb == "delete":
			return reconciletest.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name,
				errors.New("a policy protects it")))
		}
		return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
			resp, err := serve()
			if err == nil {
				resp.Header.Set("Content-Type", "application/json")
				resp.Body = bodyOf(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
					"metadata": map[string]any{"name": "a", "namespace": "default", "uid": "the-clusters",
						"generation": 7, "resourceVersion": "99999", "labels": map[string]any{"injected": "yes"}},
					"data": map[string]any{"a": "1", "owner": "the-clusters"}})
			}
			return resp, err
		}
	})
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		maps := c.CoreV1().ConfigMaps("default")
		made, err := maps.Create(ctx, configMap("a", map[string]string{"a": "1"}), metav1.CreateOptions{
			FieldManager: "me"})
		if err != nil {
			return err
		}
		if made.Labels["injected"] != "yes" || made.UID == "the-clusters" || made.ResourceVersion == "99999" ||
			made.Data["owner"] != string(made.UID) || len(made.ManagedFields) != 1 ||
			made.ManagedFields[0].Manager != "me" {
			return fmt.Errorf("%v", made)
		}
		if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the deletion: %w", err)
		}
		return nil
	})
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
	require.Contains(t, paths(report.Changes[0]), "metadata.labels[injected]")
	require.Len(t, report.Refused, 1)
	require.Contains(t, report.Refused[0].Message, "a policy protects it")
}

func TestAWebhookThatRefusesDryRunsIsNamed(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.DryRun {
			return reconciletest.Refuse(apierrors.NewBadRequest(
				`admission webhook "audit.example.com" does not support dry run`))
		}
		return nil
	})
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, configMap("a", nil), metav1.CreateOptions{})
		return err
	})
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
	require.Equal(t, []string{"configmaps: the webhook audit.example.com refuses dry runs" + unjudged}, whys(report))
}

func TestAPlanWithoutTheRightToWriteSaysSo(t *testing.T) {
	role := fileOf(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: planner, namespace: default}]
`)
	w := newWorld(t, reconciletest.Options{Roles: []string{role}})
	w.link = w.server.LinkAs(reconciletest.ServiceAccount("default", "planner"))
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, configMap("a", nil), metav1.CreateOptions{})
		return err
	})
	require.Equal(t, []string{"create ConfigMap default/a"}, verbs(report))
	require.Equal(t, []plan.Right{{Verb: "create", Resource: "configmaps", Namespace: "default"}}, report.Missing)
	require.Equal(t, "the plan lacks rights", report.Doubt())
	require.Equal(t, []string{"configmaps: the plan may not create configmaps, by a dry run neither" + unjudged},
		whys(report))
	require.Empty(t, report.Refused)
}

// TestWhatNeedsAnObjectOfTheForkIsNotRefused has a program that makes a namespace and fills it: the cluster knows
// nothing of it.
func TestWhatNeedsAnObjectOfTheForkIsNotRefused(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		_, err1 := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
			metav1.CreateOptions{})
		_, err2 := c.CoreV1().ConfigMaps("new").Create(ctx, configMap("a", nil), metav1.CreateOptions{})
		_, err3 := c.CoreV1().ConfigMaps("none").Create(ctx, configMap("a", nil), metav1.CreateOptions{})
		if !apierrors.IsNotFound(err3) {
			return fmt.Errorf("in a namespace that nobody has made: %w", err3)
		}
		return errors.Join(err1, err2)
	})
	require.Equal(t, []string{"create ConfigMap new/a", "create Namespace new"}, verbs(report))
	require.Equal(t, []string{`configmaps: the cluster does not have "new", which the program has made on the fork` +
		unjudged}, whys(report))
}

// TestAJobOfTheForkKeepsItsSelector: the selector that the server makes has the UID of the Job.
func TestAJobOfTheForkKeepsItsSelector(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		pod := template("web:1")
		pod.Labels, pod.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
		made, err := c.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: batchv1.JobSpec{Template: pod}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if is := made.Spec.Selector.MatchLabels["batch.kubernetes.io/controller-uid"]; is != string(made.UID) {
			return fmt.Errorf("%s is not %s", is, made.UID)
		}
		made.Spec.Suspend = new(true)
		_, err = c.BatchV1().Jobs("default").Update(ctx, made, metav1.UpdateOptions{})
		return err
	})
	require.Equal(t, []string{"create Job default/a"}, verbs(report))
	require.Equal(t, []string{"create jobs default/"}, w.sent())
}

func TestWhatAProgramWritesAboutItselfIsNotSent(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	_, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
		_, err := dynamic.NewForConfigOrDie(cfg).Resource(leases).Namespace("default").Create(ctx,
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
				"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"holderIdentity": "me"}}},
			metav1.CreateOptions{})
		return err
	}, plan.RunOptions{Quiet: quiet, Options: plan.Options{Admission: true, World: plan.Healthy}})
	require.NoError(t, err)
	require.Empty(t, w.sent())
}

func bodyOf(v any) io.ReadCloser {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is made of strings
	}
	return io.NopCloser(bytes.NewReader(data))
}

// TestAnotherServersApiIsNotSent has an APIService: what that server makes of a dry run nobody knows.
func TestAnotherServersApiIsNotSent(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	answer := func(v any) reconciletest.Fault {
		return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: bodyOf(v)}, nil
		}
	}
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		switch r.Path {
		case "/apis":
			return answer(metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "apiregistration.k8s.io"}}})
		}
		if r.Resource.Resource == "apiservices" {
			return answer(map[string]any{"items": []any{map[string]any{"spec": map[string]any{"version": "v1",
				"service": map[string]any{"name": "other"}}}}})
		}
		return nil
	})
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, configMap("a", nil), metav1.CreateOptions{})
		return err
	})
	require.Empty(t, w.sent())
	require.Equal(t, []string{"configmaps: another server has the API, and may not know dry runs" + unjudged},
		whys(report))
}

// TestADryRunIsNotRedirected: where the redirect leads, it may be none.
func TestADryRunIsNotRedirected(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	asked := 0
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Verb != "create" || r.Resource.Resource != "configmaps" {
			return nil
		}
		asked++
		return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
			// With the same query: a server that drops it is for onlyDryRuns.
			return &http.Response{StatusCode: http.StatusTemporaryRedirect, Body: http.NoBody, Header: http.Header{
				"Location": {"/api/v1/namespaces/default/configmaps?dryRun=All"}}}, nil
		}
	})
	var refused error
	report := w.admitted(func(ctx context.Context, c kubernetes.Interface) error {
		_, refused = c.CoreV1().ConfigMaps("default").Create(ctx, configMap("a", nil), metav1.CreateOptions{})
		return nil
	})
	require.Error(t, refused)
	require.Equal(t, 1, asked)
	require.Empty(t, report.Changes)
}
