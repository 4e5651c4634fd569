package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A history is what an HPA sees at each look. Ours makes it up as it decides: a random world, in which a few pods are
// not ready or have no metric, people change the spec and scale by hand. Then the controller of Kubernetes is shown the
// same world, look by look, by internal/controlplane/hpa, and has to decide the same each time.
type history struct {
	Looks []view
	ours  []verdict
}

// view is what there is when the controller looks. internal/controlplane/hpa has the same type.
type view struct {
	Spec     autoscalingv2.HorizontalPodAutoscalerSpec
	Replicas int32 // the size that the target should have: the controller has set it, or a person
	Current  int32 // the size that it has
	Pods     []corev1.Pod
	Metrics  readings
	Broken   string // what fails at this look: one of breakages, or "" for nothing
}

// breakages are what can fail: all metrics APIs, the reading of the scale, its update, or its update by conflicts.
var breakages = []string{"metrics", "get scale", "update scale", "conflict"}

func (v view) String() string {
	pods := []string{}
	for _, p := range v.Pods {
		pods = append(pods, fmt.Sprintf("%s %s", p.Name, text(p.Status)))
	}
	return fmt.Sprintf("%d of %d replicas, broken: %q\nspec      %s\npods      %s\nmetrics   %s",
		v.Current, v.Replicas, v.Broken, text(v.Spec),
		strings.Join(pods, "\n          "), text(v.Metrics))
}

// readings are in thousandths.
type readings struct {
	Resources map[string]map[string]int64 // by resource and pod
	Pods      map[string]map[string]int64 // by metric and pod
	Objects   map[string]int64            // by metric
	External  map[string][]int64          // by metric
	Window    metav1.Duration
}

// verdict is what the look has come to.
type verdict struct {
	Replicas   int32
	Desired    int32
	Conditions []string // type, status, reason
	Messages   []string // of the conditions, which are not compared
	Metrics    []autoscalingv2.MetricStatus
	Events     map[string]int // by reason, how often it was told so far
}

// eventBurst is the number of Events that either controller writes about an HPA at once. Which ones it drops after that
// depends on their messages, and these differ.
const eventBurst = 25

// byZero is what the built-in controller shows for an average over no pods: it divides by zero.
const byZero = "-9223372036854775808m"

// similarEvents is the number of Events of one reason from which on the built-in controller's recorder combines them,
// and writes fewer.
const similarEvents = 10

// TestSameAsTheBuiltInController compares random histories. THERMOSTAT_SEED plays one, THERMOSTAT_SCRIPTS is the number
// of them.
func TestSameAsTheBuiltInController(t *testing.T) {
	first, n := uint64(0), 50
	if given := os.Getenv("THERMOSTAT_SCRIPTS"); given != "" {
		var err error
		n, err = strconv.Atoi(given)
		require.NoError(t, err)
	}
	given := os.Getenv("THERMOSTAT_SEED")
	if given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
		first, n = seed, 1
	}
	program, reasons := buildBuiltIn(t), map[string]int{}
	const batch = 50
	for ; n > 0; first, n = first+batch, n-batch {
		compareHistories(t, program, first, min(n, batch), reasons)
	}
	if given != "" {
		return
	}
	for _, c := range []string{
		"AbleToScale True SucceededRescale", "AbleToScale True ScaleDownStabilized",
		"AbleToScale True ReadyForNewScale",
		"AbleToScale True SucceededGetScale", "AbleToScale True ScaleUpStabilized",
		"ScalingLimited True TooManyReplicas",
		"ScalingLimited True TooFewReplicas",
		"ScalingLimited True ScaleUpLimit", "ScalingLimited True ScaleDownLimit",
		"ScalingLimited False DesiredWithinRange", "ScalingActive True ValidMetricFound",
		"ScalingActive False FailedGetResourceMetric", "ScalingActive False FailedGetContainerResourceMetric",
		"ScalingActive False FailedGetPodsMetric", "ScalingActive False FailedGetObjectMetric",
		"ScalingActive False FailedGetExternalMetric", "ScalingActive False ScalingDisabled",
		"ScaledToZero True ScaledToZero", "ScaledToZero False NotScaledToZero", "AbleToScale False FailedGetScale",
		"AbleToScale False FailedUpdateScale",
		"Event SuccessfulRescale", "Event FailedRescale", "Event FailedGetScale", "Event FailedGetResourceMetric",
		"Event FailedGetPodsMetric", "Event FailedComputeMetricsReplicas",
	} {
		require.NotZero(t, reasons[c], "the histories have nothing that leads to %s", c)
	}
}

