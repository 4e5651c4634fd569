// Package hpa lets the HorizontalPodAutoscaler controller of Kubernetes decide about histories, in virtual time. The
// tests of examples/autoscaler compare its decisions with ours.
//
// It is a test binary, as only a test can have a testing/synctest bubble. With historiesEnv set it reads histories from
// standard input, a JSON object each, and appends the decisions of each history to the named file, a JSON array in a
// line each.
package hpa

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// historiesEnv names the file that takes the decisions.
const historiesEnv = "HPA_DECISIONS"

// history is what one HPA sees at each look, one every 15 s. The first one is at the begin of the bubble.
type history struct {
	Looks []look
}

// look is what there is when the controller looks. Everything is as it was before, but for what the controller itself
// has changed: it is the test's own run that says how many pods there are.
type look struct {
	Spec     autoscalingv2.HorizontalPodAutoscalerSpec
	Replicas int32 // the size that the target should have: the controller has set it, or a person
	Current  int32 // the size that it has
	Pods     []corev1.Pod
	Metrics  readings
	Broken   string // "metrics", "get scale", "update scale" or "conflict" fails; or nothing does
}

// readings are in thousandths. A name that is missing has no metric.
type readings struct {
	Resources map[string]map[string]int64 // by resource and pod
	Pods      map[string]map[string]int64 // by metric and pod
	Objects   map[string]int64            // by metric
	External  map[string][]int64          // by metric
	Window    metav1.Duration
}

// decision is what the look has come to.
type decision struct {
	Replicas   int32
	Desired    int32
	Conditions []string // type, status, reason
	Messages   []string // of the conditions
	Metrics    []autoscalingv2.MetricStatus
	Events     map[string]int // by reason, how often it was written so far
}

const (
	interval = 15 * time.Second
	settling = 7 * time.Second // the decision of a look is read so long after it, and what the next one sees comes then
)

func TestHistories(t *testing.T) {
	file := os.Getenv(historiesEnv)
	if file == "" {
		smoke(t)
		return
	}
	out, err := os.Create(file)
	check(t, err)
	defer out.Close()
	for in := json.NewDecoder(bufio.NewReader(os.Stdin)); ; {
		var h history
		if err := in.Decode(&h); errors.Is(err, io.EOF) {
			return
		} else {
			check(t, err)
		}
		check(t, json.NewEncoder(out).Encode(decide(t, h)))
	}
}

