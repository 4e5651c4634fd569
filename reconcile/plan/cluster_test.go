package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/netproxy"
	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

type assertCollect = assert.CollectT

func resourceOf(s string) resource.Quantity { return resource.MustParse(s) }

// auditedCluster is a control plane with a second API server, whose audit log has all of its requests. The plans of a
// test go to that one, and all else to the first.
type auditedCluster struct {
	*cluster.Cluster
	reader *rest.Config // of an account that may do everything, at the second API server
	log    string
}

// audited returns the one that all tests of the process share, and lets the test run beside others.
func audited(t *testing.T) *auditedCluster {
	t.Parallel()
	c := shared(t)
	require.NotNil(t, c, "it could not be started for another test")
	return c
}

var started struct {
	sync.Once
	c *auditedCluster
}

func shared(t *testing.T) *auditedCluster {
	started.Do(func() { started.c = startAudited(t) })
	return started.c
}

func startAudited(t *testing.T) *auditedCluster {
	c := &auditedCluster{Cluster: cluster.Shared(t)}
	dir, err := os.MkdirTemp("", "audit-")
	require.NoError(t, err)
	c.log = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+
		"omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600))
	port, err := netproxy.ReservePort()
	require.NoError(t, err)
	binaries, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	in := func(path ...string) string { return filepath.Join(append([]string{c.Dir()}, path...)...) }
	_, err = c.Run(t.Context(), cluster.Command{Name: "audited", Path: filepath.Join(binaries, "kube-apiserver"),
		Args: []string{
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			"--etcd-servers=unix://" + in("etcd", "client"),
			"--tls-cert-file=" + in("pki", "apiserver.crt"), "--tls-private-key-file=" + in("pki", "apiserver.key"),
			"--client-ca-file=" + in("pki", "ca.crt"), "--authorization-mode=Node,RBAC",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + in("pki", "service-account.key"),
			"--service-account-signing-key-file=" + in("pki", "service-account.key"),
			"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
			"--audit-log-path=" + c.log, "--audit-policy-file=" + policy, "--audit-log-mode=blocking",
		}})
	require.NoError(t, err)
	c.reader = rest.CopyConfig(c.Config())
	c.reader.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	client, err := rest.HTTPClientFor(c.reader)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		resp, err := client.Get(c.reader.Host + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 5*time.Minute, 100*time.Millisecond) // on a machine with much else to do
	return c
}

// asker is the user agent of plans that may send dry runs.
const asker = "plan-with-admission"

