package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A lab is the controller at work on an API server in memory, in virtual time. The Deployment web is its target; the
// test makes the pods, and says what the metrics are.
type lab struct {
	t       *testing.T
	server  *reconciletest.Server
	link    *reconciletest.Link // the controller's
	client  kubernetes.Interface
	metrics *metricsStub
	set     settings
}

// inLab runs a test in a lab with a Deployment of n pods.
func inLab(t *testing.T, n int, test func(*lab)) {
	t.Helper()
	inLabWith(t, defaults(), n, test)
}

func inLabWith(t *testing.T, set settings, n int, test func(*lab)) {
	t.Helper()
	inLabOf(t, newMetricsStub(), set, n, test)
}

// inLabOf runs a test in a lab with these metrics APIs.
func inLabOf(t *testing.T, metrics *metricsStub, set settings, n int, test func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, metrics, set)
		l.deploy("web", n)
		stop := l.control()
		test(l)
		stop()
	})
}

// newLab returns a lab without a Deployment and a controller.
func newLab(t *testing.T, metrics *metricsStub, set settings) *lab {
	t.Helper()
	server := reconciletest.NewServer(t, reconciletest.Options{Aggregated: metrics.apis()})
	return &lab{t: t, server: server, link: server.Link(), client: kubernetes.NewForConfigOrDie(server.Config()),
		metrics: metrics, set: set}
}

// control starts the controller.
func (l *lab) control() (stop func()) {
	cfg := l.link.Config()
	cfg.Wrap(reconcile.TrackWrites)
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- newProgram(l.set).Operate(ctx, cfg, nil, command.Options{Workers: 5, QPS: 500, Burst: 1000,
			MetricsAddress: "0"})
	}()
	synctest.Wait()
	return func() {
		cancel()
		require.NoError(l.t, <-ended)
	}
}

// deploy creates a Deployment with n pods that are ready, and have been for an hour. Each requests one CPU.
func (l *lab) deploy(name string, n int) {
	l.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	replicas := int32(n)
	d.Spec.Replicas = &replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d.Spec.Template.Labels = map[string]string{"app": name}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	_, err := l.client.AppsV1().Deployments("default").Create(l.t.Context(), d, metav1.CreateOptions{})
	require.NoError(l.t, err)
	l.follow(name)
}

// follow does what controllers and nodes would: it makes as many pods as the Deployment wants, and reports them.
func (l *lab) follow(name string) {
	l.t.Helper()
	d := l.deployment(name)
	want := int(*d.Spec.Replicas)
	pods := l.client.CoreV1().Pods("default")
	for i := range 200 {
		pod := fmt.Sprintf("%s-%d", name, i)
		_, there := reconciletest.Get[*corev1.Pod](l.server, "pods", "default", pod)
		switch {
		case i < want && !there:
			l.pod(pod, name)
		case i >= want && there:
			now := int64(0)
			require.NoError(l.t, pods.Delete(l.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}))
		}
	}
	d.Status.Replicas = int32(want)
	_, err := l.client.AppsV1().Deployments("default").UpdateStatus(l.t.Context(), d, metav1.UpdateOptions{})
	require.NoError(l.t, err)
}

// pod creates a pod that is ready.
func (l *lab) pod(name, app string, change ...func(*corev1.Pod)) {
	l.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}}}}
	before := metav1.NewTime(time.Now().Add(-time.Hour))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &before, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: before}}}
	for _, f := range change {
		f(pod)
	}
	made, err := l.client.CoreV1().Pods("default").Create(l.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(l.t, err)
	made.Status = pod.Status
	_, err = l.client.CoreV1().Pods("default").UpdateStatus(l.t.Context(), made, metav1.UpdateOptions{})
	require.NoError(l.t, err)
}

// autoscaler returns an HPA for the Deployment of its name.
func hpa(name string, least, most int32, change ...func(*autoscalingv2.HorizontalPodAutoscaler)) *autoscalingv2.
	HorizontalPodAutoscaler {
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
		Name: name}
	h.Spec.MinReplicas, h.Spec.MaxReplicas = &least, most
	for _, f := range change {
		f(h)
	}
	return h
}