// compareHistories compares the histories of n seeds, and counts the conditions.
func compareHistories(t *testing.T, program string, first uint64, n int, reasons map[string]int) {
	histories, input := make([]*history, n), &bytes.Buffer{}
	for i := range histories {
		histories[i] = live(t, first+uint64(i))
		require.NoError(t, json.NewEncoder(input).Encode(histories[i]))
	}
	theirs, looks := builtInDecides(t, program, input), 0
	for i, h := range histories {
		var verdicts []verdict
		require.NoError(t, theirs.Decode(&verdicts))
		require.Len(t, verdicts, len(h.ours))
		for at, ours := range h.ours {
			if !same(ours, verdicts[at]) {
				t.Errorf("seed %d, look %d: %s\nours      %s\nbuilt-in  %s", first+uint64(i), at, h.Looks[at],
					text(ours), text(verdicts[at]))
				break // what follows from it would differ, too
			}
			looks++
			for _, c := range ours.Conditions {
				reasons[c]++
			}
			for reason := range ours.Events {
				reasons["Event "+reason]++
			}
		}
	}
	t.Logf("seeds %d to %d: %d looks; all so far: %v", first, first+uint64(n)-1, looks, reasons)
}

// same compares all but the messages, the averages over no pods, and the Events as long as both recorders tell all of
// them.
func same(a, b verdict) bool {
	for i := range b.Metrics {
		if ours, theirs := average(a.Metrics, i), average(b.Metrics, i); ours != nil && theirs != nil &&
			theirs.String() == byZero {
			*theirs = *ours
		}
	}
	a.Messages, b.Messages = nil, nil
	if count(a.Events) >= eventBurst && count(b.Events) >= eventBurst {
		a.Events, b.Events = nil, nil
	}
	for reason, n := range a.Events {
		if n >= similarEvents && b.Events[reason] >= similarEvents {
			a.Events, b.Events = nil, nil
			break
		}
	}
	return text(a) == text(b)
}

// average returns the average value of an object or external metric, or nil.
func average(metrics []autoscalingv2.MetricStatus, i int) *resource.Quantity {
	switch {
	case i >= len(metrics):
		return nil
	case metrics[i].Object != nil:
		return metrics[i].Object.Current.AverageValue
	case metrics[i].External != nil:
		return metrics[i].External.Current.AverageValue
	}
	return nil
}

func count(events map[string]int) (n int) {
	for _, of := range events {
		n += of
	}
	return n
}

func text(x any) string {
	encoded, _ := json.Marshal(x)
	return string(encoded)
}

// buildBuiltIn builds the program with the controller of Kubernetes, which is part of another module.
func buildBuiltIn(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hpa.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "./hpa")
	build.Dir = filepath.Join("..", "..", "internal", "controlplane")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// builtInDecides shows histories to the controller of Kubernetes.
func builtInDecides(t *testing.T, program string, histories *bytes.Buffer) *json.Decoder {
	t.Helper()
	decisions := filepath.Join(t.TempDir(), "decisions")
	run := exec.CommandContext(t.Context(), program, "-test.run", "TestHistories")
	run.Stdin, run.Env = histories, append(os.Environ(), "HPA_DECISIONS="+decisions)
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := os.Open(decisions)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	return json.NewDecoder(file)
}