// requireNoWrites reads the audit log: those who planned have sent requests, and not one that is no get or list, or a
// dry run of a plan that may send such. It returns how many of these there were.
func (c *auditedCluster) requireNoWrites(t *testing.T) (dryRuns int) {
	log, err := os.ReadFile(c.log)
	require.NoError(t, err)
	reads := 0
	for line := range strings.Lines(string(log)) {
		if !strings.HasSuffix(line, "\n") { // another test's request is being logged
			break
		}
		var e struct {
			Verb, RequestURI, UserAgent string
			User                        struct{ Username string }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		if e.User.Username == "system:apiserver" { // it writes about itself
			continue
		}
		if e.UserAgent == asker && strings.Contains(e.RequestURI, "dryRun=All") {
			dryRuns++
			continue
		}
		require.Contains(t, []string{"get", "list"}, e.Verb, line)
		require.NotContains(t, e.RequestURI, "dryRun", line)
		reads++
	}
	require.NotZero(t, reads)
	t.Logf("the audit log has %d requests of plans, %d dry runs, and no write", reads, dryRuns)
	return dryRuns
}

// TestAnOperatorIsPlanned has two versions of examples/cronbackup, which are two images for its backups. The second one
// is planned while the first one runs and leads.
func TestAnOperatorIsPlanned(t *testing.T) {
	c := audited(t)
	const deploy = "../../examples/cronbackup/deploy/"
	for _, name := range []string{"namespace.yaml", "rbac.yaml", "backups.example.com_cronbackups.yaml"} {
		data, err := os.ReadFile(deploy + name)
		require.NoError(t, err)
		objects, err := cluster.Decode(data)
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), objects...))
	}
	sample, err := os.ReadFile(deploy + "sample.yaml")
	require.NoError(t, err)
	for n := range 3 {
		objects, err := cluster.Decode(bytes.ReplaceAll(sample, []byte("orders"), fmt.Appendf(nil, "orders-%d", n)))
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), objects...))
	}
	binary := filepath.Join(t.TempDir(), "cronbackup")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../examples/cronbackup")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	start := func(name, image string) *cluster.Process {
		p, err := c.Run(t.Context(), cluster.Command{Name: name, Path: binary,
			Args: []string{"--kubeconfig", c.Kubeconfig(), "--http-address=0", "--image=" + image}})
		require.NoError(t, err)
		return p
	}
	first := start("first", "backup:1")
	t.Cleanup(func() { _ = first.Kill(context.Background()) }) // it may have ended
	require.EventuallyWithT(t, func(t *assertCollect) {
		jobs, err := c.Client().BatchV1().CronJobs("default").List(context.Background(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, jobs.Items, 3)
	}, 3*time.Minute, 100*time.Millisecond) // a Lease has to pass on

	printed := ""
	run := func(image string) *plan.Report {
		var output bytes.Buffer
		report, err := plan.RunCommand(t.Context(), c.reader, plan.Command{
			Args:   []string{binary, "--http-address=0", "--image=" + image},
			Output: &output,
		}, plan.RunOptions{Quiet: 10 * time.Second,
			Options: plan.Options{Account: "cronbackup/cronbackup"}})
		require.NoError(t, err, output.String())
		require.True(t, report.Settled)
		require.Empty(t, report.Refused, "its roles are enough")
		require.Empty(t, report.Approximate)
		printed = output.String()
		return report
	}
	require.Empty(t, run("backup:1").Changes, "the version that runs changes nothing")
	report := run("backup:2")
	var text strings.Builder
	require.NoError(t, report.WriteText(io.MultiWriter(&text, t.Output())))
	require.Len(t, report.Changes, 3, text.String()+printed)
	for n, change := range report.Changes {
		require.Equal(t, "update", change.Verb)
		require.Equal(t, "cronbackup", change.By)
		require.Equal(t, []plan.Field{{
			Path: "spec.jobTemplate.spec.template.spec.containers[backup].image", Old: "backup:1", New: "backup:2",
		}}, change.Fields, n)
		require.Nil(t, change.Restarts, "the template of a CronJob is for new pods")
	}
	jobs, err := c.Client().BatchV1().CronJobs("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, job := range jobs.Items {
		require.Equal(t, "backup:1", job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image)
	}
	c.requireNoWrites(t)

	require.NoError(t, first.Terminate(t.Context()))
	second := start("second", "backup:2")
	t.Cleanup(func() { _ = second.Kill(context.Background()) })
	require.EventuallyWithT(t, func(t *assertCollect) {
		upgraded, err := c.Client().BatchV1().CronJobs("default").List(context.Background(), metav1.ListOptions{})
		require.NoError(t, err)
		for i, job := range upgraded.Items {
			want := jobs.Items[i].Spec.DeepCopy()
			want.JobTemplate.Spec.Template.Spec.Containers[0].Image = "backup:2"
			require.Equal(t, *want, job.Spec, "what was predicted has come, and nothing else")
		}
	}, 3*time.Minute, 100*time.Millisecond) // a Lease has to pass on
}

// TestAReadOnlyAccountIsEnough plans with the rights of ReadRole, and no others.
func TestAReadOnlyAccountIsEnough(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	objects, err := cluster.Decode([]byte(plan.ReadRole))
	require.NoError(t, err)
	var role rbacv1.ClusterRole
	data, err := objects[0].MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &role))
	reader, err := c.ClusterServiceAccount(t.Context(), namespace, role.Rules...)
	require.NoError(t, err)
	report, err := plan.Run(t.Context(), reader, func(ctx context.Context, cfg *rest.Config) error {
		return newApp(namespace).run(ctx, cfg, namespace)
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	require.Empty(t, report.Missing)
	require.Empty(t, report.Refused)
	require.Len(t, report.Changes, 7)
}

// TestAnAccountMayDoWhatTheClusterGrants plans with the account of a program that may create ConfigMaps, by an
// aggregated role, and Secrets not.
func TestAnAccountMayDoWhatTheClusterGrants(t *testing.T) {
	c := audited(t)
	namespace, ctx := c.Namespace(t), t.Context()
	rbac := c.Client().RbacV1()
	label := map[string]string{"aggregate-to": namespace}
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	part := metav1.ObjectMeta{Name: namespace + "-part", Labels: label}
	_, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: part, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, role := range []string{namespace, "no-such-role"} {
		_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "operator"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.EventuallyWithT(t, func(t *assertCollect) {
		role, err := rbac.ClusterRoles().Get(ctx, namespace, metav1.GetOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, role.Rules, "a controller fills them in")
	}, 3*time.Minute, 100*time.Millisecond) // a Lease has to pass on
	report, err := plan.Run(ctx, c.reader, func(ctx context.Context, cfg *rest.Config) error {
		c := kubernetes.NewForConfigOrDie(cfg).CoreV1()
		_, err1 := c.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			metav1.CreateOptions{})
		_, err2 := c.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			metav1.CreateOptions{})
		if !apierrors.IsForbidden(err2) {
			return fmt.Errorf("the Secret: %w", err2)
		}
		return err1
	}, plan.RunOptions{Quiet: quiet, Options: plan.Options{Account: namespace + "/operator"}})
	require.NoError(t, err)
	require.Equal(t, []string{"create ConfigMap " + namespace + "/a"}, verbs(report))
	require.Len(t, report.Refused, 1)
	require.Equal(t, "Forbidden", report.Refused[0].Reason)
	c.requireNoWrites(t)

	_, err = plan.Fork(ctx, c.reader, plan.Options{Account: "operator"})
	require.ErrorContains(t, err, "NAMESPACE/NAME")
}