// with sets the metrics of an HPA.
func with(metrics ...autoscalingv2.MetricSpec) func(*autoscalingv2.HorizontalPodAutoscaler) {
	return func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Metrics = metrics }
}

// cpu is a metric of a percentage of the requested CPU.
func cpu(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
		Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}}
}

// external is an external metric, with a target for all, or for each pod.
func external(name string, value, average string) autoscalingv2.MetricSpec {
	m := autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: name}}}
	m.External.Target = targetOf(value, average)
	return m
}

func targetOf(value, average string) autoscalingv2.MetricTarget {
	q := resource.MustParse(value + average)
	if value != "" {
		return autoscalingv2.MetricTarget{Type: "Value", Value: &q}
	}
	return autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &q}
}

func (l *lab) create(h *autoscalingv2.HorizontalPodAutoscaler) {
	l.t.Helper()
	_, err := l.client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(l.t.Context(), h,
		metav1.CreateOptions{})
	require.NoError(l.t, err)
	synctest.Wait()
}

func (l *lab) patch(name, patch string, args ...any) {
	l.t.Helper()
	_, err := l.client.AutoscalingV2().HorizontalPodAutoscalers("default").Patch(l.t.Context(), name,
		types.MergePatchType, fmt.Appendf(nil, patch, args...), metav1.PatchOptions{})
	require.NoError(l.t, err)
	synctest.Wait()
}

func (l *lab) scale(name string, n int) {
	l.t.Helper()
	_, err := l.client.AppsV1().Deployments("default").Patch(l.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{})
	require.NoError(l.t, err)
}

// look lets time pass until the next look, and then makes the pods that were asked for.
func (l *lab) look() {
	l.t.Helper()
	l.wait(l.set.interval)
	for _, d := range reconciletest.List[*appsv1.Deployment](l.server, "deployments.apps", "default") {
		l.follow(d.Name)
	}
}

func (l *lab) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *lab) deployment(name string) *appsv1.Deployment {
	l.t.Helper()
	d, ok := reconciletest.Get[*appsv1.Deployment](l.server, "deployments.apps", "default", name)
	require.True(l.t, ok, name)
	return d
}

// size returns how many replicas the Deployment web wants.
func (l *lab) size() int { return int(*l.deployment("web").Spec.Replicas) }

func (l *lab) get(name string) *autoscalingv2.HorizontalPodAutoscaler {
	l.t.Helper()
	h, ok := reconciletest.Get[*autoscalingv2.HorizontalPodAutoscaler](l.server,
		"horizontalpodautoscalers.autoscaling", "default", name)
	require.True(l.t, ok, name)
	return h
}

