package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	helmv1 "github.com/k3s-io/helm-controller/pkg/apis/helm.cattle.io/v1"
	"github.com/k3s-io/helm-controller/pkg/controllers/chart"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// releases stands in for the pods of the Jobs, which run helm: as soon as a Job may run, the release of its chart is
// there, with the revision after the one that the Job expects, or all releases are gone. The world ends the Job later.
// What fails is tried again by the next resync.
func releases(ctx context.Context, cfg *rest.Config) error {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	run := func(o any) {
		job := o.(*batchv1.Job)
		of := job.Labels[chart.LabelChartName]
		if of == "" || job.Spec.Suspend == nil || *job.Spec.Suspend || job.DeletionTimestamp != nil {
			return
		}
		secrets, container := clients.CoreV1().Secrets(job.Namespace), job.Spec.Template.Spec.Containers[0]
		labels := map[string]string{"owner": "helm", "name": of}
		if container.Args[0] == "delete" {
			_ = secrets.DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(metav1.SetAsLabelSelector(labels))})
			return
		}
		for _, e := range container.Env {
			switch e.Name {
			case "CONFIG_HASH":
				labels[chart.KeyConfigHash] = e.Value
			case "EXPECTED_RELEASE_REVISION":
				revision, _ := strconv.Atoi(e.Value)
				labels["version"] = strconv.Itoa(revision + 1)
			}
		}
		labels["status"] = "deployed"
		release := &corev1.Secret{Type: chart.ReleaseType, ObjectMeta: metav1.ObjectMeta{Labels: labels,
			Name: "sh.helm.release.v1." + of + ".v" + labels["version"]}}
		if _, err := secrets.Create(ctx, release, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return
		}
		if patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}}); err == nil {
			_, _ = secrets.Patch(ctx, release.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	factory := informers.NewSharedInformerFactory(clients, 30*time.Second)
	if _, err := factory.Batch().V1().Jobs().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: run, UpdateFunc: func(_, o any) { run(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// numbered removes the revisions of releases, which count what was done before: those that helm has stored, and the one
// that a Job expects, also where the Job says what was applied.
func numbered(o *unstructured.Unstructured) {
	if kind, _, _ := unstructured.NestedString(o.Object, "type"); kind == chart.ReleaseType {
		o.Object = nil
		return
	}
	if o.GetKind() != "Job" {
		return
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "objectset.rio.cattle.io/applied")
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		env, _, _ := unstructured.NestedSlice(c.(map[string]any), "env")
		for _, e := range env {
			if e := e.(map[string]any); e["name"] == "EXPECTED_RELEASE_REVISION" {
				delete(e, "value")
			}
		}
		if len(env) > 0 {
			c.(map[string]any)["env"] = env
		}
	}
	if len(containers) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
	}
}

// TestHelmChart: a chart is installed, gets more values and another version; another one is deleted. Nothing is
// switched off; no schedule begins after a minute.
func TestHelmChart(t *testing.T) {
	of := func(name, version string) string {
		return fmt.Sprintf(`
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata: {name: %s, namespace: default}
spec:
  chart: %s
  version: %s
  repo: https://charts.example.com
  valuesContent: "replicas: 2"
---
`, name, name, version)
	}
	const more = `
apiVersion: helm.cattle.io/v1
kind: HelmChartConfig
metadata: {name: web, namespace: default}
spec: {valuesContent: "image: nginx"}
---
`
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default"}},
		World:  &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }},
		Beside: []func(context.Context, *rest.Config) error{releases},
		Limit:  time.Minute,
		Steps: append(reconciletest.ApplyYAML(of("web", "1.0.0")+of("old", "1.0.0"), more, of("web", "1.1.0")),
			reconciletest.Delete("helmcharts", "default", "old")),
		Mask: numbered,
		Settled: func(s *reconciletest.Server) error {
			web, err := there[*helmv1.HelmChart](s, "helmcharts", "default", "web")
			job, err2 := there[*batchv1.Job](s, "jobs", "default", "helm-install-web")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			var version string
			for _, e := range job.Spec.Template.Spec.Containers[0].Env {
				if e.Name == "VERSION" {
					version = e.Value
				}
			}
			return errors.Join(want("job of web", web.Status.JobName, job.Name), want("version", version, "1.1.0"),
				want("jobs that are done", job.Status.Succeeded, 1),
				gone[*helmv1.HelmChart](s, "helmcharts", "default", "old"),
				gone[*rbacv1.ClusterRoleBinding](s, "clusterrolebindings", "", "helm-default-old"))
		},
	})
}
