package main

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The decision as a function: no server, no clock.

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// situated returns the situation of an HPA whose target wants and has n replicas. Each pod is ready, has run for an
// hour and requests one CPU and 1Gi of memory.
func situated(n int, metrics ...autoscalingv2.MetricSpec) *situation {
	s := &situation{settings: defaults(), hpa: hpa("web", 1, 100, with(metrics...)), now: noon,
		scale: &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: int32(n)},
			Status: autoscalingv1.ScaleStatus{Replicas: int32(n), Selector: "app=web"}},
		readings: make([]reading, len(metrics))}
	for i := range n {
		s.pods = append(s.pods, readyPod(fmt.Sprintf("web-%02d", i)))
	}
	return s
}

func readyPod(name string) podFacts {
	return podFacts{name: name, phase: corev1.PodRunning, started: noon.Add(-time.Hour), ready: corev1.ConditionTrue,
		readyChanged: noon.Add(-time.Hour),
		requests:     []containerRequests{{"c", map[corev1.ResourceName]int64{"cpu": 1000, "memory": 1 << 30 * 1000}}}}
}

// samples sets what the first pods use, in thousandths.
func (s *situation) samples(values ...int64) *situation {
	s.readings[0].pods = map[string]sample{}
	for i, value := range values {
		s.readings[0].pods[s.pods[i].name] = sample{value, noon, 30 * time.Second}
	}
	return s
}

// proposed returns what the first metric comes to.
func (s *situation) proposed(t *testing.T) proposal {
	t.Helper()
	p, trouble := s.propose(&s.hpa.Spec.Metrics[0], &s.readings[0])
	require.Nil(t, trouble)
	return p
}

func (s *situation) problem(t *testing.T) *problem {
	t.Helper()
	_, trouble := s.propose(&s.hpa.Spec.Metrics[0], &s.readings[0])
	require.NotNil(t, trouble)
	return trouble
}

func TestUtilization(t *testing.T) {
	for _, c := range []struct {
		target int32
		used   []int64
		want   int32
		shown  int32
	}{
		{70, []int64{1400, 1400, 1400}, 6, 140},
		{70, []int64{700, 700, 700}, 3, 70},
		{70, []int64{0, 0, 0}, 0, 0},
		{50, []int64{1000, 200, 300}, 3, 50},    // of the sums, not the mean of the pods
		{100, []int64{1109, 1109}, 2, 110},      // the percentage is rounded down: 110.9 % is within the tolerance
		{100, []int64{1110, 1110}, 3, 111},      // this is not
		{100, []int64{900, 900, 900}, 3, 90},    // both ends of the tolerance belong to it
		{100, []int64{899, 899, 899}, 3, 89},    // 2.67 is rounded up
		{200, []int64{500, 500, 500, 1}, 1, 37}, // more than what is requested
	} {
		s := situated(len(c.used), cpu(c.target)).samples(c.used...)
		p := s.proposed(t)
		require.Equal(t, c.want, p.replicas, "%+v", c)
		require.Equal(t, c.shown, *p.status.Resource.Current.AverageUtilization)
		require.Equal(t, "cpu resource utilization (percentage of request)", p.name)
	}
	require.Equal(t, "1400m", situated(1,
		cpu(70)).samples(1400).proposed(t).status.Resource.Current.AverageValue.String())
}

// averages returns a metric of each kind that has a target for the average of the pods.
func averages(target string) []autoscalingv2.MetricSpec {
	q := resource.MustParse(target)
	of := autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &q}
	return []autoscalingv2.MetricSpec{
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: of}},
		{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu",
			Container: "c", Target: of}},
		{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "qps"},
			Target: of}},
	}
}

