package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// runs returns an error unless a StatefulSet has so many ready pods, and that of the old object is gone.
func runs(s *reconciletest.Server, name, old string, replicas int) error {
	set, err := there[*appsv1.StatefulSet](s, "statefulsets", "default", name)
	if err != nil {
		return err
	}
	return errors.Join(want("ready pods of "+name, set.Status.ReadyReplicas, replicas),
		gone[*appsv1.StatefulSet](s, "statefulsets", "default", old))
}

// has returns an error unless a ConfigMap has a text.
func has(s *reconciletest.Server, name, text string) error {
	m, err := there[*corev1.ConfigMap](s, "configmaps", "default", name)
	if err != nil {
		return err
	}
	for _, value := range m.Data {
		if strings.Contains(value, text) {
			return nil
		}
	}
	return fmt.Errorf("configmap %s has no %q", name, text)
}

// of is an object of the operator.
func of(version, kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: monitoring.coreos.com/%s\nkind: %s\nmetadata: {name: %s, namespace: default}\n"+
		"spec:\n%s\n---\n", version, kind, name, spec)
}

// rule is a PrometheusRule with an alert.
func rule(name, alert string) string {
	return of("v1", "PrometheusRule", name, "  groups: [{name: all, rules: [{alert: "+alert+", expr: up == 0}]}]")
}

// monitor is a ServiceMonitor of a port.
func monitor(name, port string) string {
	return of("v1", "ServiceMonitor", name,
		"  selector: {matchLabels: {app: "+name+"}}\n  endpoints: [{port: "+port+"}]")
}

func TestPrometheus(t *testing.T) {
	instance := func(name string, replicas int) string {
		return of("v1", "Prometheus", name, fmt.Sprintf(
			"  replicas: %d\n  serviceMonitorSelector: {}\n  ruleSelector: {}", replicas))
	}
	check(t, servers, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(instance("k8s", 1)+instance("old", 1)+monitor("web", "http")+
			rule("alerts", "Down"), instance("k8s", 2)+monitor("api", "metrics"), rule("alerts", "Gone")),
			reconciletest.Delete("servicemonitors", "default", "web"),
			reconciletest.Delete("prometheuses", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(runs(s, "prometheus-k8s", "prometheus-old", 2),
				has(s, "prometheus-k8s-rulefiles-0", "Gone"))
		},
	}, "prometheuses", "servicemonitors", "podmonitors", "probes", "scrapeconfigs", "prometheusrules")
}

func TestPrometheusAgent(t *testing.T) {
	instance := func(name string, replicas int) string {
		return of("v1alpha1", "PrometheusAgent", name, fmt.Sprintf("  replicas: %d\n  serviceMonitorSelector: {}\n"+
			"  remoteWrite: [{url: http://store.example.com/write}]", replicas))
	}
	check(t, agents, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(instance("edge", 1)+instance("old", 1)+monitor("web", "http"),
			instance("edge", 2), monitor("web", "metrics")),
			reconciletest.Delete("servicemonitors", "default", "web"),
			reconciletest.Delete("prometheusagents", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			return runs(s, "prom-agent-edge", "prom-agent-old", 2)
		},
	}, "prometheusagents", "servicemonitors", "podmonitors", "probes", "scrapeconfigs")
}

func TestAlertmanager(t *testing.T) {
	instance := func(name string, replicas int) string {
		return of("v1", "Alertmanager", name, fmt.Sprintf("  replicas: %d\n  alertmanagerConfigSelector: {}", replicas))
	}
	receiver := func(name, url string) string {
		return of("v1alpha1", "AlertmanagerConfig", name,
			"  route: {receiver: hook}\n  receivers: [{name: hook, webhookConfigs: [{url: "+url+"}]}]")
	}
	check(t, alertmanagers, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(instance("main", 1)+instance("old", 1)+
			receiver("team", "http://hook.example.com/one")+receiver("gone", "http://hook.example.com/gone"),
			instance("main", 3), receiver("team", "http://hook.example.com/two")),
			reconciletest.Delete("alertmanagerconfigs", "default", "gone"),
			reconciletest.Delete("alertmanagers", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			return runs(s, "alertmanager-main", "alertmanager-old", 3)
		},
	}, "alertmanagers", "alertmanagerconfigs")
}

func TestThanosRuler(t *testing.T) {
	instance := func(name string, replicas int) string {
		return of("v1", "ThanosRuler", name, fmt.Sprintf(
			"  replicas: %d\n  queryEndpoints: [query.example.com]\n  ruleSelector: {}", replicas))
	}
	check(t, rulers, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(instance("rules", 1)+instance("old", 1)+rule("alerts", "Down")+
			rule("more", "Slow"), instance("rules", 2), rule("alerts", "Gone")),
			reconciletest.Delete("prometheusrules", "default", "more"),
			reconciletest.Delete("thanosrulers", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(runs(s, "thanos-ruler-rules", "thanos-ruler-old", 2),
				has(s, "thanos-ruler-rules-rulefiles-0", "Gone"))
		},
	}, "thanosrulers", "prometheusrules")
}

// reports is the step of a kubelet: it makes its node, unless that is there, and reports its address.
func reports(name, address string) reconciletest.Step {
	return reconciletest.StepFunc(name+" reports "+address, func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
		_, err := client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		n, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = client.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

func TestKubelet(t *testing.T) {
	check(t, kubelets, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: []string{"default", "kube-system"}},
		Steps: []reconciletest.Step{reports("first", "192.0.2.1"), reports("second", "192.0.2.2"),
			reconciletest.Wait(4 * time.Minute), reports("second", "192.0.2.22"), reports("third", "192.0.2.3"),
			reconciletest.Wait(4 * time.Minute), reconciletest.Delete("nodes", "", "first"),
			reconciletest.Wait(4 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			e, err := there[*corev1.Endpoints](s, "endpoints", "kube-system", "kubelet")
			if err != nil {
				return err
			}
			is := map[string]string{}
			for _, subset := range e.Subsets {
				for _, a := range subset.Addresses {
					is[a.TargetRef.Name] = a.IP
				}
			}
			return want("addresses", is, map[string]string{"second": "192.0.2.22", "third": "192.0.2.3"})
		},
	})
}
