package check

import (
	"errors"
	"fmt"
	"testing"

	agentv1alpha1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/agent/v1alpha1"
	apmv1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/apm/v1"
	beatv1beta1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/beat/v1beta1"
	commonv1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/common/v1"
	kbv1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/kibana/v1"
	logstashv1alpha1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/logstash/v1alpha1"
	eprv1alpha1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/packageregistry/v1alpha1"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/agent"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/apmserver"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/beat"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/kibana"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/logstash"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/packageregistry"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// one writes an object of the stack.
func one(group, version, kind, name, spec string) string {
	return fmt.Sprintf(`
apiVersion: %s.k8s.elastic.co/%s
kind: %s
metadata: {name: %s, namespace: default}
spec: {%s}
---
`, group, version, kind, name, spec)
}

// runs returns an error unless a Deployment is available, in a version.
func runs(is commonv1.DeploymentStatus, nodes int, version string) error {
	return errors.Join(want("nodes", is.AvailableNodes, nodes), want("version", is.Version, version),
		want("health", is.Health, commonv1.GreenHealth))
}

func TestKibana(t *testing.T) {
	of := func(name, version string, count int) string {
		return one("kibana", "v1", "Kibana", name, fmt.Sprintf(
			"version: %s, count: %d, config: {elasticsearch.hosts: [https://es.example.com:9200]}", version, count))
	}
	const resource = "kibanas.kibana.k8s.elastic.co"
	check(t, kibana.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", "9.4.2", 1)+of("old", "9.4.2", 1), of("web", "9.4.2", 2),
			of("web", "9.4.3", 2)), reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			k, err := there[*kbv1.Kibana](s, resource, "web")
			if err != nil {
				return err
			}
			return errors.Join(runs(k.Status.DeploymentStatus, 2, "9.4.3"), gone[*kbv1.Kibana](s, resource))
		},
	})
}

func TestAPMServer(t *testing.T) {
	of := func(name string, count, rate int) string {
		return one("apm", "v1", "ApmServer", name, fmt.Sprintf(
			"version: 9.4.3, count: %d, config: {apm-server.auth.anonymous.rate_limit.event_limit: %d}", count, rate))
	}
	const resource = "apmservers.apm.k8s.elastic.co"
	check(t, apmserver.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", 1, 300)+of("old", 1, 300), of("web", 3, 300),
			of("web", 2, 600)), reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			a, err := there[*apmv1.ApmServer](s, resource, "web")
			if err != nil {
				return err
			}
			return errors.Join(runs(a.Status.DeploymentStatus, 2, "9.4.3"),
				want("service", a.Status.ExternalService, "web-apm-http"), gone[*apmv1.ApmServer](s, resource))
		},
	})
}

func TestBeat(t *testing.T) {
	const (
		resource = "beats.beat.k8s.elastic.co"
		node     = "\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n---\n"
	)
	of := func(name, level, vehicle string) string {
		return one("beat", "v1beta1", "Beat", name, fmt.Sprintf(
			"type: filebeat, version: 9.4.3, config: {output.console.enabled: true, logging.level: %s}, %s", level,
			vehicle))
	}
	const onEach, some = "daemonSet: {}", "deployment: {replicas: 2}"
	check(t, beat.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(node+of("logs", "info", onEach)+of("old", "info", onEach),
			of("logs", "debug", onEach)+of("more", "info", onEach), of("more", "info", some)),
			reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			for name, nodes := range map[string]int{"logs": 2, "more": 2} {
				b, err := there[*beatv1beta1.Beat](s, resource, name)
				if err == nil {
					err = errors.Join(want("nodes of "+name, b.Status.AvailableNodes, nodes),
						want("health of "+name, b.Status.Health, beatv1beta1.BeatGreenHealth))
				}
				if err != nil {
					return err
				}
			}
			return gone[*beatv1beta1.Beat](s, resource)
		},
	})
}

func TestAgent(t *testing.T) {
	of := func(name, interval, vehicle string) string {
		return one("agent", "v1alpha1", "Agent", name, fmt.Sprintf("version: 9.4.3, config: {inputs: [{id: system, "+
			"type: system/metrics, period: %s}], outputs: {default: {type: console}}}, %s", interval, vehicle))
	}
	const (
		resource    = "agents.agent.k8s.elastic.co"
		some, named = "deployment: {replicas: 1}", "statefulSet: {replicas: 2}"
	)
	check(t, agent.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", "10s", some)+of("old", "10s", some), of("web", "20s", some),
			of("web", "20s", named)), reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			a, err := there[*agentv1alpha1.Agent](s, resource, "web")
			if err != nil {
				return err
			}
			return errors.Join(want("nodes", a.Status.AvailableNodes, 2),
				want("health", a.Status.Health, agentv1alpha1.AgentGreenHealth),
				gone[*agentv1alpha1.Agent](s, resource))
		},
	})
}

func TestLogstash(t *testing.T) {
	of := func(name string, count, interval int) string {
		return one("logstash", "v1alpha1", "Logstash", name, fmt.Sprintf("version: 9.4.3, count: %d, "+
			"config: {queue.type: memory}, pipelines: [{pipeline.id: main, config.string: "+
			`"input { exec { command => 'uptime' interval => %d } } output { stdout{} }"}]`, count, interval))
	}
	const resource = "logstashes.logstash.k8s.elastic.co"
	check(t, logstash.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", 1, 10)+of("old", 1, 10), of("web", 2, 10), of("web", 2, 20)),
			reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			l, err := there[*logstashv1alpha1.Logstash](s, resource, "web")
			if err != nil {
				return err
			}
			return errors.Join(want("nodes", l.Status.AvailableNodes, 2),
				want("health", l.Status.Health, logstashv1alpha1.LogstashGreenHealth),
				gone[*logstashv1alpha1.Logstash](s, resource))
		},
	})
}

func TestPackageRegistry(t *testing.T) {
	of := func(name, version string, count int) string {
		return one("packageregistry", "v1alpha1", "PackageRegistry", name,
			fmt.Sprintf("version: %s, count: %d", version, count))
	}
	const resource = "packageregistries.packageregistry.k8s.elastic.co"
	check(t, packageregistry.Add, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("web", "9.4.2", 1)+of("old", "9.4.2", 1), of("web", "9.4.3", 2)),
			reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*eprv1alpha1.PackageRegistry](s, resource, "web")
			if err != nil {
				return err
			}
			return errors.Join(runs(r.Status.DeploymentStatus, 2, "9.4.3"),
				gone[*eprv1alpha1.PackageRegistry](s, resource))
		},
	})
}