func TestAverageValue(t *testing.T) {
	names := map[autoscalingv2.MetricSourceType]string{"Resource": "cpu resource", "ContainerResource": "cpu resource",
		"Pods": "pods metric qps"}
	for _, m := range averages("10") {
		for _, c := range []struct {
			used []int64
			want int32
		}{
			{[]int64{20000, 10000}, 3},
			{[]int64{11000, 11000}, 2},
			{[]int64{11001, 11001}, 3},
			{[]int64{11001, 11000}, 2}, // the average is rounded down to whole thousandths
			{[]int64{2000, 2000, 2000, 2000}, 1},
		} {
			p := situated(len(c.used), m).samples(c.used...).proposed(t)
			require.Equal(t, c.want, p.replicas, "%s %v", m.Type, c)
			require.Equal(t, names[m.Type], p.name)
			require.Equal(t, m.Type, p.status.Type)
		}
	}
}

func TestMemoryIsWrittenInBinaryUnits(t *testing.T) {
	m := averages("1Gi")[0]
	m.Resource.Name = "memory"
	p := situated(2, m).samples(512<<20*1000, 512<<20*1000).proposed(t)
	require.EqualValues(t, 1, p.replicas)
	require.Equal(t, "512Mi", p.status.Resource.Current.AverageValue.String())
}

func TestContainerUtilization(t *testing.T) {
	percent := int32(50)
	m := autoscalingv2.MetricSpec{Type: "ContainerResource", ContainerResource: &autoscalingv2.
		ContainerResourceMetricSource{Name: "cpu", Container: "c",
		Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}}
	s := situated(2, m)
	for i := range s.pods {
		s.pods[i].requests = append(s.pods[i].requests, containerRequests{"sidecar", nil})
	}
	p := s.samples(1000, 1000).proposed(t)
	require.EqualValues(t, 4, p.replicas, "what the sidecar requests does not matter")
	require.Equal(t, "cpu container resource utilization (percentage of request)", p.name)
	m.ContainerResource.Container = "other"
	require.ErrorContains(t, s.problem(t).err, "container other not found in Pod web-00")
	require.Equal(t, "FailedGetContainerResourceMetric", s.problem(t).reason)
}

func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	requests := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Resources: requests("100m")},
		{Name: "b", Resources: requests("200m")}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "once", Resources: requests("5")},
		{Name: "beside", Resources: requests("30m"), RestartPolicy: &always}}
	facts, err := factsOf(pod)
	require.NoError(t, err)
	of := func(name corev1.ResourceName, container string) int64 {
		n, err := facts.request(name, container)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 330, of("cpu", ""), "init containers that end do not count")
	require.EqualValues(t, 200, of("cpu", "b"))
	_, err = facts.request("memory", "")
	require.EqualError(t, err, "missing request for memory in container a of Pod p")

	whole := requests("2")
	pod.Spec.Resources = &whole
	facts, err = factsOf(pod)
	require.NoError(t, err)
	require.EqualValues(t, 2000, of("cpu", ""), "requests of the whole pod go before")
	require.EqualValues(t, 200, of("cpu", "b"))
	_, err = facts.request("memory", "")
	require.EqualError(t, err, "missing pod-level request for memory in Pod p")
}

// A pod without a request has no utilization, whether it counts or not.
func TestAMissingRequest(t *testing.T) {
	s := situated(2, cpu(50)).samples(100, 100)
	s.pods[1].requests, s.pods[1].deleting = []containerRequests{{name: "c"}}, true
	require.Equal(t, "FailedGetResourceMetric", s.problem(t).reason)
	require.EqualError(t, s.problem(t).err, "failed to get cpu utilization: missing request for cpu in container c of "+
		"Pod web-01")
}

// Pods that have failed or are being deleted do not count, with a sample or without.
func TestPodsThatDoNotCount(t *testing.T) {
	s := situated(4, cpu(50)).samples(1000, 1000, 9000, 9000)
	s.pods[2].deleting, s.pods[3].phase = true, corev1.PodFailed
	require.EqualValues(t, 4, s.proposed(t).replicas)
	require.EqualValues(t, 100, *s.proposed(t).status.Resource.Current.AverageUtilization)
	delete(s.readings[0].pods, s.pods[2].name)
	require.EqualValues(t, 4, s.proposed(t).replicas)
}