// smoke shows that the controller decides: 3 pods at 140 % of 70 % become 6.
func smoke(t *testing.T) {
	most, percent := int32(10), int32(70)
	l := look{Replicas: 3, Current: 3, Metrics: readings{Resources: map[string]map[string]int64{"cpu": {}}}}
	l.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: most,
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
			Name: "web"},
		Metrics: []autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
			Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}}}}
	for i := range 3 {
		p := corev1.Pod{}
		check(t, json.Unmarshal([]byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},
			"status":{"phase":"Running","startTime":"1999-12-31T00:00:00Z","conditions":[
			{"type":"Ready","status":"True","lastTransitionTime":"1999-12-31T00:00:00Z"}]}}`), &p))
		p.Namespace, p.Name, p.Labels = "default", fmt.Sprint("web-", i), map[string]string{"app": "web"}
		l.Pods = append(l.Pods, p)
		l.Metrics.Resources["cpu"][p.Name] = 1400
	}
	if d := decide(t, history{Looks: []look{l}}); len(d) != 1 || d[0].Replicas != 6 {
		t.Fatalf("%+v", d)
	}
}

// decide runs the whole controller on a history.
func decide(t *testing.T, h history) (decisions []decision) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, h.Looks[0])
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for i, l := range h.Looks {
			w.become(l)
			if i == 0 {
				w.start(ctx, &ended)
			} else {
				time.Sleep(interval - settling) // until the look
			}
			time.Sleep(settling)
			decisions = append(decisions, w.decision())
		}
		stop()
		ended.Wait()
	})
	return decisions
}

// world is what the controller sees.
type world struct {
	t      *testing.T
	client *fake.Clientset
	// as it was set last: the status updates of this client write it, too
	spec autoscalingv2.HorizontalPodAutoscalerSpec

	mu       sync.Mutex
	replicas int32 // guarded by mu, as all below
	current  int32
	metrics  readings
	broken   string
	events   map[string]int
	reasons  []string // of the Events in the order of their creation; number 3 has the name web.3
}

func newWorld(t *testing.T, first look) *world {
	w := &world{t: t, client: fake.NewClientset(), spec: first.Spec, events: map[string]int{}}
	w.client.PrependReactor("*", "events", w.takeEvent)
	_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
			CreationTimestamp: metav1.Now()}, Spec: first.Spec}, metav1.CreateOptions{})
	check(t, err)
	return w
}

// takeEvent counts the Events that are written. Their names come from here, as the recorder's are times: two Events of
// one moment in virtual time would have the same name.
func (w *world) takeEvent(a clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch a := a.(type) {
	case clienttesting.CreateAction:
		e := a.GetObject().(*corev1.Event).DeepCopy()
		e.Name = fmt.Sprint("web.", len(w.reasons))
		w.reasons = append(w.reasons, e.Reason)
		w.events[e.Reason]++
		return true, e, nil
	case clienttesting.PatchAction:
		var at int
		if _, err := fmt.Sscanf(a.GetName(), "web.%d", &at); err != nil {
			return true, nil, err
		}
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: a.GetName()}}
		if err := json.Unmarshal(a.GetPatch(), e); err != nil {
			return true, nil, err
		}
		w.events[w.reasons[at]]++
		return true, e, nil
	}
	return false, nil, nil
}

// failure is what the API server answers to a request for the scale, or nil. The caller holds w.mu.
func (w *world) failure(verb string) error {
	switch {
	case w.broken == verb+" scale":
		return apierrors.NewInternalError(errors.New("broken"))
	case w.broken == "conflict" && verb == "update":
		return apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web",
			errors.New("broken"))
	}
	return nil
}

// start starts the controller with the settings of kube-controller-manager.
func (w *world) start(ctx context.Context, ended *sync.WaitGroup) {
	scales := &scalefake.FakeScaleClient{}
	scales.AddReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := w.failure("get"); err != nil {
			return true, nil, err
		}
		return true, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:   autoscalingv1.ScaleSpec{Replicas: w.replicas},
			Status: autoscalingv1.ScaleStatus{Replicas: w.current, Selector: "app=web"}}, nil
	})
	scales.AddReactor("update", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := w.failure("update"); err != nil {
			return true, nil, err
		}
		scale := a.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		w.replicas = scale.Spec.Replicas
		return true, scale, nil
	})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	factory := informers.NewSharedInformerFactory(w.client, 0)
	c := podautoscaler.NewHorizontalController(ctx, w.client.CoreV1(), scales, w.client.AutoscalingV2(), mapper, w,
		factory.Autoscaling().V2().HorizontalPodAutoscalers(), factory.Core().V1().Pods(),
		interval, 5*time.Minute, 0.1, 5*time.Minute, 30*time.Second)
	factory.Start(ctx.Done())
	ended.Go(func() {
		c.Run(ctx, 1)
		factory.Shutdown()
	})
}

// become makes everything as it is at a look.
func (w *world) become(l look) {
	ctx := w.t.Context()
	w.mu.Lock()
	w.replicas, w.current, w.metrics, w.broken = l.Replicas, l.Current, l.Metrics, l.Broken
	w.mu.Unlock()
	pods := w.client.CoreV1().Pods("default")
	before, err := pods.List(ctx, metav1.ListOptions{})
	check(w.t, err)
	for _, p := range before.Items {
		check(w.t, pods.Delete(ctx, p.Name, metav1.DeleteOptions{}))
	}
	for _, p := range l.Pods {
		_, err := pods.Create(ctx, &p, metav1.CreateOptions{})
		check(w.t, err)
	}
	synctest.Wait() // until the cache has them, as a new spec is looked at at once
	if apiequality.Semantic.DeepEqual(w.spec, l.Spec) {
		return
	}
	w.spec = l.Spec
	hpas := w.client.AutoscalingV2().HorizontalPodAutoscalers("default")
	h, err := hpas.Get(ctx, "web", metav1.GetOptions{})
	check(w.t, err)
	h.Spec = l.Spec
	h.Generation++
	_, err = hpas.Update(ctx, h, metav1.UpdateOptions{})
	check(w.t, err)
}

func (w *world) decision() (d decision) {
	h, err := w.client.AutoscalingV2().HorizontalPodAutoscalers("default").Get(w.t.Context(), "web",
		metav1.GetOptions{})
	check(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	d.Replicas, d.Desired, d.Metrics = w.replicas, h.Status.DesiredReplicas, h.Status.CurrentMetrics
	d.Events = maps.Clone(w.events)
	for _, c := range h.Status.Conditions {
		d.Conditions = append(d.Conditions, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		d.Messages = append(d.Messages, c.Message)
	}
	return d
}

// GetResourceMetric answers as metrics.k8s.io does. Each pod has one container.
func (w *world) GetResourceMetric(_ context.Context, resource corev1.ResourceName, _ string, _ labels.Selector,
	_ string) (metrics.PodMetricsInfo, time.Time, error) {
	return w.perPod(w.now().Resources[string(resource)], "resource")
}

// GetRawMetric answers as custom.metrics.k8s.io does for pods.
func (w *world) GetRawMetric(metric, _ string, _, _ labels.Selector) (metrics.PodMetricsInfo, time.Time, error) {
	return w.perPod(w.now().Pods[metric], "custom")
}

func (w *world) perPod(values map[string]int64, api string) (metrics.PodMetricsInfo, time.Time, error) {
	if len(values) == 0 {
		return nil, time.Time{}, fmt.Errorf("no metrics returned from %s metrics API", api)
	}
	info := metrics.PodMetricsInfo{}
	for pod, value := range values {
		info[pod] = metrics.PodMetric{Timestamp: time.Now(), Window: w.now().Window.Duration, Value: value}
	}
	return info, time.Now(), nil
}

// GetObjectMetric answers as custom.metrics.k8s.io does for an object.
func (w *world) GetObjectMetric(metric, _ string, _ *autoscalingv2.CrossVersionObjectReference,
	_ labels.Selector) (int64, time.Time, error) {
	value, ok := w.now().Objects[metric]
	if !ok {
		return 0, time.Time{}, errors.New("unable to fetch metrics from custom metrics API")
	}
	return value, time.Now(), nil
}

// GetExternalMetric answers as external.metrics.k8s.io does.
func (w *world) GetExternalMetric(metric, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	values := w.now().External[metric]
	if len(values) == 0 {
		return nil, time.Time{}, errors.New("no metrics returned from external metrics API")
	}
	return values, time.Now(), nil
}

// now returns what the metrics are. If they fail there are none: the controller takes both for the same error.
func (w *world) now() readings {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == "metrics" {
		return readings{}
	}
	return w.metrics
}

func TestMain(m *testing.M) {
	// The clients here have no versions that a cache could be compared with.
	if err := utilfeature.DefaultMutableFeatureGate.Set("StaleControllerConsistencyHPA=false"); err != nil {
		panic(err)
	}
	// The default handlers of errors wait until a millisecond has passed since the last error of the process, which is
	// of another bubble or of no bubble. That would be years.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