// everything is a pod template that leaves open what the cluster fills in, in each part of it.
func everything() corev1.PodTemplateSpec {
	t := template("web:1")
	port := intstr.FromInt32(8080)
	get := &corev1.HTTPGetAction{Port: port}
	field := &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}
	c := &t.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
	c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: field}}}
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: get}}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 8080}}}
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resourceOf("1")}
	t.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first", RestartPolicy: new(
		corev1.ContainerRestartPolicyAlways)}}
	t.Spec.HostNetwork = true
	t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	t.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone",
		WhenUnsatisfiable: corev1.ScheduleAnyway}}
	volume := func(name string, of corev1.VolumeSource) {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: of})
	}
	volume("empty", corev1.VolumeSource{})
	volume("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}})
	volume("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a"}})
	volume("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}})
	volume("projected", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "name", FieldRef: field}}}}}}})
	volume("downward", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: field}}}})
	volume("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1"}})
	volume("iscsi", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: "iqn." +
		"2001-04.com.example:storage.kube.sys1.xyz"}})
	volume("ephemeral", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resourceOf("1Gi")}}}}}})
	return t
}

// TestATemplateHasTheDefaultsOfTheCluster has workloads whose whole template is written without defaults, at each
// reconcile, as many operators do: no pod restarts. A change of the image is one, which a DaemonSet counts.
func TestATemplateHasTheDefaultsOfTheCluster(t *testing.T) {
	c := audited(t)
	namespace := c.Namespace(t)
	meta, selector := metav1.ObjectMeta{Name: "agent"}, &metav1.LabelSelector{MatchLabels: podLabels}
	daemon := func(image string) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: everything()}}
		d.Spec.Template.Spec.Containers[0].Image = image
		d.Spec.Template.Spec.NodeSelector = map[string]string{"no": "such"}
		return d
	}
	web := func() *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)),
			Selector: selector, Template: everything()}}
	}
	apps := c.Client().AppsV1()
	_, err1 := apps.DaemonSets(namespace).Create(t.Context(), daemon("web:1"), metav1.CreateOptions{})
	_, err2 := apps.Deployments(namespace).Create(t.Context(), web(), metav1.CreateOptions{})
	require.NoError(t, first(err1, err2))
	fork, err := plan.Fork(t.Context(), c.reader, plan.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, fork.Close()) }()
	forked := kubernetes.NewForConfigOrDie(fork.Config()).AppsV1()
	is, err := forked.Deployments(namespace).Get(t.Context(), meta.Name, metav1.GetOptions{})
	require.NoError(t, err)
	next := web()
	next.Annotations = is.Annotations // the number of the revision is its controller's
	_, err1 = forked.DaemonSets(namespace).Update(t.Context(), daemon("web:1"), metav1.UpdateOptions{})
	_, err2 = forked.Deployments(namespace).Update(t.Context(), next, metav1.UpdateOptions{})
	require.NoError(t, first(err1, err2))
	report, err := fork.Settle(t.Context(), still)
	require.NoError(t, err)
	for _, change := range report.Changes {
		require.Empty(t, change.Fields)
		require.Equal(t, "Deployment", change.Object.Kind, "the annotation has another manager now")
	}
	_, err1 = forked.DaemonSets(namespace).Update(t.Context(), daemon("web:2"), metav1.UpdateOptions{})
	_, err2 = apps.DaemonSets(namespace).Update(t.Context(), daemon("web:2"), metav1.UpdateOptions{})
	require.NoError(t, first(err1, err2))
	planned, err1 := forked.DaemonSets(namespace).Get(t.Context(), meta.Name, metav1.GetOptions{})
	real, err2 := apps.DaemonSets(namespace).Get(t.Context(), meta.Name, metav1.GetOptions{})
	require.NoError(t, first(err1, err2))
	require.Equal(t, real.Annotations, planned.Annotations)
	require.Equal(t, real.Spec, planned.Spec)
	require.Equal(t, "2", real.Annotations[appsv1.DeprecatedTemplateGeneration])
	made, err := forked.DaemonSets(namespace).Create(t.Context(), func() *appsv1.DaemonSet {
		d := daemon("web:1")
		d.Name = "new"
		return d
	}(), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "1", made.Annotations[appsv1.DeprecatedTemplateGeneration])
	c.requireNoWrites(t)
}

