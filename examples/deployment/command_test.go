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
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// These tests look at the command from outside: exit codes, and the one line that says what is wrong. The processes run
// against the API server in memory.

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
	require.Contains(t, stdout, "moves the pods of each Deployment to its template")
	require.Contains(t, stdout, "namespace whose Deployments are reconciled")
	require.Empty(t, stderr)
	code, _, stderr = run(t, "--workers=0")
	require.Equal(t, 2, code)
	require.Equal(t, "deployment: --workers=0: at least 1 is needed\n", stderr)
	code, _, stderr = run(t)
	require.Equal(t, 1, code)
	require.Equal(t, "deployment: no API server is configured: use --kubeconfig or $KUBECONFIG\n", stderr)
}

// account is the user that the manifests make.
const account = "thermostat-deployment"

// served starts an API server in memory with the rights of the manifests, and returns a kubeconfig for their user.
func served(t *testing.T) (*reconciletest.Server, *reconciletest.Link, string) {
	t.Helper()
	text, err := os.ReadFile("deploy/rbac.yaml")
	require.NoError(t, err)
	roles := filepath.Join(t.TempDir(), "rbac.yaml") // with the namespace that kustomize adds
	inNamespace := regexp.MustCompile(`(?m)^kind: Role(Binding)?\nmetadata:$`).ReplaceAll(text,
		[]byte("$0\n  namespace: thermostat"))
	require.NoError(t, os.WriteFile(roles, inNamespace, 0o600))
	server := reconciletest.NewServer(t, reconciletest.Options{Roles: []string{roles},
		Namespaces: []string{"default", "thermostat"}})
	link := server.LinkAs(reconciletest.ServiceAccount("thermostat", account))
	return server, link, testbed.KubeconfigOf(t, link.Listen())
}

// With the rights of the manifests everything works, and nothing is refused; each right is one that the command asks
// for. SIGTERM ends it with exit code 0.
func TestTheRightsOfTheManifestsSuffice(t *testing.T) {
	t.Parallel()
	server, link, kubeconfig := served(t)
	cmd := process(t, "--kubeconfig", kubeconfig, "--leader-elect-resource-namespace=thermostat",
		"--kube-api-qps=500")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // stderr is complete then
		t.Log(stderr.String())
	})
	client := kubernetes.NewForConfigOrDie(server.Config())
	deployments := client.AppsV1().Deployments("default")
	_, err := deployments.Create(t.Context(), deployment("web", 3, "a", recreating), metav1.CreateOptions{})
	require.NoError(t, err)
	sets := func() []*appsv1.ReplicaSet {
		return reconciletest.List[*appsv1.ReplicaSet](server, "replicasets.apps", "default")
	}
	require.Eventually(t, func() bool { return len(sets()) == 1 }, time.Minute, 20*time.Millisecond)
	_, err = deployments.Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"b"}]}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return size(sets()[0]) == 0 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), stderr.String())
	require.NotContains(t, stderr.String(), "forbidden")
	require.NotEmpty(t, link.Used())
}

// The rules in the manifests are those that the command looks for at its start.
func TestTheManifestsGrantWhatTheCommandLooksFor(t *testing.T) {
	testbed.CheckGrants(t, program.Needs(command.Options{LeaderElect: true, LeaseNamespace: "thermostat",
		LeaseName: account}))
}

func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	namespace := cluster.Namespace(t)
	rules := program.Needs(command.Options{Namespace: namespace, LeaderElect: true, LeaseNamespace: namespace,
		LeaseName: account})[namespace]
	rules[1].Verbs = []string{"get"} // not update deployments/status
	cfg, err := cluster.ServiceAccount(t.Context(), namespace, rules...)
	require.NoError(t, err)
	code, _, stderr := run(t, "--kubeconfig", testbed.KubeconfigOf(t, cfg), "--namespace", namespace,
		"--leader-elect-resource-namespace", namespace)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "deployments/status")
	require.Contains(t, stderr, "update")
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}

// Another controller that writes the status of a Deployment ends this one, with a line that says what to do.
func TestARivalEndsIt(t *testing.T) {
	t.Parallel()
	server, _, kubeconfig := served(t)
	cmd := process(t, "--kubeconfig", kubeconfig, "--leader-elect=false")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	cfg := server.Config()
	cfg.UserAgent = "kube-controller-manager/test"
	client := kubernetes.NewForConfigOrDie(cfg).AppsV1().Deployments("default")
	_, err := client.Create(t.Context(), deployment("web", 1, "a"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		d, err := client.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration > 0
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		d, err := client.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return false
		}
		d.Status.Replicas++
		_, err = client.UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(),
		`deployment: "kube-controller-manager" wrote the status of Deployment default/web`)
	require.Contains(t, stderr.String(), "--controllers=*,-deployment-controller")
}
