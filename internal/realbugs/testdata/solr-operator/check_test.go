package check

import (
	"crypto/md5"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	solrv1beta1 "github.com/apache/solr-operator/api/v1beta1"
	"github.com/apache/solr-operator/controllers/util"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// exporter is one of metrics.
func exporter(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: solr.apache.org/v1beta1
kind: SolrPrometheusExporter
metadata: {name: %s, namespace: default, labels: {team: search}}
spec:
  image: {tag: 9.4.0}
  %s
---
`, name, spec)
}

// login is what an exporter asks Solr with.
func login(password string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: default}
type: kubernetes.io/basic-auth
stringData: {username: metrics, password: %s}
---
`, password)
}

// standalone is an exporter of one Solr, with a login and metrics of its own.
func standalone(threads int, config string) string {
	return exporter("metrics", fmt.Sprintf(`solrReference: {standalone: {address: "http://solr.example.com:8983/solr"},
    basicAuthSecret: login}
  numThreads: %d
  metricsConfig: %q`, threads, config))
}

const (
	cloud = `solrReference: {cloud: {zkConnectionInfo: {internalConnectionString: "zk:2181", chroot: /solr}}}`

	shared = `
apiVersion: v1
kind: ConfigMap
metadata: {name: shared, namespace: default}
data: {solr-prometheus-exporter.xml: "<config>shared</config>"}
---
`
)

// exports returns an error unless an exporter is ready, and has its Service and its Deployment, in whose template its
// metrics and its login are as they should be.
func exports(s *reconciletest.Server, name, config, login string) error {
	e, err := there[*solrv1beta1.SolrPrometheusExporter](s, "solrprometheusexporters", "default", name)
	if err != nil {
		return err
	}
	d, err := there[*appsv1.Deployment](s, "deployments", "default", name+"-solr-metrics")
	if err != nil {
		return err
	}
	service, err := there[*corev1.Service](s, "services", "default", name+"-solr-metrics")
	if err != nil {
		return err
	}
	sum := func(of string) string {
		if of == "" {
			return ""
		}
		return fmt.Sprintf("%x", md5.Sum([]byte(of)))
	}
	marks := d.Spec.Template.Annotations
	return errors.Join(want(name+" is ready", e.Status.Ready, true),
		want("the metrics of "+name, marks[util.PrometheusExporterConfigXmlMd5Annotation], sum(config)),
		want("the login of "+name, marks[util.BasicAuthMd5Annotation], sum(login)),
		want(name+" controls its Deployment", metav1.IsControlledBy(d, e), true),
		want(name+" controls its Service", metav1.IsControlledBy(service, e), true))
}

// TestSolrPrometheusExporter: each exporter is a Deployment with a Service. One of them gets other metrics, and another
// password; a second one goes, and a third one comes, with the metrics of a ConfigMap of its user.
func TestSolrPrometheusExporter(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default"}},
		World: &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(
			login("first")+standalone(2, "<config>first</config>")+exporter("old", cloud),
			standalone(4, "<config>second</config>"), login("second")),
			reconciletest.Delete("solrprometheusexporters", "default", "old"),
			reconciletest.ApplyYAML(shared + exporter("new", cloud+`
  customKubeOptions: {configMapOptions: {providedConfigMap: shared}}`))[0]),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*corev1.ConfigMap](s, "configmaps", "default", "metrics-solr-metrics")
			if err != nil {
				return err
			}
			return errors.Join(
				want("the metrics", c.Data[util.PrometheusExporterConfigMapKey], "<config>second</config>"),
				exports(s, "metrics", "<config>second</config>", "metrics:second"),
				exports(s, "new", "<config>shared</config>", ""),
				gone[*solrv1beta1.SolrPrometheusExporter](s, "solrprometheusexporters", "default", "old"),
				gone[*appsv1.Deployment](s, "deployments", "default", "old-solr-metrics"))
		},
	})
}
