package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These tests look at the command from outside: exit codes, and the one line that says what is wrong.

type result struct {
	code           int
	stdout, stderr string
}

// lastLine is what a user sees above the prompt.
func (r result) lastLine() string {
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	return lines[len(lines)-1]
}

func newProcess(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_THE_COMMAND=1", "KUBECONFIG=", "HOME=/nowhere")
	return cmd
}

func runCommand(t *testing.T, args ...string) result {
	t.Helper()
	cmd := newProcess(t.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); !exited {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestCommandHelp(t *testing.T) {
	r := runCommand(t, "--help")
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "--leader-elect")
	require.Empty(t, r.stderr)
}

func TestCommandRefusesBadFlags(t *testing.T) {
	r := runCommand(t, "--workers=0")
	require.Equal(t, 2, r.code)
	require.Equal(t, "replicaset: --workers=0: at least 1 is needed\n", r.stderr)

	r = runCommand(t)
	require.Equal(t, 1, r.code)
	require.Equal(t, "replicaset: no API server is configured: use --kubeconfig or $KUBECONFIG\n", r.stderr)
}

func TestCommandRefusesABadElectionBeforeItAsksAnybody(t *testing.T) {
	path := testbed.KubeconfigOf(t, &rest.Config{Host: "https://127.0.0.1:1"})
	r := runCommand(t, "--kubeconfig", path, "--leader-elect-lease-duration=5500ms", "--leader-elect-retry-period=9s")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "LeaseDuration 5.5s")
	require.Contains(t, r.stderr, "RetryPeriod 9s")
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
}

func TestCommandDoesNotWaitForAServerItDoesNotTrust(t *testing.T) {
	t.Parallel()
	trusted := shared(t).Config()
	trusted.CAData = nil
	r := runCommand(t, "--kubeconfig", testbed.KubeconfigOf(t, trusted))
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "failed to verify certificate")
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
}

func TestCommandGivesUpOnADeadServer(t *testing.T) {
	t.Parallel()
	for name, listener := range map[string]func(*testing.T) net.Listener{
		"refuses":   func(t *testing.T) net.Listener { l := listen(t); l.Close(); return l },
		"is silent": listen,
		"is no API": func(t *testing.T) net.Listener { l := listen(t); go hangUp(l); return l },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listener(t).Addr().String()
			path := testbed.KubeconfigOf(t, &rest.Config{Host: "https://" + address})
			began := time.Now()
			r := runCommand(t, "--kubeconfig", path, "--startup-timeout=2s")
			require.Equal(t, 1, r.code)
			require.Contains(t, r.lastLine(), "replicaset: cannot ask the API server at https://"+address+
				" which rights this user has: no answer within 2s (see --startup-timeout): ")
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
			require.Less(t, time.Since(began), 30*time.Second)
		})
	}
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// freeAddress returns an address that was free a moment ago.
func freeAddress(t *testing.T) string {
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

func hangUp(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// minimalRules is all that the controller needs. Without any one of them the command says so, by name, and ends.
func minimalRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets/status"}, Verbs: []string{"update"}},
		{APIGroups: []string{""}, Resources: []string{"pods"},
			Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			ResourceNames: []string{"thermostat-replicaset"}, Verbs: []string{"get", "watch", "update"}},
	}
}

// kubeconfigWith is for a service account with the given rules in one namespace.
func kubeconfigWith(t *testing.T, cluster *testcluster.Cluster, namespace string, rules []rbacv1.PolicyRule) string {
	t.Helper()
	cfg, err := cluster.ServiceAccount(t.Context(), namespace, rules...)
	require.NoError(t, err)
	return testbed.KubeconfigOf(t, cfg)
}

func TestCommandNamesMissingRules(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	namespace := cluster.Namespace(t)
	for name, c := range map[string]struct {
		drop func([]rbacv1.PolicyRule) []rbacv1.PolicyRule
		args []string
		want string
	}{
		"one verb": {
			func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule {
				r[2].Verbs = []string{"list", "watch", "create", "patch"}
				return r
			},
			nil, "replicaset: the API server does not grant this user what the program needs; to be added to a Role " +
				"in " +
				"namespace " + namespace + `: - {apiGroups: [""], resources: ["pods"], verbs: ["delete"]}`,
		},
		"a subresource": {
			func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { return append(r[:1], r[2:]...) },
			nil, `: - {apiGroups: ["apps"], resources: ["replicasets/status"], verbs: ["update"]}`,
		},
		"the lease": {
			func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { r[5].Verbs = []string{"get", "watch"}; return r[:6:6] },
			nil, `: - {apiGroups: ["coordination.k8s.io"], resources: ["leases"], ` +
				`resourceNames: ["thermostat-replicaset"], verbs: ["update"]}`,
		},
		"all namespaces": {
			func(r []rbacv1.PolicyRule) []rbacv1.PolicyRule { return r },
			[]string{"--namespace="}, "to be added to a ClusterRole, for all namespaces: - ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kubeconfig := kubeconfigWith(t, cluster, namespace, c.drop(minimalRules()))
			r := runCommand(t, append([]string{"--kubeconfig", kubeconfig, "--namespace", namespace,
				"--leader-elect-resource-namespace", namespace}, c.args...)...)
			require.Equal(t, 1, r.code)
			require.Contains(t, r.lastLine(), c.want)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		})
	}
}

// With exactly the minimal rules everything works, adoption and release included; SIGTERM ends it with exit code 0 and
// lets the lease go.
func TestCommandWithMinimalRules(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	w := newWorld(t, cluster)
	kubeconfig := kubeconfigWith(t, cluster, w.namespace, minimalRules())
	metricsAddress := freeAddress(t)
	cmd := newProcess(t.Context(), "--leader-elect-identity=the-one", "--metrics-bind-address", metricsAddress,
		"--kubeconfig", kubeconfig, "--namespace", w.namespace, "--leader-elect-resource-namespace", w.namespace,
		"--kube-api-qps=200", "--kube-api-burst=200")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	w.createPod(orphan("orphan", map[string]string{"app": "web"}))
	w.create("web", 3)
	w.settled("web", 3)
	w.patch(w.pods("web")[0].Name, `{"metadata":{"labels":{"app":"debug"}}}`)
	w.settled("web", 3)
	w.scale("web", 1)
	w.settled("web", 1)

	require.Equal(t, "ok\n", get(t, "http://"+metricsAddress+"/readyz"))
	numbers := get(t, "http://"+metricsAddress+"/metrics")
	require.Contains(t, numbers, `thermostat_reconcile_total{controller="replicaset",result="success"}`)
	require.Contains(t, numbers, `leader_election_master_status{name="thermostat-replicaset"} 1`)
	require.Contains(t, numbers, "go_goroutines")

	lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), "thermostat-replicaset",
		metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(*lease.Spec.HolderIdentity, "the-one_"), *lease.Spec.HolderIdentity)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), stderr.String())
	require.NotContains(t, stderr.String(), "forbidden")
	lease, err = w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), "thermostat-replicaset",
		metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, *lease.Spec.HolderIdentity, "the next one does not have to wait")
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}
