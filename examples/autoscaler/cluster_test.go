package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These tests run on a real control plane. Its Deployment and ReplicaSet controllers make the pods, the node stand-in
// serves metrics.k8s.io, the test serves the other two metrics APIs, and the HPA controller is the command, or the
// built-in one in a process of its own.

var withMetrics = testcluster.Options{Metrics: true,
	Controllers: []string{"*", "-horizontal-pod-autoscaler-controller"}}

// contenders are the controllers, by the names that internal/bench knows them by. Each is a process with a kubeconfig
// and flags that both have.
var contenders = []struct {
	name  string
	start func(t testing.TB, c *testcluster.Cluster, kubeconfig string, flags ...string) *testcluster.Process
}{
	{"kube-controller-manager", func(t testing.TB, c *testcluster.Cluster, kubeconfig string,
		flags ...string) *testcluster.Process {
		return testbed.RunBuiltIn(t, c, "built-in", "horizontal-pod-autoscaler-controller",
			append([]string{"--kubeconfig=" + kubeconfig, "--concurrent-horizontal-pod-autoscaler-syncs=5",
				"--kube-api-qps=500", "--kube-api-burst=1000"}, flags...)...)
	}},
	{"thermostat", func(t testing.TB, c *testcluster.Cluster, kubeconfig string,
		flags ...string) *testcluster.Process {
		p, err := c.Run(t.Context(), testcluster.Command{
			Name: "ours", Path: os.Args[0], Env: []string{"BE_THE_COMMAND=1"},
			Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--workers=5",
				"--kube-api-qps=500", "--kube-api-burst=1000"}, flags...),
		})
		require.NoError(t, err)
		return p
	}},
}

// accountConfig applies the manifests, and returns the configuration of the service account that they make: the rights
// of the controller, and no others.
func accountConfig(t *testing.T, c *testcluster.Cluster) *rest.Config {
	t.Helper()
	kustomize, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../internal/tools/go.mod", "-n",
		"kustomize").Output()
	require.NoError(t, err)
	built, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(kustomize)), "build", "deploy").Output()
	require.NoError(t, err)
	objects, err := testcluster.Decode(built)
	require.NoError(t, err)
	require.Greater(t, len(objects), 5)
	require.NoError(t, c.Apply(t.Context(), objects...))
	token, err := c.Client().CoreV1().ServiceAccounts("thermostat").CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	cfg := rest.AnonymousClientConfig(c.Config())
	cfg.BearerToken = token.Status.Token
	return cfg
}

// site is a namespace with a Deployment web, whose pods share a load.
type site struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string

	mu   sync.Mutex
	load int64 // guarded by mu; in thousandths of a CPU
}

