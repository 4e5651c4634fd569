package processnode_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// A test of an operator has a cluster whose only nodes are those of the pool. It runs the operator's pods, and kills
// what the operator should mend.
func ExampleNew() {
	var t *testing.T // that of your test

	c := cluster.New(t, cluster.Options{DisableNode: true})
	image, err := processnode.BuildPackage(t.Context(), t.TempDir(), "./cmd/database")
	if err != nil {
		t.Fatal(err)
	}
	pool := processnode.New(t, c, processnode.Options{
		Nodes: 3, AllPods: true, Images: map[string]processnode.Image{"example.com/database:v1": image},
	})
	// ... start the operator, and wait until the database is ready
	member := types.NamespacedName{Namespace: "default", Name: "database-0"}
	if err := pool.Kill(t.Context(), member, "database"); err != nil {
		t.Fatal(err)
	}
	if err := pool.Nodes()[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The images of a demo are two versions of a published program.
func ExampleBuildModules() {
	ctx := context.Background()
	images := map[string]processnode.Image{}
	for _, version := range []string{"v3.5.35", "v3.6.16"} {
		image, err := processnode.BuildModules(ctx, nil, "etcd", map[string]string{
			"etcd":    "go.etcd.io/etcd/server/v3@" + version,
			"etcdctl": "go.etcd.io/etcd/etcdctl/v3@" + version,
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		images["quay.io/coreos/etcd:"+version] = image
	}
	c, err := cluster.Start(ctx, cluster.Options{DisableNode: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer c.Close()
	pool, err := processnode.Start(ctx, c, processnode.Options{Nodes: 3, AllPods: true, Images: images})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer pool.Close()
	fmt.Println("export KUBECONFIG=" + c.Kubeconfig())
}

// A real etcd keeps its data over kill -9, and answers probes and commands.
func TestEtcd(t *testing.T) {
	t.Parallel()
	const version = "@v3.6.16"
	image, err := processnode.BuildModules(t.Context(), nil, "etcd", map[string]string{
		"etcd":    "go.etcd.io/etcd/server/v3" + version,
		"etcdctl": "go.etcd.io/etcd/etcdctl/v3" + version,
		"etcdutl": "go.etcd.io/etcd/etcdutl/v3" + version,
	})
	require.NoError(t, err)
	w := newWorldOn(t, cluster.Shared(t), processnode.Options{Images: map[string]processnode.Image{"etcd": image}})
	pod := w.pod("etcd", "--name=$(NAME)", "--data-dir=/data/etcd", "--log-level=warn",
		"--listen-client-urls=http://$(IP):2379", "--advertise-client-urls=http://$(IP):2379",
		"--listen-peer-urls=http://$(IP):2380", "--initial-advertise-peer-urls=http://$(IP):2380",
		"--initial-cluster=$(NAME)=http://$(IP):2380")
	w.claim(pod, "disk")
	c := &pod.Spec.Containers[0]
	c.Image, c.Command = "etcd", []string{"/usr/local/bin/etcd"}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	c.Env = []corev1.EnvVar{{Name: "NAME", ValueFrom: field("metadata.name")},
		{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "ETCDCTL_ENDPOINTS", Value: "http://$(IP):2379"}}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(2379), Path: "/readyz"}}}
	w.create(pod)
	w.until("etcd", "ready", ready)
	_, err = w.pool.Exec(t.Context(), w.key("etcd"), "", "etcdctl", "--dial-timeout=1m",
		"--command-timeout=1m", "put", "key", "value")
	require.NoError(t, err)
	require.NoError(t, w.pool.Kill(t.Context(), w.key("etcd"), ""))
	w.until("etcd", "restarted", restarts(1))
	out, err := w.pool.Exec(t.Context(), w.key("etcd"), "", "etcdctl", "--dial-timeout=1m",
		"--command-timeout=1m", "get", "key", "--print-value-only")
	require.NoError(t, err)
	require.Equal(t, "value\n", out)
}
