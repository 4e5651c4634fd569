package check

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"knative.dev/serving/pkg/reconciler/configuration"
	"knative.dev/serving/pkg/reconciler/labeler"
	"knative.dev/serving/pkg/reconciler/revision"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// spec is that of a revision, with what Knative's webhook fills in.
func spec(image string, indent string) string {
	return fmt.Sprintf(`
%scontainerConcurrency: 0
%stimeoutSeconds: 300
%senableServiceLinks: false
%scontainers:
%s- name: user-container
%s  image: dev.local/%s
%s  resources: {}
%s  readinessProbe: {tcpSocket: {port: 0}, successThreshold: 1}
---
`, indent, indent, indent, indent, indent, indent, image, indent, indent)
}

// configured is a Configuration.
func configured(name, image string) string {
	return fmt.Sprintf(`
apiVersion: serving.knative.dev/v1
kind: Configuration
metadata: {name: %s, namespace: default}
spec:
  template:
    spec:%s`, name, spec(image, "      "))
}

// beside are programs that run all the time.
type beside = []func(context.Context, *rest.Config) error

// latest returns the revision that a Configuration says is the latest one that is ready.
func latest(s *reconciletest.Server, name string) (*servingv1.Revision, error) {
	c, err := there[*servingv1.Configuration](s, configurations.Resource, "default", name)
	if err != nil {
		return nil, err
	}
	if err := want("the latest revision of "+name, c.Status.LatestReadyRevisionName,
		c.Status.LatestCreatedRevisionName); err != nil {
		return nil, err
	}
	return there[*servingv1.Revision](s, revisions.Resource, "default", c.Status.LatestReadyRevisionName)
}

// TestConfiguration: each image is a revision.
func TestConfiguration(t *testing.T) {
	check(t, configuration.NewController, reconciletest.Scenario{
		Beside: beside{reports(revisions, nil, "Ready")},
		Steps: append(reconciletest.ApplyYAML(configured("web", "one")+configured("old", "one"),
			configured("web", "two"), configured("web", "three")),
			reconciletest.Delete(configurations.Resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			r, err := latest(s, "web")
			if err != nil {
				return err
			}
			return errors.Join(want("image", r.Spec.Containers[0].Image, "dev.local/three"),
				gone[*servingv1.Configuration](s, configurations.Resource, "default", "old"))
		},
	}, nil)
}

// TestLabeler: a revision says which routes lead to it.
func TestLabeler(t *testing.T) {
	route := func(name, to string) string {
		return fmt.Sprintf(`
apiVersion: serving.knative.dev/v1
kind: Route
metadata: {name: %s, namespace: default}
spec: {traffic: [{configurationName: %s, latestRevision: true, percent: 100}]}
---
`, name, to)
	}
	check(t, labeler.NewController, reconciletest.Scenario{
		Beside: beside{program(configuration.NewController), reports(revisions, nil, "Ready"),
			reports(routes, nil, "Ready", "AllTrafficAssigned", "IngressReady", "CertificateProvisioned")},
		Steps: append(reconciletest.ApplyYAML(configured("web", "one")+configured("shop", "one")+route("first", "web"),
			configured("web", "two")+route("second", "web"), route("first", "shop")),
			reconciletest.Delete(routes.Resource, "default", "second")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for name, routes := range map[string]string{"web": "", "shop": "first"} {
				c, err := there[*servingv1.Configuration](s, configurations.Resource, "default", name)
				if err != nil {
					return err
				}
				r, err := latest(s, name)
				if err != nil {
					return err
				}
				errs = append(errs,
					want("routes to the revision of "+name, r.Annotations[serving.RoutesAnnotationKey], routes),
					want("routes to "+name, c.Annotations[serving.RoutesAnnotationKey], routes))
			}
			return errors.Join(append(errs, gone[*servingv1.Route](s, routes.Resource, "default", "second"))...)
		},
	}, nil)
}

// TestRevision: a revision runs as a Deployment. Whether traffic reaches it says a label, and its autoscaler is told.
func TestRevision(t *testing.T) {
	of := func(name, state string) string {
		return fmt.Sprintf(`
apiVersion: serving.knative.dev/v1
kind: Revision
metadata:
  name: %s
  namespace: default
  labels: {serving.knative.dev/configuration: web, serving.knative.dev/configurationGeneration: '1',
    serving.knative.dev/routingState: %s}
spec:%s`, name, state, spec("one", "  "))
	}
	check(t, revision.NewController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Beside: beside{reports(autoscalers, map[string]any{"serviceName": "web-1",
			"metricsServiceName": "web-1-private"}, "Ready", "Active", "SKSReady",
			"ScaleTargetInitialized")},
		Steps: append(reconciletest.ApplyYAML(of("web-1", "pending")+of("old-1", "active"), of("web-1", "active"),
			of("web-1", "reserve")), reconciletest.Delete(revisions.Resource, "default", "old-1")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*servingv1.Revision](s, revisions.Resource, "default", "web-1")
			if err != nil {
				return err
			}
			a, err := there[*autoscalingv1alpha1.PodAutoscaler](s, autoscalers.Resource, "default", "web-1")
			if err != nil {
				return err
			}
			_, err = there[*appsv1.Deployment](s, "deployments", "default", "web-1-deployment")
			return errors.Join(err, want("the revision is ready", r.IsReady(), true),
				want("reachability", a.Spec.Reachability, autoscalingv1alpha1.ReachabilityUnreachable),
				gone[*servingv1.Revision](s, revisions.Resource, "default", "old-1"))
		},
	}, map[string]string{"deployment": "  queue-sidecar-image: dev.local/queue\n" +
		"  registries-skipping-tag-resolving: dev.local\n"})
}
