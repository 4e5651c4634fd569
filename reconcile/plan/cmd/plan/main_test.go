package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// With this variable set the test binary is the program that is planned. Its value says what the program does.
const asProgram = "PLAN_TEST_PROGRAM"

func TestMain(m *testing.M) {
	does := os.Getenv(asProgram)
	if does == "" {
		os.Exit(m.Run())
	}
	if err := beProgram(does); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func beProgram(does string) error {
	if does == "fails" {
		return fmt.Errorf("this program fails")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if does == "looks around" {
		return lookAround()
	}
	if does == "reads an argument" {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: os.Args[len(os.Args)-1]}
		os.Unsetenv("KUBECONFIG")
	}
	if does == "reads the home folder" {
		home, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.Join(home, ".kube", "config")}
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return err
	}
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
	if does == "is refused" {
		_, err := maps.Patch(context.Background(), "a", "none/such", nil, metav1.PatchOptions{})
		if err == nil {
			return fmt.Errorf("it is not refused")
		}
		return nil
	}
	if os.Getenv("KUBECONFIG") != "" && !program.Planned(context.Background()) {
		return fmt.Errorf("it does not know that it is planned")
	}
	if os.Getenv("KUBERNETES_MASTER")+os.Getenv("OPERATOR_API")+os.Getenv("OPERATOR_CONFIG") != "" {
		return fmt.Errorf("the environment leads to the cluster")
	}
	if does == "reads" {
		_, err := maps.List(context.Background(), metav1.ListOptions{})
		return err
	}
	if does == "goes elsewhere" {
		connection, err := net.Dial("tcp", os.Getenv(elsewhere))
		if err != nil {
			return err
		}
		defer connection.Close()
		if _, err := maps.List(context.Background(), metav1.ListOptions{}); err != nil {
			return err
		}
		select {}
	}
	_, err = maps.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}},
		metav1.CreateOptions{})
	if does != "goes on" || err != nil {
		return err
	}
	fmt.Println("the program goes on")
	select {}
}

// elsewhere names an address that is not the fork's.
const elsewhere = "PLAN_TEST_ELSEWHERE"

