package command

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

var testProgram = Program{Name: "gadget", Kind: "Gadget", About: "gadget is a test."}

func TestFlagDefaults(t *testing.T) {
	o, err := testProgram.ParseFlags(nil)
	require.NoError(t, err)
	require.Equal(t, Options{
		Workers: 5, QPS: 20, Burst: 30, MetricsAddress: "0", StartupTimeout: 30 * time.Second,
		LeaderElect: true, LeaseNamespace: "kube-system", LeaseName: "thermostat-gadget",
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}, o)
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--workers=0"}, "--workers=0: at least 1"},
		{[]string{"--workers=many"}, "--workers"},
		{[]string{"--kube-api-qps=0"}, "--kube-api-qps=0: must be more than 0"},
		{[]string{"--kube-api-qps=-3"}, "--kube-api-qps=-3: must be more than 0"},
		{[]string{"--kube-api-qps=NaN"}, "--kube-api-qps=NaN: must be more than 0"},
		{[]string{"--kube-api-burst=0"}, "--kube-api-burst=0: at least 1"},
		{[]string{"--startup-timeout=0s"}, "--startup-timeout=0s: must be more than 0"},
		{[]string{"--startup-timeout=5"}, "--startup-timeout"},
		{[]string{"--metrics-bind-address=8080"}, "--metrics-bind-address=8080: must be host:port"},
		{[]string{"--namespace=No Such"}, "--namespace=No Such: a lowercase"},
		{[]string{"--replicas=3"}, "unknown flag: --replicas"},
		{[]string{"--shards"}, "unknown flag: --shards"},
		{[]string{"web"}, `unexpected argument "web"`},
	} {
		_, err := testProgram.ParseFlags(c.args)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n", "one line is all that a user reads")
	}
}

// Only a program that says how its keys are cut has the flag.
func TestShardsAreAChoiceOfTheProgram(t *testing.T) {
	p := testProgram
	p.By = sharding.ByKey
	o, err := p.ParseFlags([]string{"--shards", "--leader-elect-resource-namespace=gadgets"})
	require.NoError(t, err)
	require.True(t, o.Shards)
	require.Contains(t, fmt.Sprint(p.Needs(o)["gadgets"]), "delete")
	_, err = p.ParseFlags([]string{"--shards"})
	require.ErrorContains(t, err, "--shards needs --leader-elect-resource-namespace: ")
	_, err = p.ParseFlags([]string{"--shards", "--leader-elect-resource-namespace=gadgets", "--leader-elect=false"})
	require.EqualError(t, err, "--shards needs --leader-elect: without it each replica would work on all objects")
}

func TestRestConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, server string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "`+server+`"}}]
contexts: [{name: x, context: {cluster: c}}]
current-context: x
`), 0o600))
		return path
	}
	t.Setenv("HOME", dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", write("from-environment", "https://environment.example"))

	cfg, err := Options{Kubeconfig: write("from-flag", "https://flag.example"), QPS: 7, Burst: 9}.restConfig()
	require.NoError(t, err)
	require.Equal(t, "https://flag.example", cfg.Host, "the flag goes before $KUBECONFIG")
	require.EqualValues(t, 7, cfg.QPS)
	require.Equal(t, 9, cfg.Burst)

	cfg, err = Options{}.restConfig()
	require.NoError(t, err)
	require.Equal(t, "https://environment.example", cfg.Host)

	_, err = Options{Kubeconfig: filepath.Join(dir, "nowhere")}.restConfig()
	require.ErrorContains(t, err, "nowhere")
	require.NotContains(t, err.Error(), "\n")

	t.Setenv("KUBECONFIG", filepath.Join(dir, "empty"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	_, err = Options{}.restConfig()
	require.ErrorContains(t, err, "no API server is configured")

	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	_, err = Options{}.restConfig()
	require.ErrorContains(t, err, "client configuration", "in a cluster, a missing token is not papered over")
}
