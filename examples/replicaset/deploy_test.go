package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These tests are about deploy/. They do without a container engine what can be done with its files: apply the
// manifests to a real API server, and run the command as the pods would, with the arguments and the rights that the
// manifests give it.

const repository = "../.."

// tool builds a tool of internal/tools and returns its path.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+repository+"/internal/tools/go.mod", "-n",
		name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(path))
}

// manifests are the objects of the kustomization, in the order in which they are to be applied.
func manifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	built, err := exec.CommandContext(t.Context(), tool(t, "kustomize"), "build", "deploy").Output()
	require.NoError(t, err)
	objects := decode(t, built)
	require.Greater(t, len(objects), 5)
	return objects
}

func decode(t *testing.T, documents []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := testcluster.Decode(documents)
	require.NoError(t, err)
	return objects
}

// find returns the one object of that kind, as T.
func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) (found T) {
	t.Helper()
	n := 0
	for _, o := range objects {
		if o.GetKind() == kind {
			n++
			require.NoError(t, kruntime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &found,
				true), "unknown fields")
		}
	}
	require.Equal(t, 1, n, kind)
	return found
}

// A recorder is a transport that notes what is refused.
type recorder struct {
	next http.RoundTripper

	mu sync.Mutex
	// Guarded by mu.
	refused   []string
	streaming bool // lists are streamed; otherwise this is an API server that does not know how
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper { r.next = next; return r }

func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	streaming := r.streaming
	r.mu.Unlock()
	if !streaming && req.URL.Query().Get("sendInitialEvents") != "" {
		return refuse(http.StatusUnprocessableEntity), nil
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil && (resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused = append(r.refused, req.Method+" "+req.URL.String())
	}
	return resp, err
}

// granted are the accesses that rules give.
func granted(rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, verb+" "+group+"/"+resource)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The manifests make a controller that makes its own pods, with the rights of its service account: nothing that it asks
// for is refused, and each right is used.
func TestDeployment(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	objects := manifests(t)
	require.NoError(t, cluster.Apply(t.Context(), objects...))
	bootstrap, err := os.ReadFile("deploy/bootstrap.yaml")
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), decode(t, bootstrap)...))
	deployment, account := find[appsv1.Deployment](t, objects, "Deployment"),
		find[corev1.ServiceAccount](t, objects, "ServiceAccount")
	first := find[corev1.Pod](t, decode(t, bootstrap), "Pod")
	require.Equal(t, account.Name, deployment.Spec.Template.Spec.ServiceAccountName)
	require.Equal(t, account.Name, first.Spec.ServiceAccountName)
	require.Equal(t, deployment.Spec.Template.Spec.Containers[0].Image, first.Spec.Containers[0].Image)

	client := cluster.Client()
	hour := int64(3600)
	token, err := client.CoreV1().ServiceAccounts(account.Namespace).CreateToken(t.Context(), account.Name,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour},
		}, metav1.CreateOptions{})
	require.NoError(t, err)
	recorder := &recorder{streaming: true}
	gateway := testbed.NewGateway(t, rest.AnonymousClientConfig(cluster.Config()), recorder.wrap)
	gateway.Config.BearerToken = token.Status.Token
	kubeconfig := testbed.KubeconfigOf(t, gateway.Config)
	run := func(container corev1.Container, more ...string) (end func()) {
		args := []string{"--kubeconfig", kubeconfig}
		for _, arg := range container.Args {
			args = append(args, strings.ReplaceAll(arg, "$(NAMESPACE)", account.Namespace))
		}
		cmd := newProcess(context.Background(), append(args, more...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		end = sync.OnceFunc(func() {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), stderr.String())
			require.NotContains(t, stderr.String(), "forbidden:")
		})
		t.Cleanup(end)
		return end
	}

	endFirst := run(first.Spec.Containers[0])
	require.Eventually(t, func() bool {
		d, err := client.AppsV1().Deployments(deployment.Namespace).Get(t.Context(), deployment.Name,
			metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == *deployment.Spec.Replicas
	}, 3*time.Minute, 100*time.Millisecond, "the pods of the Deployment should have been made")
	pods, err := client.CoreV1().Pods(deployment.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector)})
	require.NoError(t, err)
	require.Len(t, pods.Items, 3)
	budget := find[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		b, err := client.PolicyV1().PodDisruptionBudgets(budget.Namespace).Get(t.Context(), budget.Name,
			metav1.GetOptions{})
		require.NoError(c, err)
		require.Equal(c, []int32{3, 2, 1}, []int32{b.Status.CurrentHealthy, b.Status.DesiredHealthy,
			b.Status.DisruptionsAllowed}, "a node can be drained, and two stay")
	}, time.Minute, 100*time.Millisecond)
	policy := find[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy").Spec
	require.Equal(t, *deployment.Spec.Selector, policy.PodSelector, "the policy is for these pods")
	require.Equal(t, deployment.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort,
		policy.Ingress[0].Ports[0].Port.IntVal)
	endFirst()

	// Now as one of these, on an API server that does not stream lists.
	recorder.mu.Lock()
	recorder.streaming = false
	recorder.mu.Unlock()
	container := deployment.Spec.Template.Spec.Containers[0]
	host, port, err := net.SplitHostPort(strings.TrimPrefix(container.Args[1], "--metrics-bind-address="))
	require.NoError(t, err)
	require.True(t, net.ParseIP(host).IsUnspecified(),
		"%q is not what a kubelet can reach: it probes by the address of the pod", host)
	require.Equal(t, fmt.Sprint(container.Ports[0].ContainerPort), port)
	_, free, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	run(container, "--metrics-bind-address="+net.JoinHostPort(host, free))
	w := newWorld(t, cluster)
	w.createPod(orphan("orphan", map[string]string{"app": "web"}))
	w.create("web", 20) // more events than are kept apart
	w.settled("web", 20)
	w.scale("web", 1)
	w.settled("web", 1)
	w.scale("web", 2) // its Event is added to one that exists, by a patch
	w.settled("web", 2)
	leases := client.CoordinationV1().Leases(deployment.Namespace)
	all, err := leases.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, 2, "the table, and the Lease of a replica")
	for _, lease := range all.Items {
		if lease.Name != "thermostat-replicaset" { // the replica notices, and joins again
			require.NoError(t, leases.Delete(t.Context(), lease.Name, metav1.DeleteOptions{}))
		}
	}
	w.scale("web", 3)
	w.settled("web", 3)
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		require.Equal(t, "ok\n", get(t, "http://127.0.0.1:"+free+probe.HTTPGet.Path))
		require.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.StrVal)
	}

	rules := append(find[rbacv1.ClusterRole](t, objects, "ClusterRole").Rules,
		find[rbacv1.Role](t, objects, "Role").Rules...)
	used := func() (all []string) {
		for access := range gateway.Asked() {
			if access != "create authorization.k8s.io/selfsubjectaccessreviews" { // everybody's right
				all = append(all, access)
			}
		}
		slices.Sort(all)
		return all
	}
	require.Eventually(t, func() bool { return slices.Equal(granted(rules), used()) }, time.Minute,
		100*time.Millisecond,
		"granted: %q\nused: %q", granted(rules), used())
	require.Empty(t, recorder.refused)
}

