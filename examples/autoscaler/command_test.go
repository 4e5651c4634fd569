package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// These tests look at the command from outside: exit codes, and the one line that says what is wrong. The processes run
// against the API server in memory.

// TestMain lets the test binary be the command.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := process(t, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if failure := cmd.Run(); failure != nil {
		require.IsType(t, &exec.ExitError{}, failure)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

func process(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_THE_COMMAND=1", "KUBECONFIG=", "HOME=/nowhere")
	return cmd
}

func TestTheCommandLine(t *testing.T) {
	code, stdout, stderr := run(t, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "autoscaler sets the number of replicas by metrics")
	require.Contains(t, stdout, "--horizontal-pod-autoscaler-sync-period")
	require.Contains(t, stdout, "(default 250)")
	require.Empty(t, stderr)
	code, _, stderr = run(t, "--horizontal-pod-autoscaler-sync-period=soon")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "--horizontal-pod-autoscaler-sync-period")
}

func TestBadSettings(t *testing.T) {
	set := settings{tolerance: -1, downscaleWindow: -1, cpuInitialization: -1, initialReadiness: -1}
	for _, want := range []string{"sync-period=0s: must be more than 0", "tolerance=-1: must not be negative",
		"downscale-stabilization=-1ns: must not", "cpu-initialization-period=-1ns: must",
		"readiness-delay=-1ns: must"} {
		require.ErrorContains(t, set.validate(), want)
	}
	right := defaults()
	require.NoError(t, right.validate())
}

// account is the user that the manifests make.
const account = "thermostat-autoscaler"

// governed returns an API server in memory with the rights of the manifests, and the link of their user.
func governed(t *testing.T, metrics *metricsStub) (*reconciletest.Server, *reconciletest.Link) {
	t.Helper()
	text, err := os.ReadFile("deploy/rbac.yaml")
	require.NoError(t, err)
	roles := filepath.Join(t.TempDir(), "rbac.yaml") // with the namespace that kustomize adds
	inNamespace := regexp.MustCompile(`(?m)^kind: Role(Binding)?\nmetadata:$`).ReplaceAll(text,
		[]byte("$0\n  namespace: thermostat"))
	require.NoError(t, os.WriteFile(roles, inNamespace, 0o600))
	server := reconciletest.NewServer(t, reconciletest.Options{Roles: []string{roles}, Aggregated: metrics.apis(),
		Namespaces: []string{"default", "thermostat"}})
	return server, server.LinkAs(reconciletest.ServiceAccount("thermostat", account))
}

// With the rights of the manifests everything works, and nothing is refused.
func TestTheRightsOfTheManifestsSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newMetricsStub()
		server, link := governed(t, metrics)
		l := &lab{t: t, server: server, link: link, client: kubernetes.NewForConfigOrDie(server.Config()),
			metrics: metrics, set: defaults()}
		l.deploy("web", 3)
		l.metrics.all("1")
		stop := l.control()
		l.create(hpa("web", 1, 10, with(cpu(50))))
		require.Equal(t, 6, l.size())
		require.EqualValues(t, 6, l.get("web").Status.DesiredReplicas)
		require.Len(t, l.told(), 1)
		stop()
		used := testbed.ByResource(link.Used()[""])
		scales := testbed.ByResource(link.Used()["default"])
		require.Contains(t, used["autoscaling/horizontalpodautoscalers"], "watch")
		require.Equal(t, []string{"get", "update"}, scales["apps/deployments/scale"])
		require.Equal(t, []string{"list"}, scales["metrics.k8s.io/pods"])
	})
}

// The process runs with these rights: it finds them at its start, leads, works, and ends with exit code 0.
func TestTheProcess(t *testing.T) {
	t.Parallel()
	server, link := governed(t, newMetricsStub())
	cmd := process(t, "--kubeconfig", testbed.KubeconfigOf(t, link.Listen()),
		"--leader-elect-resource-namespace=thermostat", "--horizontal-pod-autoscaler-sync-period=1s")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { t.Log(stderr.String()) })
	client := kubernetes.NewForConfigOrDie(server.Config())
	l := &lab{t: t, server: server, client: client}
	l.deploy("web", 12)
	_, err := client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(),
		hpa("web", 1, 10, with(cpu(50))), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.size() == 10 }, 2*time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), stderr.String())
	require.NotContains(t, stderr.String(), "forbidden")
}

// The rules in the manifests are those that the command looks for at its start.
func TestTheManifestsGrantWhatTheCommandLooksFor(t *testing.T) {
	testbed.CheckGrants(t, newProgram(defaults()).Needs(command.Options{LeaderElect: true, LeaseNamespace: "thermostat",
		LeaseName: account}))
}

// Another controller that writes the status of an HPA ends this one, with a line that says what to do.
func TestARivalEndsIt(t *testing.T) {
	t.Parallel()
	server, link := governed(t, newMetricsStub())
	cmd := process(t, "--kubeconfig", testbed.KubeconfigOf(t, link.Listen()), "--leader-elect=false")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	cfg := server.Config()
	cfg.UserAgent = "kube-controller-manager/test"
	hpas := kubernetes.NewForConfigOrDie(cfg).AutoscalingV2().HorizontalPodAutoscalers("default")
	_, err := hpas.Create(t.Context(), hpa("web", 1, 10, with(cpu(50))), metav1.CreateOptions{})
	require.NoError(t, err)
	status := func(change func(*autoscalingv2.HorizontalPodAutoscaler) bool) func() bool {
		return func() bool {
			h, err := hpas.Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && change(h)
		}
	}
	require.Eventually(t, status(func(h *autoscalingv2.HorizontalPodAutoscaler) bool {
		return len(h.Status.Conditions) > 0
	}), time.Minute, 20*time.Millisecond)
	require.Eventually(t, status(func(h *autoscalingv2.HorizontalPodAutoscaler) bool {
		h.Status.CurrentReplicas++
		_, err := hpas.UpdateStatus(t.Context(), h, metav1.UpdateOptions{})
		return err == nil
	}), time.Minute, 20*time.Millisecond)
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(),
		`autoscaler: "kube-controller-manager" wrote the status of HorizontalPodAutoscaler default/web`)
	require.Contains(t, stderr.String(), "--controllers=*,-horizontal-pod-autoscaler-controller")
	last := stderr.String()[strings.LastIndex(strings.TrimSpace(stderr.String()), "\n")+1:]
	require.Contains(t, last, "examples/autoscaler/deploy/kind.yaml")
}
