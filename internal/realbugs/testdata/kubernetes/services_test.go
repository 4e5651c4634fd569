package check

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// service is a Service by its name and the app that it selects.
func service(name, app string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {selector: {app: %s}, ports: [{port: 80}]}
---
`, name, app)
}

func deployment(name string, replicas int) string {
	return workload("apps/v1", "Deployment", name, replicas, "one")
}

// addressesOf returns how many addresses the ready pods of an app have, and how many of them are among some.
func addressesOf(s *reconciletest.Server, app string, among map[string]bool) (all, found int) {
	for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if p.Labels["app"] == app && ready(p) && p.DeletionTimestamp == nil {
			all++
			if among[p.Status.PodIP] {
				found++
			}
		}
	}
	return all, found
}

var serviceSteps = append(reconciletest.ApplyYAML(
	deployment("web", 2)+deployment("other", 1)+service("web", "web")+service("old", "web"),
	service("web", "other")+deployment("other", 3)), reconciletest.Delete("services", "default", "old"))

func TestEndpoints(t *testing.T) {
	check(t, names.EndpointsController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"endpoints"}},
		Steps: serviceSteps,
		Settled: func(s *reconciletest.Server) error {
			e, err := there[*corev1.Endpoints](s, "endpoints", "default", "web")
			if err != nil {
				return err
			}
			among := map[string]bool{}
			for _, set := range e.Subsets {
				for _, a := range set.Addresses {
					among[a.IP] = true
				}
			}
			all, found := addressesOf(s, "other", among)
			return errors.Join(want("pods, found, addresses", []int{all, found, len(among)}, []int{3, 3, 3}),
				gone[*corev1.Endpoints](s, "endpoints", "default", "old"))
		},
	})
}

// addresses are those that are ready in the EndpointSlices of a Service.
func addresses(s *reconciletest.Server, service string) map[string]bool {
	among := map[string]bool{}
	for _, e := range reconciletest.List[*discoveryv1.EndpointSlice](s, "endpointslices", "default") {
		if e.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		for _, endpoint := range e.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				for _, a := range endpoint.Addresses {
					among[a] = true
				}
			}
		}
	}
	return among
}

func TestEndpointSlice(t *testing.T) {
	check(t, names.EndpointSliceController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"endpoints"}},
		Steps: serviceSteps,
		Settled: func(s *reconciletest.Server) error {
			among := addresses(s, "web")
			all, found := addressesOf(s, "other", among)
			return errors.Join(want("pods, found, addresses", []int{all, found, len(among)}, []int{3, 3, 3}),
				want("addresses of old", len(addresses(s, "old")), 0))
		},
	})
}

func TestEndpointSliceMirroring(t *testing.T) {
	of := func(name, addresses string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {ports: [{port: 5432}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: %s, namespace: default}
subsets: [{addresses: [%s], ports: [{port: 5432}]}]
---
`, name, name, addresses)
	}
	check(t, names.EndpointSliceMirroringController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("db", "{ip: 192.0.2.1}")+of("old", "{ip: 192.0.2.9}"),
			of("db", "{ip: 192.0.2.1}, {ip: 192.0.2.2}")), reconciletest.Delete("endpoints", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(want("addresses of db", addresses(s, "db"),
				map[string]bool{"192.0.2.1": true, "192.0.2.2": true}), want("of old", len(addresses(s, "old")), 0))
		},
	})
}

func TestDisruption(t *testing.T) {
	of := func(name, app string, least int) string {
		return fmt.Sprintf(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %s, namespace: default}
spec: {minAvailable: %d, selector: {matchLabels: {app: %s}}}
---
`, name, least, app)
	}
	check(t, names.DisruptionController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(deployment("web", 2)+of("web", "web", 1)+of("old", "other", 1),
			deployment("web", 4)+of("web", "web", 2)), reconciletest.Delete("poddisruptionbudgets", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			b, err := there[*policyv1.PodDisruptionBudget](s, "poddisruptionbudgets", "default", "web")
			if err != nil {
				return err
			}
			ok := meta.IsStatusConditionTrue(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
			return want("allowed, healthy, expected, condition", []any{b.Status.DisruptionsAllowed,
				b.Status.CurrentHealthy, b.Status.ExpectedPods, ok}, []any{2, 4, 4, true})
		},
	})
}

// usage is the API of metrics-server: each pod of the StatefulSet web uses a tenth of a core.
func usage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/pods") {
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1",`+
			`"resources":[{"name":"pods","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`)
		return
	}
	var items []string
	for i := range 6 {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":"web-%d","namespace":"default"},"timestamp":%q,`+
			`"window":"30s","containers":[{"name":"c","usage":{"cpu":"100m","memory":"1Mi"}}]}`, i,
			time.Now().UTC().Format(time.RFC3339)))
	}
	fmt.Fprintf(w, `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[%s]}`,
		strings.Join(items, ","))
}

func TestHorizontalPodAutoscaler(t *testing.T) {
	const set = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: default}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: one, resources: {requests: {cpu: 100m}}}]}
---
`
	of := func(most int) string {
		return fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}
  minReplicas: 1
  maxReplicas: %d
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`, most)
	}
	check(t, names.HorizontalPodAutoscalerController, reconciletest.Scenario{
		Server: reconciletest.Options{Aggregated: map[schema.GroupVersion]http.Handler{
			{Group: "metrics.k8s.io", Version: "v1beta1"}: http.HandlerFunc(usage)}},
		World: &reconciletest.World{},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(set + of(4))[0], reconciletest.Wait(10 * time.Minute),
			reconciletest.ApplyYAML(of(3))[0], reconciletest.Wait(10 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			set, err := there[*appsv1.StatefulSet](s, "statefulsets", "default", "web")
			h, err2 := there[*autoscalingv2.HorizontalPodAutoscaler](s, "horizontalpodautoscalers", "default", "web")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return want("replicas, desired", []int32{*set.Spec.Replicas, h.Status.DesiredReplicas}, []int32{3, 3})
		},
	})
}

func TestServiceCIDR(t *testing.T) {
	of := func(name, cidr string) string {
		return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: %s}
spec: {cidrs: [%s]}
---
`, name, cidr)
	}
	const address = `
apiVersion: networking.k8s.io/v1
kind: IPAddress
metadata:
  name: 10.1.0.7
  labels: {ipaddress.kubernetes.io/ip-family: IPv4, ipaddress.kubernetes.io/managed-by: ipallocator.k8s.io}
spec: {parentRef: {resource: services, namespace: default, name: web}}
`
	check(t, names.ServiceCIDRController, reconciletest.Scenario{
		Steps: []reconciletest.Step{
			reconciletest.ApplyYAML(of("first", "10.0.0.0/24") + of("second", "10.1.0.0/24") + address)[0],
			reconciletest.Delete("servicecidrs", "", "second"), // which has to wait for its address
			reconciletest.Delete("ipaddresses", "", "10.1.0.7"),
		},
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*networkingv1.ServiceCIDR](s, "servicecidrs", "", "first")
			if err != nil {
				return err
			}
			return errors.Join(gone[*networkingv1.ServiceCIDR](s, "servicecidrs", "", "second"),
				want("ready", meta.IsStatusConditionTrue(c.Status.Conditions,
					networkingv1.ServiceCIDRConditionReady), true))
		},
	})
}
