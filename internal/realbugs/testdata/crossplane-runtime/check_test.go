// Package check runs the reconciler of managed resources of Crossplane's library, as the main of a provider does, for a
// provider of the test: its resources are records of an API outside.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	xpv1 "github.com/crossplane/crossplane-runtime/v2/apis/common/v1"
	"github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// run is the main of a provider. The names of what is outside are those of the resources, so that it may go on after a
// creation of which it does not know the result.
func run(ctx context.Context, cfg *rest.Config) error {
	const rate = 10
	again, period, all := true, time.Hour, runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(all), addToScheme(all)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(ratelimiter.LimitRESTConfig(cfg, rate), ctrl.Options{
		Scheme:                 all,
		Cache:                  cache.Options{SyncPeriod: &period},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	o := controller.Options{
		Logger:                  logging.NewNopLogger(),
		MaxConcurrentReconciles: rate,
		PollInterval:            time.Minute,
		GlobalRateLimiter:       ratelimiter.NewGlobal(rate),
		Features:                &feature.Flags{},
	}
	const name = "managed/bucket.example.com"
	r := managed.NewReconciler(mgr, resource.ManagedKind(kind),
		managed.WithExternalConnector(connector{}),
		managed.WithDeterministicExternalName(true),
		managed.WithManagementPolicies(),
		managed.WithLogger(o.Logger),
		managed.WithPollInterval(o.PollInterval),
		managed.WithRecorder(event.NewAPIRecorder(mgr.GetEventRecorderFor(name))))
	if err := ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(o.ForControllerRuntime()).
		WithEventFilter(resource.DesiredStateChanged()).For(&Bucket{}).
		Complete(ratelimiter.NewReconciler(name, r, o.GlobalRateLimiter)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// tried removes the annotations that say when a creation was tried last, and how that ended.
func tried(o *unstructured.Unstructured) {
	if o.GetKind() != kind.Kind {
		return
	}
	annotations := o.GetAnnotations()
	for _, name := range []string{meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded,
		meta.AnnotationKeyExternalCreateFailed} {
		delete(annotations, name)
	}
	o.SetAnnotations(annotations)
}

// TestManaged: each bucket is a record outside. One gets larger, one has a Secret, one was there before, and one goes.
// Nothing is switched off; no schedule begins after a minute.
func TestManaged(t *testing.T) {
	const buckets = "buckets.example.com"
	bucket := func(name string, size int, more string) string {
		return fmt.Sprintf(`
apiVersion: example.com/v1
kind: Bucket
metadata: {name: %s, namespace: default}
spec:
  managementPolicies: ["*"]
  forProvider: {size: %d}
  %s
---
`, name, size, more)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{Kinds: builtin.Kinds(), Namespaces: []string{"default"},
			Resources: []reconciletest.Resource{{Kind: kind.Kind, Status: true,
				GroupVersionResource: version.WithResource("buckets")}}},
		Outside: outside(map[string]string{"/buckets/found": `{"size": 1}`}),
		Limit:   time.Minute,
		Steps: append(reconciletest.ApplyYAML(
			bucket("photos", 1, "writeConnectionSecretToRef: {name: photos}")+bucket("old", 2, "")+
				bucket("found", 3, ""),
			bucket("photos", 5, "writeConnectionSecretToRef: {name: photos}")+bucket("films", 8, "")),
			reconciletest.Delete(buckets, "default", "old")),
		Mask: tried,
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*unstructured.Unstructured](s, buckets, "default", "old")}
			for name, size := range map[string]int64{"photos": 5, "found": 3, "films": 8} {
				b, err := there[*unstructured.Unstructured](s, buckets, "default", name)
				if err != nil {
					return err
				}
				is, _, _ := unstructured.NestedInt64(b.Object, "spec", "forProvider", "size")
				conditions, _, _ := unstructured.NestedSlice(b.Object, "status", "conditions")
				ready := false
				for _, c := range conditions {
					m := c.(map[string]any)
					ready = ready || m["type"] == string(xpv1.TypeReady) && m["status"] == "True"
				}
				errs = append(errs, want("size of "+name, is, size), want(name+" is ready", ready, true))
			}
			secret, err := there[*corev1.Secret](s, "secrets", "default", "photos")
			if err != nil {
				return err
			}
			return errors.Join(append(errs, want("endpoint", string(secret.Data["endpoint"]),
				"https://"+host+"/buckets/photos"))...)
		},
	})
}