// TestAnUpdateWithoutDefaultsIsNone has a DaemonSet and a StatefulSet with claims, whose kinds the fork knows less of
// than the cluster: an update of the whole object without defaults changes nothing, and one of the claims is refused.
func TestAnUpdateWithoutDefaultsIsNone(t *testing.T) {
	c := audited(t)
	namespace := c.Namespace(t)
	meta := metav1.ObjectMeta{Name: "agent"}
	set := func(storage string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("web:1"), ServiceName: "web",
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resourceOf(storage)}}}}}}}
	}
	daemon := func() *appsv1.DaemonSet { // without pods, whose controller would go on to write its status
		d := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("web:1")}}
		d.Spec.Template.Spec.NodeSelector = map[string]string{"no": "such"}
		return d
	}
	apps := c.Client().AppsV1()
	d, err1 := apps.DaemonSets(namespace).Create(t.Context(), daemon(), metav1.CreateOptions{})
	s, err2 := apps.StatefulSets(namespace).Create(t.Context(), set("1Gi"), metav1.CreateOptions{})
	require.NoError(t, first(err1, err2))
	require.EventuallyWithT(t, func(t *assertCollect) { // the controllers have written what they have to
		d, err1 = apps.DaemonSets(namespace).Get(context.Background(), meta.Name, metav1.GetOptions{})
		s, err2 = apps.StatefulSets(namespace).Get(context.Background(), meta.Name, metav1.GetOptions{})
		require.NoError(t, first(err1, err2))
		require.EqualValues(t, 1, min(d.Status.ObservedGeneration, s.Status.ObservedGeneration))
	}, 3*time.Minute, 100*time.Millisecond) // a Lease has to pass on
	update := func(ctx context.Context, cfg *rest.Config) error {
		apps := kubernetes.NewForConfigOrDie(cfg).AppsV1()
		_, err1 := apps.DaemonSets(namespace).Update(ctx, daemon(), metav1.UpdateOptions{})
		_, err2 := apps.StatefulSets(namespace).Update(ctx, set("1Gi"), metav1.UpdateOptions{})
		_, err3 := apps.StatefulSets(namespace).Update(ctx, set("2Gi"), metav1.UpdateOptions{})
		if !apierrors.IsInvalid(err3) {
			return fmt.Errorf("the claims are changed: %w", err3)
		}
		return first(err1, err2)
	}
	report, err := plan.Run(t.Context(), c.reader, update, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	require.Len(t, report.Refused, 1)
	require.Empty(t, report.Changes)
	require.NoError(t, update(t.Context(), c.Config()), "the cluster does the same")
	isD, err1 := apps.DaemonSets(namespace).Get(t.Context(), meta.Name, metav1.GetOptions{})
	isS, err2 := apps.StatefulSets(namespace).Get(t.Context(), meta.Name, metav1.GetOptions{})
	require.NoError(t, first(err1, err2))
	// The controllers may write a status at any time: it, and who wrote when, are not compared.
	require.Equal(t, s.Generation, isS.Generation)
	require.Equal(t, d.Generation, isD.Generation)
	require.Equal(t, [2]any{s.Spec, s.Labels}, [2]any{isS.Spec, isS.Labels})
	require.Equal(t, [2]any{d.Spec, d.Labels}, [2]any{isD.Spec, isD.Labels})
	require.Equal(t, [2]any{s.Annotations, d.Annotations}, [2]any{isS.Annotations, isD.Annotations})
	c.requireNoWrites(t)
}
