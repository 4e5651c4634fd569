package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// autoscaler makes an HPA.
func (w *world) autoscaler(owners ...metav1.OwnerReference) *autoscalingv2.HorizontalPodAutoscaler {
	h, err := w.clients().AutoscalingV2().HorizontalPodAutoscalers("default").Create(w.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: owners},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
					Name: "web"}}},
		metav1.CreateOptions{})
	require.NoError(w, err)
	return h
}

// TestAnOwnerMadeInBetweenIsNotGone has a fork that has read Jobs before a Job is made in the cluster, and pods
// afterwards.
func TestAnOwnerMadeInBetweenIsNotGone(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	fork, err := plan.Fork(t.Context(), w.link.Config(), plan.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	c := kubernetes.NewForConfigOrDie(fork.Config())
	_, err = c.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	pod := template("job:1")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	job, err := w.clients().BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: pod}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.clients().CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "job-x", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job",
			UID: job.UID}}}, Spec: pod.Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.CoreV1().Pods("default").Patch(t.Context(), "job-x", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	report, err := fork.Settle(t.Context(), still)
	require.NoError(t, err)
	require.Equal(t, []string{"update Pod default/job-x"}, verbs(report))
}

// TestAnOwnerIsKnownInEachVersion has a dependent that names its owner in another version than the program does.
func TestAnOwnerIsKnownInEachVersion(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.rolledOut(1)
	h := w.autoscaler()
	_, err := w.clients().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "autoscaling/v1", Kind: "HorizontalPodAutoscaler", Name: "web", UID: h.UID}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		return c.AutoscalingV2().HorizontalPodAutoscalers("default").Delete(ctx, "web", metav1.DeleteOptions{})
	})
	require.Equal(t, []string{"delete ConfigMap default/child", "delete HorizontalPodAutoscaler default/web"},
		verbs(report))
}

// TestAKindThatCannotBeReadHidesNoOther has a Deployment that owns objects of several kinds, of which the cluster shows
// one to nobody who asks for more than the metadata.
func TestAKindThatCannotBeReadHidesNoOther(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	d := w.rolledOut(1)
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: d.UID}
	w.autoscaler(owner)
	meta := metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{owner}}
	_, err1 := w.clients().CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta},
		metav1.CreateOptions{})
	_, err2 := w.clients().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta},
		metav1.CreateOptions{})
	require.NoError(t, first(err1, err2))
	var lists atomic.Int32
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource != "configmaps" || lists.Add(1) == 1 { // which is that of the metadata
			return nil
		}
		return reconciletest.AnswerWith(apierrors.NewInternalError(errors.New("broken")))
	})
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		return c.AppsV1().Deployments("default").Delete(ctx, "web", metav1.DeleteOptions{})
	})
	require.ElementsMatch(t, []string{"delete Deployment default/web", "delete ReplicaSet default/web-1",
		"delete Pod default/web-1-0 restarts 1", "delete PersistentVolumeClaim default/data data",
		"delete HorizontalPodAutoscaler default/web", "delete Secret default/a data"}, verbs(report))
	require.True(t, slices.ContainsFunc(report.Approximate, func(a plan.Approximation) bool {
		return strings.Contains(a.Why, "configmaps")
	}), "%+v", report.Approximate)
}

// TestWhatCannotBeDeletedGoesWithNoNamespace has an API that lists what it measures, as a metrics server does.
func TestWhatCannotBeDeletedGoesWithNoNamespace(t *testing.T) {
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	lists := atomic.Int32{}
	w := newWorld(t, reconciletest.Options{Aggregated: map[schema.GroupVersion]http.Handler{
		metrics: http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			var answer any = &metav1.APIResourceList{GroupVersion: metrics.String(),
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
				APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Namespaced: true,
					Verbs: metav1.Verbs{"get", "list"}}}}
			if strings.HasSuffix(req.URL.Path, "/pods") {
				lists.Add(1)
				answer = &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
					Kind: "PartialObjectMetadataList"}, Items: []metav1.PartialObjectMetadata{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "gone", Name: "web", UID: "1"}}}}
			}
			rw.Header().Set("Content-Type", "application/json")
			data, err := json.Marshal(answer)
			if err == nil {
				_, err = rw.Write(data)
			}
			if err != nil {
				panic(err)
			}
		}),
	}})
	_, err := w.clients().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Namespaces().Delete(ctx, "gone", metav1.DeleteOptions{})
	})
	require.Equal(t, []string{"delete Namespace gone data"}, verbs(report))
	require.Zero(t, lists.Load())
}

// TestATemplateInACustomResource has a kind with a pod template: what its controller makes of a change is not known.
func TestATemplateInACustomResource(t *testing.T) {
	manifest := strings.Replace(crd, "size: {type: integer, default: 3, maximum: 9}",
		"size: {type: integer, default: 3, maximum: 9}\n              pods: {type: object, "+
			"x-kubernetes-preserve-unknown-fields: true}", 1)
	w := newWorld(t, reconciletest.Options{CRDs: []string{fileOf(t, manifest)}})
	for image, size := range map[string]int{"web:1": 4, "web:2": 3} {
		report := w.planSet(func(spec map[string]any) {
			spec["size"] = int64(size)
			spec["pods"] = map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{"name": "web", "image": image}}}}}
		})
		require.Len(t, report.Changes, 1)
		require.Equal(t, image == "web:2", slices.ContainsFunc(report.Approximate, func(a plan.Approximation) bool {
			return strings.Contains(a.Why, "pod template")
		}), "%+v", report.Approximate)
	}
}

// planSet makes a Set that has pods of web:1, and plans a change of its spec.
func (w *world) planSet(change func(spec map[string]any)) *plan.Report {
	sets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"}
	object := &unstructured.Unstructured{}
	require.NoError(w, json.Unmarshal([]byte(`{"apiVersion": "example.com/v1", "kind": "Set",
		"metadata": {"name": "a"}, "spec": {"pods": {"template": {"spec": {"containers": [
			{"name": "web", "image": "web:1"}]}}}}}`), &object.Object))
	c := dynamic.NewForConfigOrDie(w.server.Config()).Resource(sets).Namespace("default")
	_, err := c.Create(w.Context(), object, metav1.CreateOptions{})
	require.True(w, err == nil || apierrors.IsAlreadyExists(err), err)
	report, err := plan.Run(w.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		c := dynamic.NewForConfigOrDie(cfg).Resource(sets).Namespace("default")
		is, err := c.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(is.Object["spec"].(map[string]any))
		_, err = c.Update(ctx, is, metav1.UpdateOptions{})
		return err
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(w, err)
	return report
}