// live makes a history up, and lets ours decide.
func live(t *testing.T, seed uint64) *history {
	h := &history{}
	inLabBefore(t, func(l *lab) {
		w := &weather{lab: l, Rand: rand.New(rand.NewPCG(seed, 1)), load: map[string]int64{}}
		w.conflicts = w.chance(50)
		w.deploy("web", 0)
		w.scale("web", 1+w.IntN(5))
		w.move()
		w.create(w.wish())
		h.Looks = append(h.Looks, w.view())
		stop := w.control()
		for n := range 40 {
			if n > 0 {
				w.move()
				h.Looks = append(h.Looks, w.view())
				if w.chance(5) {
					w.replaceSpec(&h.Looks[n])
				}
				w.wait(8 * time.Second)
			}
			w.wait(7 * time.Second)
			h.ours = append(h.ours, w.verdict())
		}
		stop()
	})
	return h
}

// inLabBefore runs a test in a lab that has no Deployment and no controller yet.
func inLabBefore(t *testing.T, test func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMetricsStub(), defaults())
		l.metrics.numbers = 1000
		test(l)
	})
}

// weather is a lab in which things happen at random.
type weather struct {
	*lab
	*rand.Rand
	load   map[string]int64 // by metric
	made   int              // pods
	broken string           // one of breakages, or nothing
	asleep int              // for so many moves nobody asks for anything
	// conflicts says that updates of the scale may meet conflicts. The built-in controller repeats them and waits in
	// between, so its later looks are later by that: then no window and no period may end exactly at a look.
	conflicts bool
}

// chance is true in so many of a hundred cases.
func (w *weather) chance(percent int) bool { return w.IntN(100) < percent }

// move makes the pods that are wanted, perhaps after a person has scaled, and moves the metrics.
func (w *weather) move() {
	if w.chance(5) {
		w.scale("web", w.IntN(8))
	}
	d := w.deployment("web")
	pods := reconciletest.List[*corev1.Pod](w.server, "pods", "default")
	for len(pods) > int(*d.Spec.Replicas) {
		now, i := int64(0), w.IntN(len(pods))
		require.NoError(w.t, w.client.CoreV1().Pods("default").Delete(w.t.Context(), pods[i].Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now}))
		pods = slices.Delete(pods, i, i+1)
	}
	for n := len(pods); n < int(*d.Spec.Replicas); n++ {
		w.made++
		w.pod(fmt.Sprint("web-", w.made), "web", w.fate)
	}
	d.Status.Replicas = *d.Spec.Replicas
	_, err := w.client.AppsV1().Deployments("default").UpdateStatus(w.t.Context(), d, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.measure()
	w.breakSomething()
	synctest.Wait()
}

// breakSomething decides what fails until the next move.
func (w *weather) breakSomething() {
	w.broken = ""
	if w.chance(8) {
		w.broken = breakages[w.IntN(len(breakages))]
	}
	if w.broken == "conflict" && !w.conflicts {
		w.broken = ""
	}
	w.metrics.set(func() {
		clear(w.metrics.broken)
		if w.broken == "metrics" {
			for _, api := range []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"} {
				w.metrics.broken[api] = http.StatusInternalServerError
			}
		}
	})
	broken := w.broken
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		switch {
		case r.Subresource != "scale":
		case r.Verb == "get" && broken == "get scale", r.Verb == "update" && broken == "update scale":
			return reconciletest.Refuse(apierrors.NewInternalError(errors.New("broken")))
		case r.Verb == "update" && broken == "conflict":
			return reconciletest.Refuse(apierrors.NewConflict(schema.GroupResource{Group: "apps",
				Resource: "deployments"}, "web", errors.New("broken")))
		}
		return nil
	})
}

