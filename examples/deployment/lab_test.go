package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A lab is the controller at work on an API server in memory, in virtual time, with a stand-in for the ReplicaSet
// controller and the nodes. Pods are only numbers there, except for those that a test creates.
type lab struct {
	t      *testing.T
	server *reconciletest.Server
	link   *reconciletest.Link // the controller's
	client kubernetes.Interface
}

// inLab runs a test in a lab.
func inLab(t *testing.T, test func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lab{t: t, server: server, link: server.Link(), client: kubernetes.NewForConfigOrDie(server.Config())}
		stopSets, stop := l.standIn(), l.control()
		test(l)
		stop()
		stopSets()
	})
}

// control starts the controller.
func (l *lab) control() (stop func()) {
	cfg := l.link.Config()
	cfg.Wrap(reconcile.TrackWrites)
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- program.Operate(ctx, cfg, nil, command.Options{Workers: 5, QPS: 500, Burst: 1000, MetricsAddress: "0"})
	}()
	return func() {
		cancel()
		require.NoError(l.t, <-ended)
	}
}

// standIn reports on each ReplicaSet every 100 ms: its pods are there at once, and are available one report later. Pods
// of an image called "bad" never are.
func (l *lab) standIn() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for _, set := range reconciletest.List[*appsv1.ReplicaSet](l.server, "replicasets.apps", "default") {
				l.reportOn(ctx, set)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func (l *lab) reportOn(ctx context.Context, set *appsv1.ReplicaSet) {
	before, after, none := set.Status, set.Status, int32(0)
	n := *set.Spec.Replicas
	after.Replicas, after.FullyLabeledReplicas, after.TerminatingReplicas = n, n, &none
	after.ObservedGeneration = set.Generation
	if set.Spec.Template.Spec.Containers[0].Image == "bad" {
		n = 0
	}
	after.ReadyReplicas, after.AvailableReplicas = n, min(n, before.Replicas)
	set.Status = after
	_, _ = l.client.AppsV1().ReplicaSets("default").UpdateStatus(ctx, set, metav1.UpdateOptions{}) // or the next time
}

// deployment returns one of n pods of an image.
func deployment(name string, n int32, image string, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
			},
		},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func rolling(surge, unavailable string) func(*appsv1.Deployment) {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u}}
	}
}

func recreating(d *appsv1.Deployment) {
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

func (l *lab) create(d *appsv1.Deployment) {
	l.t.Helper()
	_, err := l.client.AppsV1().Deployments("default").Create(l.t.Context(), d, metav1.CreateOptions{})
	require.NoError(l.t, err)
}

// patch makes a strategic merge patch of a Deployment, as kubectl does.
func (l *lab) patch(name, patch string, args ...any) {
	l.t.Helper()
	_, err := l.client.AppsV1().Deployments("default").Patch(l.t.Context(), name, types.StrategicMergePatchType,
		fmt.Appendf(nil, patch, args...), metav1.PatchOptions{})
	require.NoError(l.t, err)
}

func (l *lab) image(name, image string) {
	l.t.Helper()
	l.patch(name, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

func (l *lab) scale(name string, n int) {
	l.t.Helper()
	l.patch(name, `{"spec":{"replicas":%d}}`, n)
}

// settle lets time pass: enough for every rollout that can go on to end.
func (l *lab) settle() { l.wait(20 * time.Second) }

func (l *lab) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *lab) get(name string) *appsv1.Deployment {
	l.t.Helper()
	d, ok := reconciletest.Get[*appsv1.Deployment](l.server, "deployments.apps", "default", name)
	require.True(l.t, ok, name)
	return d
}

// sets returns the ReplicaSets by image.
func (l *lab) sets() map[string]*appsv1.ReplicaSet {
	l.t.Helper()
	found := map[string]*appsv1.ReplicaSet{}
	for _, set := range reconciletest.List[*appsv1.ReplicaSet](l.server, "replicasets.apps", "default") {
		image := set.Spec.Template.Spec.Containers[0].Image
		require.NotContains(l.t, found, image, "two sets for one template")
		found[image] = set
	}
	return found
}

// sizes returns how many pods the ReplicaSets want, by image.
func (l *lab) sizes() map[string]int {
	l.t.Helper()
	sizes := map[string]int{}
	for image, set := range l.sets() {
		sizes[image] = size(set)
	}
	return sizes
}

// reason returns the reason of a condition, with its status, or "".
func (l *lab) reason(name string, t appsv1.DeploymentConditionType) string {
	l.t.Helper()
	c := find(l.get(name).Status.Conditions, t)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// events returns what was told of Deployments, each once.
func (l *lab) events() (told []string) {
	l.t.Helper()
	for _, e := range reconciletest.List[*corev1.Event](l.server, "events", "default") {
		require.Equal(l.t, "deployment-controller", e.Source.Component)
		told = append(told, e.Type+" "+e.Reason+" "+e.Message)
	}
	return told
}
