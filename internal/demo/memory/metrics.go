package main

import (
	"encoding/json"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/internal/demo/story"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var metricsAPI = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

// metrics serves what a metrics server says of the pods of a namespace. Their annotations say what they use.
func (s *stage) metrics(w http.ResponseWriter, req *http.Request) {
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	ofNamespace := "/apis/" + metricsAPI.String() + "/namespaces/" + namespace + "/pods"
	if err != nil || req.URL.Path != ofNamespace {
		http.NotFound(w, req)
		return
	}
	type usage struct {
		Name  string            `json:"name"`
		Usage map[string]string `json:"usage"`
	}
	type sample struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Timestamp  metav1.Time       `json:"timestamp"`
		Window     string            `json:"window"`
		Containers []usage           `json:"containers"`
	}
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Items           []sample `json:"items"`
	}{metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: metricsAPI.String()}, []sample{}}
	for _, pod := range reconciletest.List[*corev1.Pod](s.server, "pods", namespace) {
		cpu, ok := strings.CutPrefix(pod.Annotations[story.Usage], "cpu=")
		if !ok || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		list.Items = append(list.Items, sample{
			metav1.ObjectMeta{Name: pod.Name, Namespace: namespace, Labels: pod.Labels}, metav1.Now(), "1s",
			[]usage{{pod.Spec.Containers[0].Name, map[string]string{"cpu": cpu}}}})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client may have gone
}