// fate makes some pods young, not ready, pending or failed.
func (w *weather) fate(p *corev1.Pod) {
	started := metav1.NewTime(time.Now().Add(-time.Duration(w.IntN(600)) * time.Second))
	switch n := w.IntN(100); {
	case n < 60: // an old one
	case n < 75:
		p.Status.StartTime = &started
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(started.Add(time.Duration(w.IntN(60)) * time.Second))
	case n < 90:
		p.Status.StartTime, p.Status.Conditions[0].Status = &started, corev1.ConditionFalse
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(started.Add(time.Duration(w.IntN(60)) * time.Second))
	case n < 96:
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	default:
		p.Status.Phase = corev1.PodFailed
	}
	if w.chance(2) {
		delete(p.Spec.Containers[0].Resources.Requests, "cpu")
	}
}

// measure sets new values. Each load goes up and down, and the pods share it unevenly.
func (w *weather) measure() {
	pods := reconciletest.List[*corev1.Pod](w.server, "pods", "default")
	of := func(metric string, most int64) int64 {
		step := w.Int64N(most) - most/2
		if w.chance(50) {
			step /= 8
		}
		if w.asleep <= 0 || metric != "hits" && metric != "queue" {
			w.load[metric] = max(0, min(most, w.load[metric]+step))
		}
		return w.load[metric]
	}
	shares := func(total int64, missing int, format func(int64) string) map[string]string {
		values := map[string]string{}
		for _, p := range pods {
			if !w.chance(missing) && p.Status.Phase == corev1.PodRunning {
				values[p.Name] = format(total*(75+w.Int64N(50))/100/int64(len(pods)) + w.Int64N(10))
			}
		}
		return values
	}
	milli := func(v int64) string { return fmt.Sprintf("%dm", v) }
	if w.asleep--; w.asleep <= 0 && w.chance(5) {
		w.asleep = 20
	}
	second := w.Int64N(5000)
	if w.asleep > 0 {
		w.load["hits"], w.load["queue"], second = 0, 0, 0
	}
	m := w.metrics
	m.set(func() {
		m.pods = shares(of("cpu", 8000), 5, milli)
		m.memory = shares(of("memory", 8<<30), 5, func(v int64) string { return fmt.Sprint(v) })
		m.custom, m.outside = map[string]map[string]string{}, map[string][]string{}
		requests := map[string]string{}
		for name, value := range shares(of("requests", 600_000), 5, milli) {
			requests["pods/"+name] = value
		}
		m.custom["requests"] = requests
		if !w.chance(3) {
			m.custom["hits"] = map[string]string{"deployments.apps/web": milli(of("hits", 900_000))}
		}
		if !w.chance(3) {
			m.outside["queue"] = []string{milli(of("queue", 500_000)), milli(second)}
		}
	})
}

// wish makes up an HPA.
func (w *weather) wish() *autoscalingv2.HorizontalPodAutoscaler {
	least := int32(1 + w.IntN(3))
	h := hpa("web", least, least+int32(w.IntN(10)))
	percent := int32(40 + w.IntN(60))
	kinds := []autoscalingv2.MetricSpec{
		cpu(percent),
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: targetOf("", "800m")}},
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "memory",
			Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}},
		{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu",
			Container: "c", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}},
		{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: targetOf("", "70")}},
		ofDeployment("hits", targetOf("60", "")), ofDeployment("hits", targetOf("", "90")),
		external("queue", "50", ""), external("queue", "", "40"),
	}
	w.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	h.Spec.Metrics = kinds[:1+w.IntN(2)]
	if w.chance(15) { // scaled to zero and from zero
		h.Spec.MinReplicas = new(int32(0))
		h.Spec.Metrics = []autoscalingv2.MetricSpec{ofDeployment("hits", targetOf("60", "")),
			external("queue", "50", "")}[:1+w.IntN(2)]
	}
	if w.conflicts || w.chance(60) {
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: w.rules(), ScaleDown: w.rules()}
	}
	return h
}

func ofDeployment(metric string, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
		DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
			Name: "web"},
		Metric: autoscalingv2.MetricIdentifier{Name: metric}, Target: target}}
}

