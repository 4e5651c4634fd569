// Package check runs controllers of Crossplane, each by itself, as its main does. Leader election, webhooks, metrics
// and the engine that starts controllers of composite resources are left out.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"

	"github.com/crossplane/crossplane/v2/apis"
	pkgmetav1 "github.com/crossplane/crossplane/v2/apis/pkg/meta/v1"
	pkgv1 "github.com/crossplane/crossplane/v2/apis/pkg/v1"
	"github.com/crossplane/crossplane/v2/internal/controller/apiextensions/composition"
	apiextensions "github.com/crossplane/crossplane/v2/internal/controller/apiextensions/controller"
	"github.com/crossplane/crossplane/v2/internal/controller/apiextensions/managed"
	"github.com/crossplane/crossplane/v2/internal/controller/apiextensions/revision"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// system is the namespace of Crossplane.
const system = "crossplane-system"

var server = reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
	Namespaces: []string{"default", system}}

// setup adds a controller to a manager.
type setup func(ctrl.Manager, controller.Options) error

// run runs a controller with the defaults of the flags.
func run(setup setup) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		const rate = 100
		again, period, all := true, time.Hour, runtime.NewScheme()
		if err := errors.Join(scheme.AddToScheme(all), extv1.AddToScheme(all), apis.AddToScheme(all)); err != nil {
			return err
		}
		mgr, err := ctrl.NewManager(ratelimiter.LimitRESTConfig(cfg, rate), ctrl.Options{
			Scheme: all,
			Cache:  ctrlcache.Options{SyncPeriod: &period},
			Client: client.Options{Cache: &client.CacheOptions{
				DisableFor: []client.Object{&corev1.Secret{}}}},
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			Controller:             config.Controller{SkipNameValidation: &again},
		})
		if err != nil {
			return err
		}
		if err := setup(mgr, controller.Options{
			Logger:                  logging.NewNopLogger(),
			MaxConcurrentReconciles: rate,
			PollInterval:            time.Minute,
			GlobalRateLimiter:       ratelimiter.NewGlobal(rate),
			Features:                &feature.Flags{},
		}); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

func definitions(mgr ctrl.Manager, o controller.Options) error {
	return managed.Setup(mgr, apiextensions.Options{Options: o})
}

func compositions(mgr ctrl.Manager, o controller.Options) error {
	return composition.Setup(mgr, apiextensions.Options{Options: o})
}

func revisions(mgr ctrl.Manager, o controller.Options) error {
	return revision.Setup(mgr, apiextensions.Options{Options: o})
}

// capable stands in for the controller that reads what a function can do from its package: from v2 on it composes.
func capable(resource string) []func(context.Context, *rest.Config) error {
	return reports(resource, func(u *unstructured.Unstructured) map[string]any {
		image, _, _ := unstructured.NestedString(u.Object, "spec", "image")
		is, _, _ := unstructured.NestedStringSlice(u.Object, "status", "capabilities")
		if len(is) > 0 || !strings.HasSuffix(image, ":v2") {
			return nil
		}
		return map[string]any{"capabilities": []string{pkgmetav1.FunctionCapabilityComposition}}
	})
}

// reports writes a part of the status of the objects of a resource, if there is something to write.
func reports(resource string, status func(*unstructured.Unstructured) map[string]any) []func(context.Context,
	*rest.Config) error {
	return []func(context.Context, *rest.Config) error{func(ctx context.Context, cfg *rest.Config) error {
		clients, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		of := pkgv1.SchemeGroupVersion.WithResource(resource)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(clients, 30*time.Second)
		report := func(o any) {
			u := o.(*unstructured.Unstructured)
			part := status(u)
			if part == nil {
				return
			}
			if data, err := json.Marshal(map[string]any{"status": part}); err == nil {
				// The next resync tries it again.
				_, _ = clients.Resource(of).Patch(ctx, u.GetName(), types.MergePatchType, data, metav1.PatchOptions{},
					"status")
			}
		}
		if _, err := factory.ForResource(of).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: report, UpdateFunc: func(_, o any) { report(o) }}); err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}}
}