// A pod without a sample uses all that it requests if the others call for fewer, and nothing if they call for more.
func TestMissingSamples(t *testing.T) {
	for _, c := range []struct {
		target int32
		used   []int64 // of four pods
		want   int32
	}{
		{50, []int64{100, 100, 100}, 3},  // 20 % and one at 100 %: 32 %, so 2.56
		{50, []int64{100}, 4},            // 77 %: that would be growth
		{50, []int64{1000, 1000}, 4},     // 100 % and two at 0 %: 50 %
		{50, []int64{2000, 2000}, 8},     // 100 %
		{50, []int64{500, 500}, 4},       // as it should be
		{200, []int64{1000, 1000}, 3},    // a target above 100 % is what is used at most
		{50, []int64{600, 600, 1000}, 4}, // 73 % of three is 55 % of four
	} {
		p := situated(4, cpu(c.target)).samples(c.used...).proposed(t)
		require.Equal(t, c.want, p.replicas, "%+v", c)
	}
	for _, m := range averages("1") { // with a value, a pod without a sample uses the target
		require.EqualValues(t, 2, situated(4, m).samples(0, 0, 0, 0).proposed(t).replicas+2, "none is missing")
		require.EqualValues(t, 3, situated(4, m).samples(100, 100).proposed(t).replicas, "0.55 of four")
		require.EqualValues(t, 6, situated(4, m).samples(3000, 3000).proposed(t).replicas)
	}
	s := situated(2, cpu(50)).samples()
	require.ErrorContains(t, s.problem(t).err, "did not receive metrics for targeted pods (pods might be unready)")
	s.pods = nil
	require.ErrorContains(t, s.problem(t).err, "no pods returned by selector")
}

// Neither missing samples nor pods that are not ready turn the direction around, by the number of pods, too.
func TestTheDirectionIsKept(t *testing.T) {
	s := situated(4, cpu(50)).samples(450, 400, 400, 400)
	s.scale.Spec.Replicas = 2 // a rollout has surplus pods
	require.EqualValues(t, 4, s.proposed(t).replicas, "it is not looked at if no sample is missing")
	s.samples(400, 400, 400)
	require.EqualValues(t, 2, s.proposed(t).replicas, "three of them times 0.8 and one at 100 %: more than the two")
}

// Pods that are pending, or not ready while they may still start, count as 0 % if the others call for more.
func TestPodsThatStart(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for _, c := range []struct {
		name   string
		change func(*podFacts)
		starts bool
	}{
		{"ready for an hour", func(p *podFacts) {}, false},
		{"no condition", func(p *podFacts) { p.ready = "" }, true},
		{"not started", func(p *podFacts) { p.started = time.Time{} }, true},
		{"pending", func(p *podFacts) { p.phase = corev1.PodPending }, true},
		{"starts, not ready", func(p *podFacts) {
			p.started, p.ready, p.readyChanged = ago(time.Minute), corev1.ConditionFalse, ago(time.Minute)
		}, true},
		{"ready for less than a window", func(p *podFacts) {
			p.started, p.readyChanged = ago(time.Minute),
				ago(29*time.Second)
		},
			true},
		{"ready for a window", func(p *podFacts) { p.started, p.readyChanged = ago(time.Minute), ago(30*time.Second) },
			false},
		{"started long ago, never ready", func(p *podFacts) {
			p.ready, p.readyChanged = corev1.ConditionFalse, ago(time.Hour-29*time.Second)
		}, true},
		{"no longer ready", func(p *podFacts) {
			p.ready, p.readyChanged = corev1.ConditionFalse, ago(time.Hour-30*time.Second)
		}, false},
		{"just at the end of the initialization", func(p *podFacts) {
			p.started, p.ready, p.readyChanged = ago(5*time.Minute), corev1.ConditionFalse, ago(4*time.Minute)
		}, false},
	} {
		s := situated(3, cpu(50)).samples(1000, 1000, 1000)
		c.change(&s.pods[2])
		want := int32(6)
		if c.starts {
			want = 4 // two at 100 %, one at 0 %: 66 %
		}
		require.Equal(t, want, s.proposed(t).replicas, c.name)
		s.samples(250, 250, 250)
		want = 2
		if c.starts {
			want = 1 // of those that are ready
		}
		require.Equal(t, want, s.proposed(t).replicas, c.name)
	}
	for _, m := range averages("1")[2:] { // readiness is of no interest for other metrics than CPU
		s := situated(2, m).samples(2000, 2000)
		s.pods[1].ready = corev1.ConditionFalse
		require.EqualValues(t, 4, s.proposed(t).replicas)
		s.pods[1].phase = corev1.PodPending
		require.EqualValues(t, 2, s.proposed(t).replicas)
	}
}