// rules makes up a behaviour in one direction.
func (w *weather) rules() *autoscalingv2.HPAScalingRules {
	if !w.conflicts && w.chance(20) {
		return nil
	}
	r, offset := &autoscalingv2.HPAScalingRules{}, int32(0)
	if w.conflicts {
		offset = 4 // looks are at 0 s and, after a change of the spec, also at 7 s of 15 s
	}
	if w.conflicts || w.chance(60) {
		r.StabilizationWindowSeconds = new(int32(w.IntN(10)*15) + offset)
	}
	if w.chance(50) {
		choice := []autoscalingv2.ScalingPolicySelect{"Max", "Min", "Disabled"}[w.IntN(3)]
		r.SelectPolicy = &choice
	}
	if w.chance(30) {
		tolerance := resource.MustParse(fmt.Sprintf("%dm", w.IntN(300)))
		r.Tolerance = &tolerance
	}
	for range 1 + w.IntN(2) {
		r.Policies = append(r.Policies, autoscalingv2.HPAScalingPolicy{
			Type:  []autoscalingv2.HPAScalingPolicyType{"Pods", "Percent"}[w.IntN(2)],
			Value: int32(1 + w.IntN(60)), PeriodSeconds: int32(15*(1+w.IntN(8))) + offset})
	}
	return r
}

// replaceSpec gives the HPA a new spec, at which both controllers look at once.
func (w *weather) replaceSpec(v *view) {
	h := w.get("web")
	h.Spec = w.wish().Spec
	_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers("default").Update(w.t.Context(), h,
		metav1.UpdateOptions{})
	require.NoError(w.t, err)
	v.Spec = w.get("web").Spec
	synctest.Wait()
}

// view returns what the next look sees.
func (w *weather) view() view {
	d := w.deployment("web")
	v := view{Spec: w.get("web").Spec, Broken: w.broken, Replicas: *d.Spec.Replicas, Current: d.Status.Replicas}
	v.Metrics = readings{
		Resources: map[string]map[string]int64{"cpu": millis(w.metrics.pods, ""),
			"memory": millis(w.metrics.memory, "")},
		Pods:     map[string]map[string]int64{"requests": millis(w.metrics.custom["requests"], "pods/")},
		Objects:  millis(w.metrics.custom["hits"], "deployments.apps/"),
		External: map[string][]int64{},
		Window:   metav1.Duration{Duration: w.metrics.window},
	}
	if hits, ok := v.Metrics.Objects["web"]; ok {
		v.Metrics.Objects = map[string]int64{"hits": hits}
	}
	for _, s := range w.metrics.outside["queue"] {
		q := resource.MustParse(s)
		v.Metrics.External["queue"] = append(v.Metrics.External["queue"], q.MilliValue())
	}
	for _, p := range reconciletest.List[*corev1.Pod](w.server, "pods", "default") {
		v.Pods = append(v.Pods, *p)
	}
	return v
}

// millis returns the values in thousandths, by name without the prefix.
func millis(values map[string]string, prefix string) map[string]int64 {
	m := map[string]int64{}
	for name, s := range values {
		q := resource.MustParse(s)
		m[strings.TrimPrefix(name, prefix)] = q.MilliValue()
	}
	return m
}

// verdict returns what the last look has come to.
func (w *weather) verdict() verdict {
	h := w.get("web")
	v := verdict{Replicas: *w.deployment("web").Spec.Replicas, Desired: h.Status.DesiredReplicas,
		Metrics: h.Status.CurrentMetrics}
	for _, c := range h.Status.Conditions {
		v.Conditions = append(v.Conditions, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		v.Messages = append(v.Messages, c.Message)
	}
	v.Events = map[string]int{}
	for _, e := range reconciletest.List[*corev1.Event](w.server, "events", "default") {
		v.Events[e.Reason] += int(e.Count)
	}
	return v
}
