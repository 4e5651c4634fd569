package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
	"github.com/thermostat-go/thermostat/examples/cronbackup/deploy"
	"github.com/thermostat-go/thermostat/examples/internal/operatortest"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

// start runs the operator without listening on the network.
func start(ctx context.Context, cfg *rest.Config) error {
	return run(ctx, cfg, options{image: "backup:1", backup: []string{"backup"}, cleanup: []string{"cleanup"},
		address: "0", webhookAddress: "0"})
}

// startWithWebhooks runs it with its webhooks, which a server in memory calls.
func startWithWebhooks(ctx context.Context, cfg *rest.Config) error {
	return run(ctx, cfg, options{image: "backup:1", backup: []string{"backup"}, cleanup: []string{"cleanup"},
		address: "0", webhookAddress: ":9443", webhookHosts: []string{"cronbackup.cronbackup.svc"},
		lifetimes: webhook.Lifetimes{CA: 12 * time.Hour, Leaf: time.Hour}})
}

func TestInMemory(t *testing.T) { cronbackuptest.InMemory(t, start) }

func TestOnACluster(t *testing.T) { cronbackuptest.OnCluster(t, start) }

// TestTheManifestsAreAccepted applies them all: the Deployment meets the security standard of its namespace.
func TestTheManifestsAreAccepted(t *testing.T) {
	c := cluster.Shared(t)
	cronbackuptest.Install(t, c)
	operatortest.Install(t, c, deploy.Manifests, "deployment.yaml", "sample.yaml")
}

func TestMetricsAndHealthAreServed(t *testing.T) {
	server := reconciletest.NewServer(t, cronbackuptest.ServerOptions(cronbackuptest.Manifests(t)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, server.LinkAs(cronbackuptest.Account).Config(), options{image: "backup:1", address: address,
			webhookAddress: "0"})
	}()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, time.Minute,
		20*time.Millisecond)
	code, _ := get("/healthz")
	require.Equal(t, http.StatusOK, code)
	code, text := get("/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, `name="cronbackup"`)
	stop()
	require.NoError(t, <-ended)
}

// TestARightIsMissing: the operator says so before it does anything.
func TestARightIsMissing(t *testing.T) {
	manifests := cronbackuptest.Manifests(t)
	change(t, manifests, "rbac.yaml", "verbs: [create, patch]", "verbs: [patch]")
	server := reconciletest.NewServer(t, cronbackuptest.ServerOptions(manifests))
	link := server.LinkAs(cronbackuptest.Account)
	require.ErrorContains(t, start(t.Context(), link.Config()),
		`{apiGroups: [""], resources: ["events"], verbs: ["create"]}`)
	for _, r := range link.Requests() {
		require.Contains(t, r.String(), "selfsubjectaccessreviews")
	}
}

// TestACronBackupThatDoesNotFit has an object that an earlier definition has let pass. An Event says which field is
// wrong, and its CronJob stays as it is.
func TestACronBackupThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manifests := cronbackuptest.Manifests(t)
		change(t, manifests, "backups.example.com_cronbackups.yaml", `                default: 7
                description: RetentionDays is how many days a backup is kept. The
                  backup program deletes older ones.
                format: int32
                maximum: 9999
                minimum: 1
                type: integer
`, `                x-kubernetes-int-or-string: true
`)
		server := reconciletest.NewServer(t, cronbackuptest.ServerOptions(manifests))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- start(ctx, server.LinkAs(cronbackuptest.Account).Config()) }()
		backups := resource[*unstructured.Unstructured](t, server, v1.GroupVersion.WithResource("cronbackups"))
		spec := map[string]any{"schedule": "@daily", "targetDatabase": "orders", "retentionDays": int64(7)}
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetGroupVersionKind(v1.GroupVersion.WithKind("CronBackup"))
		o.SetName("a")
		_, err := backups.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		cronJobs := resource[*batchv1.CronJob](t, server, batchv1.SchemeGroupVersion.WithResource("cronjobs"))
		before, err := cronJobs.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		_, err = backups.Patch(t.Context(), "a", types.MergePatchType,
			[]byte(`{"spec":{"retentionDays":"many","schedule":"@weekly"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		after, err := cronJobs.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, before.ResourceVersion, after.ResourceVersion)
		list, err := resource[*corev1.Event](t, server, corev1.SchemeGroupVersion.WithResource("events")).
			List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		var said []string
		for _, e := range list.Items {
			if e.Reason == v1.ReasonInvalid {
				said = append(said, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+": "+e.Message)
			}
		}
		require.Len(t, said, 1)
		require.Contains(t, said[0], "CronBackup a: ")
		require.Contains(t, said[0], "retentionDays")
		require.NotContains(t, said[0], "many")
		stop()
		require.NoError(t, <-ended)
	})
}

// change replaces a text in a file.
func change(t *testing.T, folder, name, old, new string) {
	file := filepath.Join(folder, name)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o600))
}

// resource returns a client of the server in the namespace default.
func resource[T informer.Object](t *testing.T, server *reconciletest.Server,
	gvr schema.GroupVersionResource) *informer.Resource[T] {
	client, err := informer.NewResource[T](server.Config(), gvr, informer.ResourceOptions{})
	require.NoError(t, err)
	return client.In("default")
}