// says returns status, reason and message of a condition of an HPA.
func (l *lab) says(name string, t autoscalingv2.HorizontalPodAutoscalerConditionType) string {
	l.t.Helper()
	for _, c := range l.get(name).Status.Conditions {
		if c.Type == t {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// told returns the Events so far, each once, in order of name.
func (l *lab) told() (told []string) {
	l.t.Helper()
	l.wait(time.Millisecond)
	for _, e := range reconciletest.List[*corev1.Event](l.server, "events", "default") {
		told = append(told, e.Type+" "+e.Reason+" "+e.Message)
	}
	return told
}

// metricsStub serves the three metrics APIs.
type metricsStub struct {
	mu      sync.Mutex
	pods    map[string]string // the usage of CPU by pod; guarded by mu, as all below
	memory  map[string]string
	numbers int // those of the pods are less
	window  time.Duration
	age     time.Duration                // of a sample
	custom  map[string]map[string]string // of pods and objects: values by metric and "pods/web-0"
	outside map[string][]string          // external: the series by metric
	version string                       // of custom.metrics.k8s.io; empty: nothing serves it; not guarded
	broken  map[string]int               // a status code by API
	asked   []string
}

func newMetricsStub() *metricsStub {
	return &metricsStub{pods: map[string]string{}, memory: map[string]string{}, numbers: 100, window: 30 * time.Second,
		custom: map[string]map[string]string{}, outside: map[string][]string{}, version: "v1beta2",
		broken: map[string]int{}}
}

// use sets the CPU usage of the first pods of web; the others have no sample.
func (m *metricsStub) use(each ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.pods)
	for i, usage := range each {
		m.pods[fmt.Sprintf("web-%d", i)] = usage
	}
}

// all sets the CPU usage of many pods of web to the same.
func (m *metricsStub) all(usage string) { m.use(slices.Repeat([]string{usage}, 100)...) }

func (m *metricsStub) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// apis are what the API server passes on.
func (m *metricsStub) apis() map[schema.GroupVersion]http.Handler {
	apis := map[schema.GroupVersion]http.Handler{
		{Group: "metrics.k8s.io", Version: "v1beta1"}: m, {Group: "external.metrics.k8s.io", Version: "v1beta1"}: m,
	}
	if m.version != "" {
		apis[schema.GroupVersion{Group: customAPI, Version: m.version}] = m
	}
	return apis
}

func (m *metricsStub) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, ok := strings.CutPrefix(req.URL.Path, "/apis/")
	if !ok { // a real API server asks for /openapi/v2
		http.NotFound(w, req)
		return
	}
	parts := strings.Split(path, "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	code, body := 0, any(nil)
	if len(parts) > 2 { // not discovery
		m.asked = append(m.asked, req.URL.Path+"?"+req.URL.RawQuery)
		code = m.broken[parts[0]]
	}
	switch code {
	case 0:
		code, body = http.StatusOK, m.answer(parts, req.URL.Query().Get("labelSelector"))
	case hangs:
		m.mu.Unlock()
		<-req.Context().Done()
		m.mu.Lock()
		return
	default:
		body = &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Message: "broken"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// hangs is the status code of a server that gives no answer.
const hangs = -1

type document = map[string]any

func (m *metricsStub) answer(parts []string, selector string) any {
	at := time.Now().Add(-m.age).UTC().Format(time.RFC3339)
	items := []document{}
	switch api := parts[0]; {
	case len(parts) == 2:
		return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
			GroupVersion: api + "/" + parts[1]}
	case api == "metrics.k8s.io":
		for i := range m.numbers {
			pod := fmt.Sprintf("%s-%d", strings.TrimPrefix(selector, "app="), i)
			if m.pods[pod] == "" && m.memory[pod] == "" {
				continue
			}
			usage := document{}
			if cpu := m.pods[pod]; cpu != "" {
				usage["cpu"] = cpu
			}
			if memory := m.memory[pod]; memory != "" {
				usage["memory"] = memory
			}
			items = append(items, document{"metadata": document{"name": pod}, "timestamp": at,
				"window":     m.window.String(),
				"containers": []document{{"name": "c", "usage": usage}}})
		}
	case api == "external.metrics.k8s.io":
		for _, value := range m.outside[parts[4]] {
			items = append(items, document{"metricName": parts[4], "timestamp": at, "value": value})
		}
	default:
		kind, name, metric := parts[4], parts[5], parts[len(parts)-1]
		if kind == "metrics" {
			kind, name = "namespaces", parts[3]
		}
		for _, of := range sorted(m.custom[metric]) {
			if of == kind+"/"+name || name == "*" && strings.HasPrefix(of, kind+"/") {
				items = append(items, document{"describedObject": document{"name": of[len(kind)+1:]}, "timestamp": at,
					"value": m.custom[metric][of]})
			}
		}
	}
	kind := map[string]string{"metrics.k8s.io": "PodMetricsList", customAPI: "MetricValueList",
		"external.metrics.k8s.io": "ExternalMetricValueList"}[parts[0]]
	return document{"kind": kind, "apiVersion": parts[0] + "/" + parts[1], "items": items}
}

func sorted(m map[string]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