// The image is what the Dockerfile says, as far as one can tell without making it: its build runs on the files that its
// build context has, and gives a static binary.
func TestDockerfile(t *testing.T) {
	t.Parallel() // the first time it compiles all that the command needs, without cgo
	text, err := os.ReadFile("deploy/Dockerfile")
	require.NoError(t, err)
	lines := strings.Split(strings.ReplaceAll(string(text), "\\\n", " "), "\n")
	one := func(prefix string) string {
		t.Helper()
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
		require.GreaterOrEqual(t, i, 0, prefix)
		return strings.TrimPrefix(lines[i], prefix)
	}
	gomod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(gomod), "\ngo "+strings.Fields(one("FROM --platform=$BUILDPLATFORM golang:"))[0]+".",
		"the compiler is the one that go.mod asks for")
	require.Contains(t, lines, "FROM scratch")
	require.Regexp(t, "^[1-9][0-9]*:[1-9][0-9]*$", one("USER "), "a number: kubelet has to see that it is not root")
	require.Equal(t, "/replicaset /replicaset", one("COPY --from=build "))
	require.Equal(t, `["/replicaset"]`, one("ENTRYPOINT "))

	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	require.NoError(t, err)
	build, ok := strings.CutPrefix(lines[0], "# ")
	require.True(t, ok)
	require.Contains(t, string(makefile), "\n\t"+build+"\n", "the Makefile builds it in the same way")

	sources, binary := t.TempDir(), filepath.Join(t.TempDir(), "replicaset")
	copyContext(t, "deploy/Dockerfile.dockerignore", sources)
	line := "CGO_ENABLED" + one("RUN CGO_ENABLED")
	require.Contains(t, line, "-o /replicaset ")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "-o /replicaset ", "-o '"+binary+"' ", 1))
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "GOFLAGS=-mod=readonly",
		"GOWORK=off")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	help, err := exec.CommandContext(t.Context(), binary, "--help").Output()
	require.NoError(t, err)
	require.Contains(t, string(help), "--leader-elect-resource-namespace")
	if runtime.GOOS == "linux" {
		f, err := elf.Open(binary)
		require.NoError(t, err)
		defer f.Close()
		require.False(t, slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }),
			"it needs no loader, so it is static")
	}
}