func TestTolerance(t *testing.T) {
	wide, none := resource.MustParse("0.5"), resource.MustParse("0")
	behavior := &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   &autoscalingv2.HPAScalingRules{Tolerance: &wide},
		ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: &none},
	}
	for _, c := range []struct {
		percent       int64
		plain, spoken int32 // with the flag's tolerance, with those of behavior
	}{{1000, 10, 10}, {1100, 10, 10}, {1110, 12, 10}, {1500, 15, 10}, {1510, 16, 16}, {900, 10, 9}, {990, 10, 10},
		{890, 9, 9}} {
		s := situated(10, cpu(100))
		values := make([]int64, 10)
		for i := range values {
			values[i] = c.percent
		}
		require.Equal(t, c.plain, s.samples(values...).proposed(t).replicas, "%+v", c)
		s.hpa.Spec.Behavior = behavior
		require.Equal(t, c.spoken, s.proposed(t).replicas, "%+v", c)
	}
}

func object(value, average string) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
		DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "db"},
		Metric:          autoscalingv2.MetricIdentifier{Name: "hits"}, Target: targetOf(value, average)}}
}

// A value is compared with its target, and multiplies the pods that are ready.
func TestValue(t *testing.T) {
	for name, m := range map[string]autoscalingv2.MetricSpec{"Service metric hits": object("10", ""),
		"external metric hits(nil)": external("hits", "10", "")} {
		for value, want := range map[int64]int32{20000: 4, 11000: 3, 11001: 3, 10000: 3, 9000: 3, 8999: 2, 0: 0,
			math.MaxInt64: math.MaxInt32} {
			s := situated(3, m)
			s.pods[2].ready = corev1.ConditionFalse // 2 are ready
			s.readings[0].total = value
			p := s.proposed(t)
			require.Equal(t, want, p.replicas, "%s %d", name, value)
			require.Equal(t, name, p.name)
		}
		s := situated(0, m)
		s.readings[0].total = 25000
		require.EqualValues(t, 3, s.proposed(t).replicas, "no pods are there to multiply")
		s.scale.Spec.Replicas = 1
		require.ErrorContains(t, s.problem(t).err, "no pods returned by selector")
	}
}

// The share of one replica is compared with its target.
func TestShare(t *testing.T) {
	for name, m := range map[string]autoscalingv2.MetricSpec{"Service metric hits": object("", "10"),
		"external metric hits(nil)": external("hits", "", "10")} {
		for value, want := range map[int64]int32{60000: 6, 33000: 3, 33001: 4, 27000: 3, 26999: 3, 10000: 1, 0: 0,
			math.MaxInt64: math.MaxInt32} {
			s := situated(3, m)
			s.readings[0].total = value
			p := s.proposed(t)
			require.Equal(t, want, p.replicas, "%s %d", name, value)
			require.Equal(t, name, p.name)
		}
		s := situated(3, m)
		s.readings[0].total = 10000
		current := func() *resource.Quantity {
			if p := s.proposed(t); p.status.Object != nil {
				return p.status.Object.Current.AverageValue
			}
			return s.proposed(t).status.External.Current.AverageValue
		}
		require.Equal(t, "3334m", current().String(), "rounded up")
		s.scale.Status.Replicas = 0
		require.EqualValues(t, 1, s.proposed(t).replicas)
		require.Equal(t, "10", current().String(), "without replicas it is all")
	}
}

