package cronbackuptest

import (
	"fmt"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/deploy"
	"github.com/thermostat-go/thermostat/examples/internal/operatortest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Start runs an operator until ctx ends, and returns nil then.
type Start = operatortest.Start

// world is a cluster, as a test sees it: one namespace of it, with the rights of an administrator.
type world struct {
	operatortest.Waiter
	namespace string
	client    kubernetes.Interface
	backups   dynamic.ResourceInterface
	// finish lets the pods of a Job succeed or fail.
	finish func(job *batchv1.Job, success bool)
}

func newWorld(t *testing.T, cfg *rest.Config, namespace string) *world {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	return &world{Waiter: operatortest.Waiter{T: t, Patience: time.Minute}, namespace: namespace,
		client: kubernetes.NewForConfigOrDie(cfg),
		backups: dynamic.NewForConfigOrDie(cfg).Resource(v1.GroupVersion.WithResource("cronbackups")).
			Namespace(namespace)}
}

// InMemory runs all behaviours that need no other controller, each on an API server in memory and in virtual time.
func InMemory(t *testing.T, start Start) {
	dir := Manifests(t)
	for name, behaviour := range behaviours() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := reconciletest.NewServer(t, ServerOptions(dir))
				w := newWorld(t, server.Config(), "default")
				w.Virtual = true
				w.finish = w.finishJob
				stop := operatortest.Run(t, start, server.LinkAs(Account).Config())
				defer stop()
				behaviour(w)
			})
		})
	}
}

// OnCluster runs all behaviours on a real control plane.
func OnCluster(t *testing.T, start Start) {
	c := cluster.Shared(t)
	Install(t, c)
	cfg := c.Config()
	cfg.Impersonate.UserName = Account
	stop := operatortest.Run(t, start, cfg)
	defer stop()
	for name, behaviour := range behaviours() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.Config(), c.Namespace(t))
			w.Patience = 3 * time.Minute // in real time, on a machine with much else to do
			w.finish = w.finishPods
			behaviour(w)
		})
	}
	t.Run("the definition refuses what makes no sense", func(t *testing.T) {
		checkDefinition(newWorld(t, c.Config(), c.Namespace(t)))
	})
}

// Account is the user name of the operator's service account.
var Account = reconciletest.ServiceAccount("cronbackup", "cronbackup")

// Manifests writes the manifests to a folder, and returns it.
func Manifests(t testing.TB) (dir string) {
	return operatortest.Copy(t, deploy.Manifests)
}

// ServerOptions are those of a server in memory with the manifests in a folder, but for the webhooks. It does not check
// the rules in CEL: OnCluster does.
func ServerOptions(dir string) reconciletest.Options {
	return reconciletest.Options{
		CRDs:  []string{filepath.Join(dir, "backups.example.com_cronbackups.yaml")},
		Roles: []string{filepath.Join(dir, "rbac.yaml")}, Rules: operatortest.NoRules{},
		Namespaces: []string{"default", "cronbackup"},
	}
}

// WithWebhooks are the options of a server that calls the webhooks, too.
func WithWebhooks(dir string) reconciletest.Options {
	opts := ServerOptions(dir)
	opts.Manifests = []string{filepath.Join(dir, "webhooks.yaml"), filepath.Join(dir, "conversion.yaml")}
	return opts
}

// Install applies the manifests, but for the Deployment and the sample.
func Install(t testing.TB, c *cluster.Cluster) {
	operatortest.Install(t, c, deploy.Manifests, "namespace.yaml", "backups.example.com_cronbackups.yaml", "rbac.yaml")
}

// create makes a CronBackup.
func (w *world) create(name string, change ...func(*v1.CronBackup)) {
	w.Helper()
	require.NoError(w, w.tryCreate(name, change...))
}

func (w *world) tryCreate(name string, change ...func(*v1.CronBackup)) error {
	b := &v1.CronBackup{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "CronBackup"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.CronBackupSpec{Schedule: "0 3 1 1 *", TargetDatabase: "orders", RetentionDays: 30},
	}
	for _, f := range change {
		f(b)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	require.NoError(w, err)
	delete(content, "status")
	_, err = w.backups.Create(w.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	return err
}

// get returns a CronBackup; the error says that it does not exist.
func (w *world) get(name string) (*v1.CronBackup, error) {
	o, err := w.backups.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	b := &v1.CronBackup{}
	return b, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, b)
}

func (w *world) patch(name, patch string) {
	w.Helper()
	_, err := w.backups.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w, err)
}

func (w *world) remove(name string) {
	w.Helper()
	require.NoError(w, w.backups.Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// is checks the condition, and that the status is about the current spec.
func (w *world) is(name string, status metav1.ConditionStatus, reason string) func() error {
	return func() error {
		b, err := w.get(name)
		if err != nil {
			return err
		}
		for _, c := range b.Status.Conditions {
			if c.Type == v1.Ready && c.Status == status && c.Reason == reason && c.ObservedGeneration == b.Generation &&
				b.Status.ObservedGeneration == b.Generation {
				return nil
			}
		}
		return fmt.Errorf("generation %d, status %+v", b.Generation, b.Status)
	}
}

func (w *world) cronJob(name string) (*batchv1.CronJob, error) {
	return w.client.BatchV1().CronJobs(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
}

// cleanup waits for the Job that cleans up after a CronBackup, other than old.
func (w *world) cleanup(name string, old types.UID) (job *batchv1.Job) {
	w.Helper()
	w.Eventually(func() (err error) {
		job, err = w.client.BatchV1().Jobs(w.namespace).Get(w.Context(), name+"-cleanup", metav1.GetOptions{})
		if err == nil && job.UID == old {
			err = fmt.Errorf("it is still the old one")
		}
		return err
	})
	return job
}

// finishJob writes the status that the Job controller would.
func (w *world) finishJob(job *batchv1.Job, success bool) {
	w.Helper()
	now, status := metav1.Now(), &job.Status
	ends := []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
	status.StartTime = &now
	if success {
		ends = []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
		status.CompletionTime, status.Succeeded = &now, 1
	}
	for _, end := range ends {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: end, Status: corev1.ConditionTrue,
			LastProbeTime: now, LastTransitionTime: now})
	}
	_, err := w.client.BatchV1().Jobs(w.namespace).UpdateStatus(w.Context(), job, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// finishPods ends a pod of the Job with success, or lets the time of the Job run out.
func (w *world) finishPods(job *batchv1.Job, success bool) {
	w.Helper()
	if !success {
		_, err := w.client.BatchV1().Jobs(w.namespace).Patch(w.Context(), job.Name, types.MergePatchType,
			[]byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{})
		require.NoError(w, err)
		return
	}
	pods := w.client.CoreV1().Pods(w.namespace)
	w.Eventually(func() error {
		list, err := pods.List(w.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job.Name})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.Status.Phase != corev1.PodRunning || !strings.HasPrefix(pod.Name, job.Name) {
				continue
			}
			_, err := pods.Patch(w.Context(), pod.Name, types.MergePatchType,
				[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
			return err
		}
		return fmt.Errorf("of %d pods none runs", len(list.Items))
	})
}