// newCluster returns a cluster in memory, its address, and a kubeconfig with the context prod.
func newCluster(t *testing.T) (server *reconciletest.Server, address, kubeconfig string) {
	server = reconciletest.NewServer(t, reconciletest.Options{})
	address = server.Link().Listen().Host
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config",
		"current-context": "prod",
		"clusters": [{"name": "a", "cluster": {"server": %q}}],
		"contexts": [{"name": "prod", "context": {"cluster": "a", "user": ""}}]}`, address), 0o600))
	return server, address, kubeconfig
}

func TestTheCommand(t *testing.T) {
	server, address, cluster := newCluster(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1") // as in a pod
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	t.Setenv("KUBERNETES_MASTER", address)
	t.Setenv("OPERATOR_API", address+"/")
	t.Setenv("OPERATOR_CONFIG", cluster)
	written := server.Version()
	for does, want := range map[string]struct {
		code int
		says string
	}{
		"reads":                 {0, "no changes"},
		"writes":                {2, "create ConfigMap default/made"},
		"reads the home folder": {2, "create ConfigMap default/made"},
		"reads an argument":     {2, "create ConfigMap default/made"},
		"goes on":               {2, "create ConfigMap default/made"},
		"is refused":            {1, "1 refused request"},
		"fails":                 {1, ""},
	} {
		t.Setenv(asProgram, does)
		var out, errOut bytes.Buffer
		code, err := run(t.Context(), []string{"-kubeconfig", cluster, "-context", "prod", "-quiet", "5s", "--",
			os.Args[0], "--kubeconfig", "{kubeconfig}"}, &out, &errOut)
		require.Equal(t, want.code, code, "%s: %v %s", does, err, errOut.String())
		require.Contains(t, out.String(), want.says, does)
		require.Equal(t, want.code == 1, err != nil)
		if does == "goes on" {
			require.Contains(t, errOut.String(), does, "what the program prints is shown")
		}
	}
	for _, args := range [][]string{{"--kubeconfig", cluster}, {"-kubeconfig=" + cluster}, {"--master=x"},
		{"--master"}, {"--apiserver=https://prod"}, {cluster}, {"--cfg=" + cluster}, {"--x=" + address + "/y"}} {
		var out strings.Builder
		args = append([]string{"-kubeconfig", cluster, "-context", "prod", "--", "x"}, args...)
		code, err := run(t.Context(), args, &out, &out)
		require.Equal(t, 1, code)
		require.ErrorContains(t, err, "leads past the fork")
	}
	require.Equal(t, written, server.Version())
	t.Setenv(asProgram, "writes")
	for format, want := range map[string]string{"markdown": "- create ConfigMap default/made", "json": `"wave": 1`,
		"html": "<bdi>ConfigMap default/made</bdi>"} {
		var out bytes.Buffer
		code, err := run(t.Context(), []string{"-kubeconfig", cluster, "-context", "prod", "-o", format, "--",
			os.Args[0]}, &out, os.Stderr)
		require.NoError(t, err)
		require.Equal(t, 2, code)
		require.Contains(t, out.String(), want)
		if format == "json" {
			require.NoError(t, json.Unmarshal(out.Bytes(), &plan.Report{}))
		}
	}
}

func TestTheCommandComparesReports(t *testing.T) {
	change := func(wave int, name string) plan.Change {
		return plan.Change{Wave: wave, Verb: "create", Fields: []plan.Field{{Path: "data[n]", New: "1"}},
			Object: plan.Object{APIVersion: "v1", Kind: "ConfigMap", Name: name}}
	}
	file := func(changes ...plan.Change) string {
		data, err := json.Marshal(plan.Report{Settled: true, Changes: changes})
		require.NoError(t, err)
		name := filepath.Join(t.TempDir(), "report.json")
		require.NoError(t, os.WriteFile(name, data, 0o600))
		return name
	}
	now, next := file(change(1, "a")), file(change(1, "b"), change(2, "a"))
	var out strings.Builder
	code, err := run(t.Context(), []string{"diff", now, next}, &out, os.Stderr)
	require.NoError(t, err)
	require.Equal(t, 2, code)
	require.Contains(t, out.String(), "create ConfigMap b")
	require.Greater(t, strings.Index(out.String(), "create ConfigMap a"), strings.Index(out.String(), "\nAnyway"))
	code, err = run(t.Context(), []string{"diff", next, next}, &out, os.Stderr)
	require.NoError(t, err)
	require.Zero(t, code)
}

// TestReportsOfTwoClustersAreNotTheSame has reports without changes.
func TestReportsOfTwoClustersAreNotTheSame(t *testing.T) {
	var files []string
	for _, server := range []string{"https://a", "https://b"} {
		name := filepath.Join(t.TempDir(), "report.json")
		data := fmt.Appendf(nil, `{"settled": true, "setup": {"server": %q}}`, server)
		require.NoError(t, os.WriteFile(name, data, 0o600))
		files = append(files, name)
	}
	var out strings.Builder
	code, err := run(t.Context(), []string{"diff", files[0], files[1]}, &out, os.Stderr)
	require.ErrorContains(t, err, "of the other report: it is of another cluster")
	require.Equal(t, failed, code)
}

func TestAClusterIsNamedWithoutAUser(t *testing.T) {
	for host, want := range map[string]string{"https://token:pass@a:6443": "https://a:6443", "https://a": "https://a",
		"token@10.0.0.1:6443": "10.0.0.1:6443", "10.0.0.1:6443": "10.0.0.1:6443"} {
		require.Equal(t, want, withoutUser(host))
	}
}

func TestTheCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"-o", "yaml", "--", "true"}, {"-no-such-flag"},
		{"-kubeconfig", os.DevNull, "--", "true"}} {
		var out, errOut strings.Builder
		code, err := run(t.Context(), args, &out, &errOut)
		require.Equal(t, 1, code, args)
		require.Error(t, err)
		require.Empty(t, out.String())
	}
	var out, errOut strings.Builder
	code, err := run(t.Context(), []string{"rights"}, &out, &errOut)
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, plan.ReadRole, out.String())
	out.Reset()
	_, err = run(t.Context(), []string{"-admission", "rights"}, &out, &errOut)
	require.NoError(t, err)
	require.Equal(t, plan.ReadRole+"---\n"+plan.AdmitRole, out.String())
}

// TestACommandIsNoProgram has the names of the commands, of which diff is a program as well on most machines.
func TestACommandIsNoProgram(t *testing.T) {
	_, _, cluster := newCluster(t)
	for _, args := range [][]string{{"diff"}, {"diff", "a"}, {"diff", "a", "b", "c"}, {"rights", "a"},
		{"-kubeconfig", cluster, "diff", "a"}, {"diff", "-kubeconfig", cluster, "a"}} {
		var out, errOut strings.Builder
		code, err := run(t.Context(), args, &out, &errOut)
		require.Equal(t, failed, code)
		require.ErrorContains(t, err, "for a program of this name: plan [flags] -- ", args)
		require.Empty(t, errOut.String(), "nothing was started")
	}
	for _, command := range []string{"diff", "rights"} {
		var out, errOut strings.Builder
		code, err := run(t.Context(), []string{command, "--help"}, &out, &errOut)
		require.ErrorIs(t, err, flag.ErrHelp)
		require.Equal(t, nothing, code)
		require.Contains(t, errOut.String(), "needs -- before it")
	}
	report := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, os.WriteFile(report, []byte(`{"settled": true}`), 0o600))
	var out strings.Builder
	_, err := run(t.Context(), []string{"diff", "-o", "html", report, report}, &out, os.Stderr)
	require.NoError(t, err)
	require.Contains(t, out.String(), "<html", "a flag after the name")

	t.Setenv(asProgram, "reads")
	folder := t.TempDir()
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(folder, "diff")))
	t.Setenv("PATH", folder)
	out.Reset()
	code, err := run(t.Context(), []string{"-kubeconfig", cluster, "-quiet", "5s", "--", "diff", "a", "b"}, &out,
		os.Stderr)
	require.NoError(t, err)
	require.Equal(t, nothing, code)
	require.Contains(t, out.String(), "diff on a fork of http")
	require.Contains(t, out.String(), ", context prod; still world; done after 5s of quiet; ended after 5m0s")
}