func TestTargetsThatAreMissing(t *testing.T) {
	for _, m := range []autoscalingv2.MetricSpec{
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}},
		{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{}},
		{Type: "External", External: &autoscalingv2.ExternalMetricSource{}},
	} {
		require.ErrorContains(t, situated(1, m).problem(t).err, "is set as the target")
	}
	unknown := situated(1, autoscalingv2.MetricSpec{Type: "Tea"}).problem(t)
	require.Equal(t, "InvalidMetricSourceType", unknown.reason)
	require.ErrorContains(t, unknown.err, `unknown metric source type "Tea"`)
}

// The highest proposal counts. Without all metrics the target may grow, and does not shrink.
func TestSeveralMetrics(t *testing.T) {
	two := external("a", "", "1")
	for _, c := range []struct {
		totals [2]int64
		broken [2]bool
		want   int32 // 0: none
		reason string
	}{
		{[2]int64{4000, 7000}, [2]bool{}, 7, "external metric b(nil) above target"},
		{[2]int64{7000, 4000}, [2]bool{}, 7, "external metric a(nil) above target"},
		{[2]int64{2000, 1000}, [2]bool{}, 2, "All metrics below target"},
		{[2]int64{7000, 0}, [2]bool{false, true}, 7, "external metric a(nil) above target"},
		{[2]int64{0, 2000}, [2]bool{true, false}, 0, ""},
		{[2]int64{}, [2]bool{true, true}, 0, ""},
	} {
		s := situated(5, two, external("b", "", "1"))
		for i := range 2 {
			s.readings[i].total = c.totals[i]
			if c.broken[i] {
				s.readings[i].err = fmt.Errorf("broken %d", i)
			}
		}
		d := decide(s, longAgo)
		require.Equal(t, c.want != 0, d.resize, "%+v", c)
		require.Equal(t, c.want == 0, d.blind)
		require.Equal(t, c.broken[0] || c.broken[1], d.failed != nil)
		require.Equal(t, c.reason, d.reason)
		require.Len(t, d.metrics, 2, "each metric has its place in the status")
		if c.want != 0 {
			require.Equal(t, c.want, d.replicas)
			continue
		}
		first := 0
		if !c.broken[0] {
			first = 1
		}
		require.Equal(t, fmt.Sprintf("False FailedGetExternalMetric: the HPA was unable to compute the replica count: "+
			"failed to get external metric %s: broken %d", string("ab"[first]), first),
			d.says(autoscalingv2.ScalingActive))
		require.Contains(t, d.failed.Error(), "invalid out of 2), first error is: ")
		last := d.events[len(d.events)-1]
		require.Equal(t, event{"Warning", "FailedComputeMetricsReplicas", d.failed.Error()}, last)
	}
}

// longAgo is the memory of an HPA whose window is over.
var longAgo = memory{recommendations: []recommendation{{5, noon.Add(-time.Hour)}}}

// says returns status, reason and message of a condition.
func (d *decision) says(t autoscalingv2.HorizontalPodAutoscalerConditionType) string {
	for _, c := range d.conditions {
		if c.Type == t {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// A metric below zero, which an external system may have, asks for none.
func TestANegativeMetric(t *testing.T) {
	s := situated(2, external("a", "", "1"))
	s.readings[0].total = -5000
	d := decide(s, longAgo)
	require.EqualValues(t, 1, d.replicas, "minReplicas")
}

func TestAReadingThatFailed(t *testing.T) {
	for _, m := range append(averages("1"), cpu(50), object("1", ""), external("q", "1", "")) {
		s := situated(1, m)
		s.readings[0].err = errors.New("broken")
		p := s.problem(t)
		require.Equal(t, "FailedGet"+string(m.Type)+"Metric", p.reason)
		require.Equal(t, p.reason, p.event)
	}
}
