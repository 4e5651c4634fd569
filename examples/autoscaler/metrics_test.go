package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requests returns what the metrics APIs were asked for, each once, in order.
func (m *metricsStub) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.asked)
	return slices.Compact(m.asked)
}

// Each kind of metric is read where it is served, with selectors of pods and of series.
func TestWhereMetricsAreRead(t *testing.T) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		metrics := newMetricsStub()
		metrics.version = version
		inLabOf(t, metrics, defaults(), 2, func(l *lab) {
			selected := &metav1.LabelSelector{MatchLabels: map[string]string{"verb": "GET"}}
			pods := averages("1")[2]
			pods.Pods.Metric.Selector = selected
			namespace := object("1", "")
			namespace.Object.DescribedObject = autoscalingv2.CrossVersionObjectReference{APIVersion: "v1",
				Kind: "Namespace",
				Name: "elsewhere"}
			ofDeployment := object("", "1")
			ofDeployment.Object.DescribedObject = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1",
				Kind: "Deployment", Name: "web"}
			queue := external("queue", "", "1")
			queue.External.Metric.Selector = selected
			l.metrics.set(func() {
				l.metrics.custom["qps"] = map[string]string{"pods/web-0": "1", "pods/web-1": "1"}
				l.metrics.custom["hits"] = map[string]string{"namespaces/default": "1", "deployments.apps/web": "2"}
				l.metrics.outside["queue"] = []string{"500m", "1500m"}
			})
			l.metrics.all("1")
			l.create(hpa("web", 1, 10, with(cpu(100), pods, namespace, ofDeployment, queue)))
			require.Contains(t, l.says("web", autoscalingv2.ScalingActive), "True ValidMetricFound")
			custom := "/apis/custom.metrics.k8s.io/" + version + "/namespaces/default/"
			require.Equal(t, []string{
				custom + "deployments.apps/web/hits?",
				custom + "metrics/hits?",
				custom + "pods/*/qps?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET",
				"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue?labelSelector=verb%3DGET",
				"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb",
			}, l.metrics.requests())
			m := l.get("web").Status.CurrentMetrics
			require.Equal(t, []string{"1", "1", "1", "1"}, []string{m[1].Pods.Current.AverageValue.String(),
				m[2].Object.Current.Value.String(), m[3].Object.Current.AverageValue.String(),
				m[4].External.Current.AverageValue.String()})
		})
	}
}

// A metrics server that fails, refuses, has nothing or hangs leaves the target alone, and is named.
func TestMetricsThatCannotBeRead(t *testing.T) {
	ofGadget := object("1", "")
	ofGadget.Object.DescribedObject.Kind = "Gadget"
	for name, c := range map[string]struct {
		metric autoscalingv2.MetricSpec
		api    string
		code   int // 0: it has nothing; 404: nothing serves it
		want   string
	}{
		"no CPU": {cpu(50), "metrics.k8s.io", 0, "no metrics returned from metrics.k8s.io"},
		"no pods metric": {averages("1")[2], "custom.metrics.k8s.io", 0,
			"no metrics returned from custom.metrics.k8s.io"},
		"no series":        {external("q", "1", ""), "external.metrics.k8s.io", 0, "no metrics returned from external"},
		"no object metric": {object("1", ""), "custom.metrics.k8s.io", 0, "answers with 0 values for one object"},
		"no such kind":     {ofGadget, "custom.metrics.k8s.io", 0, "no matches for kind"},
		"CPU is broken":    {cpu(50), "metrics.k8s.io", 503, "unable to fetch metrics from metrics.k8s.io"},
		"no custom API": {averages("1")[2], "custom.metrics.k8s.io", 404,
			"no custom metrics API (custom.metrics.k8s.io) registered"},
		"it is refused": {external("q", "1", ""), "external.metrics.k8s.io", 403,
			"unable to fetch metrics from external.metrics.k8s.io"},
		"it hangs": {external("q", "1", ""), "external.metrics.k8s.io", hangs, "no answer within 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			metrics := newMetricsStub()
			if metrics.broken[c.api] = c.code; c.code == http.StatusNotFound {
				metrics.version = ""
			}
			inLabOf(t, metrics, defaults(), 3, func(l *lab) {
				l.create(hpa("web", 1, 10, with(c.metric)))
				l.wait(11 * time.Second)
				said := l.says("web", autoscalingv2.ScalingActive)
				require.Contains(t, said, "False FailedGet"+string(c.metric.Type)+
					"Metric: the HPA was unable to compute "+
					"the replica count: failed to get ")
				require.Contains(t, said, c.want)
				require.Contains(t, strings.Join(l.told(), "\n"), "Warning FailedGet"+string(c.metric.Type)+"Metric")
				require.Equal(t, 3, l.size())
				require.EqualValues(t, 3, l.get("web").Status.CurrentReplicas)
			})
		})
	}
}

// A pod whose containers do not all have a value has no sample.
func TestPodsWithPartOfTheirUsage(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		memory := averages("1Gi")[0]
		memory.Resource.Name = "memory"
		l.metrics.all("1")
		l.metrics.set(func() { l.metrics.memory["web-0"] = "4Gi" })
		l.create(hpa("web", 1, 10, with(memory)))
		require.Equal(t, 4, l.size(), "4Gi and none")
		require.Equal(t, "4Gi", l.get("web").Status.CurrentMetrics[0].Resource.Current.AverageValue.String(),
			"of the pods that have a sample")
	})
}
