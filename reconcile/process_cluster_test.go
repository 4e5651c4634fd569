package reconcile_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestMain lets the test binary be a replica, for the tests that need processes.
func TestMain(m *testing.M) {
	if os.Getenv("REPLICA") == "" {
		os.Exit(m.Run())
	}
	if err := runReplica(os.Getenv("REPLICA")); err != nil {
		say("ends: %v", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func say(format string, args ...any) {
	fmt.Printf(time.Now().Format(time.RFC3339Nano)+" "+format+"\n", args...)
}

// The periods of the replicas: a short Lease, which a busy machine lets them keep, and little patience with what hangs.
const (
	replicaLease = 9 * time.Second
	replicaStops = time.Second
)

// runReplica runs a controller for one key until SIGTERM. While it is called it says so every few milliseconds; as
// "hanging" it never returns from that, and as a process with something left to do it ends a second after the Manager.
func runReplica(kind string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	elector, err := leaderelection.New(leaderelection.Config{
		REST: cfg, Namespace: os.Getenv("NAMESPACE"), Name: "lock", Identity: kind, SkipFirstWait: true,
		LeaseDuration: replicaLease, RenewDeadline: replicaLease / 2,
		RetryPeriod: 400 * time.Millisecond, StopGrace: replicaStops,
	})
	if err != nil {
		return err
	}
	cfg.Wrap(reconcile.TrackWrites)
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(os.Getenv("NAMESPACE"))
	maps, err := informer.New[*corev1.ConfigMap](client, informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		return err
	}
	hangs := func(context.Context, reconcile.Key) (reconcile.Result, error) {
		for {
			say("reconciles")
			time.Sleep(10 * time.Millisecond)
			if kind != "hanging" {
				return reconcile.Result{}, nil
			}
		}
	}
	c, err := reconcile.NewController("maps", reconcile.Func(hangs), reconcile.Options{})
	if err != nil {
		return err
	}
	reconcile.For(c, maps)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c}, Elector: elector, DrainTimeout: replicaStops, StopGrace: replicaStops,
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { say("is told to stop") })
	say("starts")
	err = m.Run(ctx)
	say("Run has returned: %v", err)
	if kind == "hanging" {
		time.Sleep(time.Second)
	}
	return err
}

// TestTheNextProcessWaitsForAReconcileThatHangs has two processes, of which the first leads, hangs in a call of
// Reconcile, and is told to stop. It may not hand its Lease over: the second begins when that has run out, and by then
// the first has ended.
func TestTheNextProcessWaitsForAReconcileThatHangs(t *testing.T) {
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	cfg, err := cluster.ServiceAccount(t.Context(), namespace,
		rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "create", "update", "watch"},
		},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}})
	require.NoError(t, err)
	a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	_, err = cluster.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), a, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, testcluster.WriteKubeconfig(kubeconfig, cfg))
	binary, err := os.Executable()
	require.NoError(t, err)
	run := func(kind string) *testcluster.Process {
		p, err := cluster.Run(t.Context(), testcluster.Command{Name: namespace + "-" + kind, Path: binary,
			Env: []string{
				"REPLICA=" + kind, "KUBECONFIG=" + kubeconfig, "NAMESPACE=" + namespace,
			}})
		require.NoError(t, err)
		return p
	}
	// said returns when a process has said something.
	said := func(p *testcluster.Process, what string) (times []time.Time) {
		log, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`(?m)^(20\S+Z|20\S+[+-]\d\d:\d\d) `+what).FindAllSubmatch(log, -1) {
			at, err := time.Parse(time.RFC3339Nano, string(line[1]))
			require.NoError(t, err)
			times = append(times, at)
		}
		return times
	}
	await := func(p *testcluster.Process, what string) time.Time {
		require.Eventually(t, func() bool { return len(said(p, what)) > 0 }, time.Minute, 20*time.Millisecond, what)
		return said(p, what)[0]
	}

	first := run("hanging")
	await(first, "reconciles")
	second := run("waiting")
	await(second, "starts")
	require.Eventually(t, func() bool { // it sees the Lease, and so would take it at once
		log, err := os.ReadFile(second.Log)
		return err == nil && regexp.MustCompile("The lease has a new holder").Match(log)
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, first.Terminate(t.Context()))
	told := await(first, "is told to stop")
	begins := await(second, "reconciles")
	lease, err := cluster.Client().CoordinationV1().Leases(namespace).Get(t.Context(), "lock", metav1.GetOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status, err := first.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "exit status 1", status, "who gets ErrStuck exits")
	require.NoError(t, second.Terminate(t.Context()))
	status, err = second.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "exit status 0", status)

	returned := await(first, "Run has returned")
	worked := said(first, "reconciles")
	for _, p := range []*testcluster.Process{first, second} {
		log, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		line := regexp.MustCompile(`^\S+ reconciles\n`)
		log = regexp.MustCompile(`(?m)(^\S+ reconciles\n)+`).ReplaceAllFunc(log, func(lines []byte) []byte {
			return append(line.Find(lines), "... and so on\n"...)
		})
		t.Logf("%s:\n%s", p.Name, log)
	}
	t.Logf("the first was told to stop, and worked for %s more; its Run returned after %s; the second began after %s",
		worked[len(worked)-1].Sub(told), returned.Sub(told), begins.Sub(told))
	require.Regexp(t, "^waiting_", *lease.Spec.HolderIdentity)
	require.EqualValues(t, 1, *lease.Spec.LeaseTransitions, "it was taken once, from the first")
	require.GreaterOrEqual(t, begins.Sub(returned), replicaLease-replicaLease/2, "the last renewal was not older")
	require.True(t, begins.After(worked[len(worked)-1]), "the second began while the first worked")
}