// copyContext copies what an ignore file lets into the build context. It understands as much of the format as ours
// uses: nothing but what is named, without tests.
func copyContext(t *testing.T, ignore, to string) {
	t.Helper()
	text, err := os.ReadFile(ignore)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	require.Equal(t, "*", lines[0])
	require.Equal(t, "**/*_test.go", lines[len(lines)-1])
	for _, line := range lines[1 : len(lines)-1] {
		name, ok := strings.CutPrefix(line, "!")
		require.True(t, ok, line)
		err := filepath.WalkDir(filepath.Join(repository, name), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			relative, err := filepath.Rel(repository, path)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			target := filepath.Join(to, relative)
			return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, content, 0o644))
		})
		require.NoError(t, err)
	}
}

// kind understands the configuration of the cluster, and kube-controller-manager the list of controllers in it. Where
// no container engine can be found, that is as far as kind comes.
func TestKindConfig(t *testing.T) {
	t.Parallel()
	kind := tool(t, "kind")
	create := func(config string) string {
		cmd := exec.CommandContext(t.Context(), kind, "create", "cluster", "--config", "-")
		cmd.Stdin, cmd.Env = strings.NewReader(config), []string{"PATH=/nowhere", "HOME=" + t.TempDir()}
		output, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(output)
	}
	text, err := os.ReadFile("deploy/kind.yaml")
	require.NoError(t, err)
	require.Contains(t, create(string(text)), `exec: "docker": executable file not found`)
	require.Contains(t, create("patches: []\n"+string(text)), "field patches not found",
		"it would have noticed a mistake")

	var cluster struct{ KubeadmConfigPatches []string }
	require.NoError(t, yaml.Unmarshal(text, &cluster))
	require.Len(t, cluster.KubeadmConfigPatches, 1)
	var patch struct {
		Kind              string
		ControllerManager struct{ ExtraArgs map[string]string }
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(cluster.KubeadmConfigPatches[0]), &patch))
	require.Equal(t, "ClusterConfiguration", patch.Kind)
	programs, err := testcluster.Assets(t.Context())
	require.NoError(t, err)
	startsWith := func(controllers string) string {
		// Its API server is not there; but first it looks at what it was told.
		kubeconfig := testbed.KubeconfigOf(t, &rest.Config{Host: "https://127.0.0.1:1"})
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "kube-controller-manager"), "--secure-port=0",
			"--leader-elect=false", "--kubeconfig="+kubeconfig, "--controllers="+controllers)
		output, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(output)
	}
	const unknown = "is not in the list of known controllers"
	require.NotContains(t, startsWith(patch.ControllerManager.ExtraArgs["controllers"]), unknown)
	require.Contains(t, startsWith("*,-replica-set"), unknown, "it would have noticed a mistake")
}