// newSite begins to spread the load over the pods that run, as a load balancer would. It ends with the test.
func newSite(t *testing.T, c *testcluster.Cluster, replicas int32, load int64) *site {
	t.Helper()
	s := &site{t: t, client: c.Client(), namespace: c.Namespace(t), load: load}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	d.Spec.Replicas = &replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	_, err := s.client.AppsV1().Deployments(s.namespace).Create(t.Context(), d, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			_ = s.spread(ctx) // a pod may be gone by now
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func (s *site) spread(ctx context.Context) error {
	pods := s.client.CoreV1().Pods(s.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning
	})
	s.mu.Lock()
	usage := fmt.Sprintf("cpu=%dm", s.load/int64(max(1, len(list.Items))))
	s.mu.Unlock()
	for _, pod := range list.Items {
		if pod.Annotations["standin/usage"] == usage {
			continue
		}
		_, err := pods.Patch(ctx, pod.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"standin/usage":%q}}}`, usage), metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *site) setLoad(load int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load = load
}

// byHand does what kubectl scale does.
func (s *site) byHand(replicas int32) {
	s.t.Helper()
	_, err := s.client.AppsV1().Deployments(s.namespace).UpdateScale(s.t.Context(), "web", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas}}, metav1.UpdateOptions{})
	require.NoError(s.t, err)
}

func (s *site) hpa() *autoscalingv2.HorizontalPodAutoscaler {
	s.t.Helper()
	h, err := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Get(s.t.Context(), "web",
		metav1.GetOptions{})
	require.NoError(s.t, err)
	return h
}

// settled waits until the Deployment has n pods that are ready and its HPA says so, with conditions of these reasons,
// and returns the status in words.
func (s *site) settled(n int32, usage string, reasons ...string) (status string) {
	s.t.Helper()
	var seen string
	require.Eventually(s.t, func() bool {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.t.Context(), "web", metav1.GetOptions{})
		require.NoError(s.t, err)
		h := s.hpa().Status
		status = fmt.Sprintf("%d of %d replicas", h.CurrentReplicas, h.DesiredReplicas)
		for _, m := range h.CurrentMetrics {
			switch {
			case m.Resource != nil:
				status += fmt.Sprintf(", %s %d%%", m.Resource.Current.AverageValue,
					*m.Resource.Current.AverageUtilization)
			case m.External != nil:
				status += fmt.Sprintf(", External %s", m.External.Current.AverageValue)
			case m.Object != nil:
				status += fmt.Sprintf(", Object %s", m.Object.Current.AverageValue)
			}
		}
		conditions := []string{}
		for _, c := range h.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		}
		slices.Sort(conditions)
		status += ", " + strings.Join(conditions, ", ")
		seen = fmt.Sprintf("%d wanted, %d ready; %s", *d.Spec.Replicas, d.Status.ReadyReplicas, status)
		return *d.Spec.Replicas == n && d.Status.Replicas == n && d.Status.ReadyReplicas == n &&
			h.CurrentReplicas == n && strings.Contains(status, usage) &&
			!slices.ContainsFunc(reasons, func(r string) bool { return !strings.Contains(status, r) })
	}, 3*time.Minute, 50*time.Millisecond, "%d pods; %v", n, &lazily{&seen})
	return status
}

// lazily shows a text as it is when it is printed.
type lazily struct{ text *string }

func (l *lazily) String() string { return *l.text }

// events returns what the controller has told of the HPA.
func (s *site) events() []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.namespace).List(s.t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler"})
	require.NoError(s.t, err)
	told := map[string]bool{}
	for _, e := range list.Items {
		told[e.Reason+" "+e.Message] = true
	}
	return slices.Sorted(maps.Keys(told))
}

// Both controllers do the same on a real control plane: they let a Deployment grow with its load, take back what was
// scaled by hand, wait for the window before they let it shrink, and say that there are no metrics. Ours has the rights
// of its manifests.
func TestOnARealControlPlane(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, withMetrics)
	custom := newMetricsStub()
	for gv, handler := range custom.apis() {
		if gv.Group != "metrics.k8s.io" { // the node serves that
			c.Aggregate(t, gv, handler)
		}
	}
	kubeconfig := map[string]string{"kube-controller-manager": c.Kubeconfig(),
		"thermostat": testbed.KubeconfigOf(t, accountConfig(t, c))}
	ends := map[string][]string{}
	for _, contender := range contenders {
		t.Run(contender.name, func(t *testing.T) {
			s := newSite(t, c, 3, 4200)
			controller := contender.start(t, c, kubeconfig[contender.name],
				"--horizontal-pod-autoscaler-sync-period=1s")
			t.Cleanup(func() {
				_ = controller.Kill(context.Background()) // fails if it has ended, which is worth a look at its log
				log, err := os.ReadFile(controller.Log)
				require.NoError(t, err)
				require.NotContains(t, string(log), "forbidden")
				if t.Failed() {
					t.Log(string(log))
				}
			})
			ends[contender.name] = s.dayOfAnHPA(c, custom)
		})
	}
	require.NotEmpty(t, ends["thermostat"])
	require.Equal(t, ends["kube-controller-manager"], ends["thermostat"])
	t.Log(strings.Join(ends["thermostat"], "\n"))
}

// dayOfAnHPA returns the status after each step.
func (s *site) dayOfAnHPA(c *testcluster.Cluster, custom *metricsStub) (steps []string) {
	ctx, t := s.t.Context(), s.t
	window := int32(10)
	hpas := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace)
	_, err := hpas.Create(ctx, hpa("web", 1, 6, with(cpu(70)), func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window}}
	}), metav1.CreateOptions{})
	require.NoError(t, err)
	step := func(n int32, usage string, reasons ...string) {
		t.Helper()
		steps = append(steps, s.settled(n, usage, append(reasons, "ReadyForNewScale")...))
	}
	const fine = "DesiredWithinRange"
	step(6, "700m 70%", fine)
	s.byHand(8) // more than it may
	step(6, "700m 70%", fine)
	s.byHand(2)
	step(6, "700m 70%", fine)
	// The look that sees the last of the high load may be some time before the load falls: an interval, and more on a
	// busy machine.
	s.setLoad(1050)
	fell := time.Now()
	step(2, "525m 52%", fine)
	require.Greater(t, time.Since(fell), time.Duration(window/2)*time.Second)

	const api = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	require.NoError(t, s.client.Discovery().RESTClient().Delete().AbsPath(api).Do(ctx).Error())
	s.setLoad(9000)
	steps = append(steps, s.settled(2, "", "ScalingActive False FailedGetResourceMetric"))
	var told []string
	has := func(is func(event string) bool) {
		t.Helper()
		require.Eventually(t, func() bool { // they are written some time after the status
			told = s.events()
			return slices.ContainsFunc(told, is)
		}, time.Minute, 50*time.Millisecond, "%v", &told)
	}
	for _, want := range []string{
		"SuccessfulRescale New size: 6; reason: cpu resource utilization (percentage of request) above target",
		"SuccessfulRescale New size: 6; reason: Current number of replicas above Spec.MaxReplicas",
		"SuccessfulRescale New size: 2; reason: All metrics below target",
	} {
		has(func(e string) bool { return e == want })
	}
	has(func(e string) bool { return strings.HasPrefix(e, "FailedGetResourceMetric ") })
	require.NoError(t, c.Restart(ctx, testcluster.Node))
	step(6, "1500m 150%", "TooManyReplicas")

	custom.set(func() {
		custom.outside["queue"] = []string{"2500m", "1500m"}
		custom.custom["hits"] = map[string]string{"deployments.apps/web": "3"}
	})
	follow := func(metric autoscalingv2.MetricSpec) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"metrics": []any{metric}}})
		require.NoError(t, err)
		_, err = hpas.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	follow(external("queue", "", "1"))
	step(4, "External 1", fine)
	hits := object("", "1")
	hits.Object.DescribedObject = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
		Name: "web"}
	follow(hits)
	step(3, "Object 1", fine)
	require.NoError(t, hpas.Delete(ctx, "web", metav1.DeleteOptions{}))
	return steps
}
