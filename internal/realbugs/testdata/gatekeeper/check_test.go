// Package check runs each controller of Gatekeeper by itself that gathers what its pods say of an object, with the
// scheme and the manager of its main. Webhooks, certificates and the engine of policies are left out.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	templates "github.com/open-policy-agent/frameworks/constraint/pkg/apis"
	"github.com/open-policy-agent/frameworks/constraint/pkg/apis/templates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	expansionv1beta1 "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/v1beta1"
	statusv1beta1 "github.com/open-policy-agent/gatekeeper/v3/apis/status/v1beta1"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/constrainttemplatestatus"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/expansionstatus"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const system = "gatekeeper-system"

var (
	constraintTemplates = v1beta1.SchemeGroupVersion.WithResource("constrainttemplates")
	expansionTemplates  = expansionv1beta1.GroupVersion.WithResource("expansiontemplate") // it has no plural
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// adds adds a controller to a manager.
type adds interface{ Add(mgr ctrl.Manager) error }

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute. definitions are files.
func check(t *testing.T, a adds, s reconciletest.Scenario, definitions ...string) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, a) }
	s.Server = reconciletest.Options{Kinds: builtin.Kinds(), Rules: cel.Rules{},
		Namespaces: []string{"default", system}}
	for _, file := range definitions {
		s.Server.CRDs = append(s.Server.CRDs, "crd/"+file)
	}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config, a adds) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, templates.AddToScheme,
		statusv1beta1.AddToScheme, expansionv1beta1.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:         scheme,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: apiutil.NewDynamicRESTMapper,
		Controller:     config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if err := a.Add(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// pods stands in for two pods of Gatekeeper: each says which generation of each object of a resource it has seen, in an
// object of its own, which it deletes with the other one.
func pods(of schema.GroupVersionResource, kind, resource, label string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		statuses := client.Resource(statusv1beta1.GroupVersion.WithResource(resource)).Namespace(system)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
		// What fails is tried again at the next resync, but for a deletion.
		say := func(o any) {
			u := o.(*unstructured.Unstructured)
			for _, pod := range []string{"one", "two"} {
				_ = report(ctx, statuses, kind, label, pod, u)
			}
		}
		gone := func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			for _, pod := range []string{"one", "two"} {
				_ = statuses.Delete(ctx, pod+"-"+o.(*unstructured.Unstructured).GetName(), metav1.DeleteOptions{})
			}
		}
		if _, err := factory.ForResource(of).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: say,
			UpdateFunc: func(_, o any) { say(o) }, DeleteFunc: gone}); err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}
}

// report writes what a pod has seen of an object.
func report(ctx context.Context, statuses dynamic.ResourceInterface, kind, label, pod string,
	u *unstructured.Unstructured) error {
	name := pod + "-" + u.GetName()
	status := map[string]any{"id": pod, "templateUID": string(u.GetUID()), "observedGeneration": u.GetGeneration()}
	is, err := statuses.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err := statuses.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": statusv1beta1.GroupVersion.String(), "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": system, "labels": map[string]any{
				label: u.GetName(), statusv1beta1.PodLabel: pod}},
			"status": status,
		}}, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	uid, _, _ := unstructured.NestedString(is.Object, "status", "templateUID")
	seen, _, _ := unstructured.NestedInt64(is.Object, "status", "observedGeneration")
	if uid == string(u.GetUID()) && seen == u.GetGeneration() {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = statuses.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// gathered returns an error unless the status of an object has what both pods say of its generation.
func gathered(o *unstructured.Unstructured) error {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "byPod") // none, if it is no list
	errs := []error{want("pods that "+o.GetName()+" has heard of", len(all), 2)}
	for _, of := range all {
		pod := of.(map[string]any)
		errs = append(errs, want(fmt.Sprintf("what %v has seen of %s", pod["id"], o.GetName()),
			pod["observedGeneration"], o.GetGeneration()))
	}
	return errors.Join(errs...)
}

// custom is a custom resource.
type custom = *unstructured.Unstructured

// TestConstraintTemplateStatus: a template is created when a pod has no error to report.
func TestConstraintTemplateStatus(t *testing.T) {
	of := func(kind, name, rule string) string {
		return fmt.Sprintf(`
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: %s}
spec:
  crd: {spec: {names: {kind: %s}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: "package %s\nviolation[{\"msg\": \"no\"}] { %s }"
---
`, name, kind, name, rule)
	}
	resource := constraintTemplates.Resource
	check(t, &constrainttemplatestatus.Adder{}, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{pods(constraintTemplates, "ConstraintTemplatePodStatus",
			"constrainttemplatepodstatuses", statusv1beta1.ConstraintTemplateNameLabel)},
		Steps: append(reconciletest.ApplyYAML(of("Labelled", "labelled", "true")+of("Old", "old", "true"),
			of("Labelled", "labelled", "false")), reconciletest.Delete(resource, "", "old"),
			reconciletest.ApplyYAML(of("Named", "named", "true"))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[custom](s, resource, "", "old")}
			for _, name := range []string{"labelled", "named"} {
				o, err := there[custom](s, resource, "", name)
				if err != nil {
					return err
				}
				created, _, _ := unstructured.NestedBool(o.Object, "status", "created")
				errs = append(errs, gathered(o), want(name+" is created", created, true))
			}
			return errors.Join(errs...)
		},
	}, "constrainttemplate-customresourcedefinition.yaml", "status.gatekeeper.sh_constrainttemplatepodstatuses.yaml")
}

// TestExpansionTemplateStatus: the same for what says which objects are made from others.
func TestExpansionTemplateStatus(t *testing.T) {
	of := func(name, kind, action string) string {
		return fmt.Sprintf(`
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: %s}
spec:
  applyTo: [{groups: [apps], kinds: [%s], versions: [v1]}]
  templateSource: spec.template
  enforcementAction: %s
  generatedGVK: {kind: Pod, group: '', version: v1}
---
`, name, kind, action)
	}
	resource := expansionTemplates.Resource
	check(t, &expansionstatus.Adder{}, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{pods(expansionTemplates, "ExpansionTemplatePodStatus",
			"expansiontemplatepodstatuses", statusv1beta1.ExpansionTemplateNameLabel)},
		Steps: append(reconciletest.ApplyYAML(of("deployments", "Deployment", "warn")+of("old", "DaemonSet", "warn"),
			of("deployments", "Deployment", "deny")), reconciletest.Delete(resource, "", "old")),
		Settled: func(s *reconciletest.Server) error {
			o, err := there[custom](s, resource, "", "deployments")
			if err != nil {
				return err
			}
			return errors.Join(gathered(o), gone[custom](s, resource, "", "old"))
		},
	}, "expansion.gatekeeper.sh_expansiontemplate.yaml", "status.gatekeeper.sh_expansiontemplatepodstatuses.yaml")
}
