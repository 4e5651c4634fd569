package reconciletest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const kubectlManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "*/5 * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "busybox:1"}]}}}}
`

// kubectl runs kubectl against a server in memory.
type kubectl struct {
	binary, server, home string
}

func newKubectl(t *testing.T, server string) kubectl {
	programs, err := testcluster.Assets(t.Context())
	require.NoError(t, err)
	return kubectl{filepath.Join(programs, "kubectl"), server, t.TempDir()}
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(
		ctx,
		k.binary,
		append([]string{"--server", k.server, "--kubeconfig", os.DevNull}, args...)...)
	c.Env = append(os.Environ(), "HOME="+k.home, "KUBERC=off")
	return c
}

// run returns what kubectl prints, and its exit code.
func (k kubectl) run(t *testing.T, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := k.command(ctx, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	require.NoError(t, err)
	return string(out), 0
}

// TestKubectl runs commands of kubectl one after the other, and looks for texts in what they print. The table in doc.go
// is made of it.
func TestKubectl(t *testing.T) {
	s := NewServer(t, Options{Resources: customResources()})
	k := newKubectl(t, s.Link().Listen().Host)
	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(kubectlManifest), 0o600))
	changed := filepath.Join(t.TempDir(), "changed.yaml")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(kubectlManifest, "nginx:1", "nginx:2", 1)), 0o600))

	for _, one := range []struct {
		args string
		code int
		want []string
	}{
		{"version", 0, []string{"Server Version: v1.37.1"}},
		{"api-versions", 0, []string{"autoscaling/v2", "batch/v1", "corpus.example.com/v1"}},
		{"api-resources --no-headers", 0, []string{"deployments", "deploy", "horizontalpodautoscalers", "cronjobs",
			"cj", "persistentvolumeclaims", "Gadget"}},
		{"apply -f " + manifest, 0, []string{"deployment.apps/web created", "cronjob.batch/tick created"}},
		{"apply -f " + manifest, 0, []string{"deployment.apps/web unchanged", "cronjob.batch/tick unchanged"}},
		{"get deploy,cj", 0, []string{"NAME", "deployment.apps/web", "cronjob.batch/tick"}},
		{"get all -o name", 0, []string{"deployment.apps/web", "cronjob.batch/tick"}},
		{"get deploy web -o jsonpath={.spec.replicas}", 0, []string{"2"}},
		{"describe deploy web", 0, []string{"StrategyType:           RollingUpdate", "Image:         nginx:1",
			"2 desired"}},
		{"describe cronjob tick", 0, []string{"Schedule:                      */5 * * * *"}},
		{"diff -f " + manifest, 0, nil},
		{"diff -f " + changed, 1, []string{"-      - image: nginx:1", "+      - image: nginx:2"}},
		{"apply --server-side -f " + changed, 0, []string{"deployment.apps/web serverside-applied"}},
		{"apply --server-side --field-manager=other -f " + manifest, 1,
			[]string{`conflict with "kubectl"`, ".spec.template.spec.containers"}},
		{"apply --server-side --force-conflicts -f " + changed, 0, []string{"deployment.apps/web serverside-applied"}},
		{"apply --server-side --dry-run=server -f " + changed, 0,
			[]string{"deployment.apps/web serverside-applied (server dry run)"}},
		{"set image deploy/web c=nginx:3", 0, []string{"deployment.apps/web image updated"}},
		{"label deploy web x=y", 0, []string{"deployment.apps/web labeled"}},
		{"annotate deploy web x=y", 0, []string{"deployment.apps/web annotated"}},
		{`patch cj tick -p {"spec":{"suspend":true}}`, 0, []string{"cronjob.batch/tick patched"}},
		{"scale deploy web --replicas=3", 0, []string{"deployment.apps/web scaled"}},
		{"scale deploy web --current-replicas=2 --replicas=1", 1, []string{"Expected replicas to be 2, was 3"}},
		{"autoscale deploy web --max=4", 0, []string{"horizontalpodautoscaler.autoscaling/web autoscaled"}},
		{"create job once --from=cronjob/tick", 0, []string{"job.batch/once created"}},
		{"create configmap a --from-literal=x=1", 0, []string{"configmap/a created"}},
		{"wait --for=jsonpath={.data.x}=1 configmap/a", 0, []string{"configmap/a condition met"}},
		{"auth can-i create deployments", 0, []string{"yes"}},
		{"rollout pause deploy web", 0, []string{"deployment.apps/web paused"}},
		{"rollout resume deploy web", 0, []string{"deployment.apps/web resumed"}},
		{"rollout status deploy web --timeout=5s", 1,
			[]string{"Waiting for deployment spec update to be observed...", "timed out"}},
		{"explain deployment", 0, []string{"GROUP:      apps", "KIND:       Deployment", "VERSION:    v1"}},
		// There are no schemas of built-in kinds.
		{"explain deployment.spec", 1, []string{`field "spec" does not exist`}},
		{"explain backup.spec.retention", 0, []string{"KIND:       Backup", "days", "<integer>"}},
		{"delete job once", 0, []string{`job.batch "once" deleted`}},
		{"delete -f " + manifest, 0, []string{`deployment.apps "web" deleted`, `cronjob.batch "tick" deleted`}},
		{"get deploy web", 1, []string{`deployments.apps "web" not found`}},
		{"delete configmap --all", 0, []string{`configmap "a" deleted`}},
		{"cluster-info", 0, []string{"Kubernetes control plane is running at http://"}},
		{"top pods", 1, []string{"Metrics API not available"}},
	} {
		out, code := k.run(t, strings.Fields(one.args)...)
		assert.Equal(t, one.code, code, "%s: %s", one.args, out)
		for _, want := range one.want {
			assert.Contains(t, out, want, one.args)
		}
		if one.want == nil {
			assert.Empty(t, out, one.args)
		}
	}
}

// TestKubectlWaits has kubectl watch while somebody else writes.
func TestKubectlWaits(t *testing.T) {
	s := NewServer(t, Options{})
	k := newKubectl(t, s.Link().Listen().Host)
	clients := clientset(t, s.Config())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	create(t, clients, "first")
	watching := k.command(ctx, "get", "configmaps", "--watch", "-o", "name")
	out, err := watching.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, watching.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "configmap/first", lines.Text())
	create(t, clients, "second")
	require.True(t, lines.Scan())
	require.Equal(t, "configmap/second", lines.Text())
	require.NoError(t, watching.Process.Kill())
	_ = watching.Wait() // it was killed

	text, code := k.run(t, "create", "deployment", "web", "--image=nginx:1")
	require.Zero(t, code, text)
	status := k.command(ctx, "rollout", "status", "deployment", "web")
	var printed bytes.Buffer
	status.Stdout = &printed
	require.NoError(t, status.Start())
	rollOut(t, clients)
	require.NoError(t, status.Wait())
	require.Contains(t, printed.String(), `deployment "web" successfully rolled out`)
}

// rollOut does what the controller of Deployments does at the end.
func rollOut(t *testing.T, clients kubernetes.Interface) {
	d, err := clients.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation, 1, 1
	d.Status.ReadyReplicas, d.Status.AvailableReplicas = 1, 1
	_, err = clients.AppsV1().Deployments("default").UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
}
