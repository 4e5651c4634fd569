package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestMain lets the test binary be the program.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestItGoesBack(t *testing.T) {
	cluster := testcluster.Shared(t)
	deployments := cluster.Client().AppsV1().Deployments(cluster.Namespace(t))
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "KUBECONFIG="+cluster.Kubeconfig())
	var output bytes.Buffer
	program.Stderr = &output
	require.NoError(t, program.Start())

	create := func(name string, annotations map[string]string) {
		labels := map[string]string{"app": name}
		_, err := deployments.Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	scale := func(name string, n int32) {
		_, err := deployments.UpdateScale(t.Context(), name, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv1.ScaleSpec{Replicas: n},
		}, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	goesTo := func(name string, n int32) {
		t.Helper()
		require.Eventually(t, func() bool {
			d, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			return *d.Spec.Replicas == n
		}, time.Minute, 10*time.Millisecond)
	}

	create("kept", map[string]string{"hello/replicas": "3"})
	create("free", nil)
	create("mistaken", map[string]string{"hello/replicas": "lots"})
	goesTo("kept", 3)
	for _, name := range []string{"free", "mistaken", "kept"} {
		scale(name, 7)
	}
	goesTo("kept", 3)
	goesTo("free", 7)
	goesTo("mistaken", 7)

	require.NoError(t, program.Process.Signal(syscall.SIGTERM))
	require.NoError(t, program.Wait(), output.String())
	require.Contains(t, output.String(), "kept from 7 to 3 replicas")
}

// TestASecondSignalEndsItAtOnce: the first one lets a call of Reconcile go on, which hangs here, for 30 s. The second
// one does not wait for that.
func TestASecondSignalEndsItAtOnce(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	link, hangs, release := server.Link(), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Verb != "patch" {
			return nil
		}
		close(hangs)
		return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
			<-release
			return nil, errors.New("released")
		}
	})
	labels := map[string]string{"app": "web"}
	_, err := kubernetes.NewForConfigOrDie(server.Config()).AppsV1().Deployments("default").Create(t.Context(),
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"hello/replicas": "3"}},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			},
		}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, testcluster.WriteKubeconfig(kubeconfig, link.Listen()))
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "KUBECONFIG="+kubeconfig)
	var output bytes.Buffer
	program.Stderr = &output
	require.NoError(t, program.Start())
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	select {
	case <-hangs:
	case err := <-ended:
		require.NoError(t, err, output.String())
	}

	began := time.Now()
	signals := time.NewTicker(100 * time.Millisecond) // some of them come before the first one has been taken
	defer signals.Stop()
	for {
		select {
		case <-ended:
			require.Less(t, time.Since(began), 15*time.Second, "it has waited for Reconcile")
			status, ok := program.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, ok)
			require.Equal(t, syscall.SIGINT, status.Signal(), "the signal has ended it")
			return
		case <-signals.C:
			_ = program.Process.Signal(syscall.SIGINT)
		}
	}
}
