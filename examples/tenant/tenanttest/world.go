package tenanttest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/operatortest"
	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
	"github.com/thermostat-go/thermostat/examples/tenant/deploy"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Start runs an operator until ctx ends, and returns nil then.
type Start = operatortest.Start

// Account is the user name of the operator's service account, and Platform its namespace.
var Account = reconciletest.ServiceAccount(Platform, "tenant")

// Platform is the namespace of the operator.
const Platform = "platform"

// world is a cluster, as a test sees it, with the rights of an administrator. Tenants live in no namespace, so each
// test has names of its own.
type world struct {
	operatortest.Waiter
	name    string // of the test's Tenant
	client  kubernetes.Interface
	tenants dynamic.ResourceInterface
	link    *reconciletest.Link // the operator's, in memory
}

func newWorld(t *testing.T, cfg *rest.Config, name string) *world {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	return &world{Waiter: operatortest.Waiter{T: t, Patience: time.Minute}, name: name,
		client:  kubernetes.NewForConfigOrDie(cfg),
		tenants: dynamic.NewForConfigOrDie(cfg).Resource(v1.GroupVersion.WithResource("tenants"))}
}

// InMemory runs all behaviours, each on an API server in memory and in virtual time.
func InMemory(t *testing.T, start Start) {
	dir := Manifests(t)
	all := behaviours()
	for name, behaviour := range behavioursInMemory() {
		all[name] = behaviour
	}
	for name, behaviour := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := reconciletest.NewServer(t, ServerOptions(dir))
				w := newWorld(t, server.Config(), "acme")
				w.Virtual = true
				w.link = server.LinkAs(Account)
				stop := operatortest.Run(t, start, w.link.Config())
				defer stop()
				behaviour(w)
			})
		})
	}
}

// OnCluster runs on a real control plane all behaviours that can be had there.
func OnCluster(t *testing.T, start Start) {
	c := cluster.Shared(t)
	Install(t, c)
	cfg := c.Config()
	cfg.Impersonate.UserName = Account
	stop := operatortest.Run(t, start, cfg)
	defer stop()
	t.Run("behaviours", func(t *testing.T) { // ends when all of them have ended
		for name, behaviour := range behaviours() {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // most of the time they wait for namespaces to go
				w := newWorld(t, c.Config(), prefix+rand.String(8))
				w.Patience = 3 * time.Minute // in real time, on a machine with much else to do
				defer w.clear()
				behaviour(w)
			})
		}
	})
	w := newWorld(t, c.Config(), "")
	w.Patience = 3 * time.Minute
	checkDefinition(w)
	w.Eventually(func() error {
		list, err := w.tenants.List(t.Context(), metav1.ListOptions{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			if name := list.Items[i].GetName(); strings.HasPrefix(name, prefix) {
				err = fmt.Errorf("Tenant %s is still there", name)
			}
		}
		return err
	})
}

// prefix is that of the names of Tenants on a cluster.
const prefix = "test-"

// Manifests copies the manifests into a folder, where a test may change them.
func Manifests(t testing.TB) (dir string) {
	return operatortest.Copy(t, deploy.Manifests)
}

// ServerOptions are those of a server in memory with the manifests in a folder. It does not check the rules in CEL:
// OnCluster does.
func ServerOptions(dir string) reconciletest.Options {
	return reconciletest.Options{
		CRDs:  []string{filepath.Join(dir, "platform.example.com_tenants.yaml")},
		Roles: []string{filepath.Join(dir, "rbac.yaml")}, Rules: operatortest.NoRules{},
		Namespaces: []string{"default", Platform},
	}
}

// Install applies the manifests, but for the Deployment and the sample.
func Install(t testing.TB, c *cluster.Cluster) {
	operatortest.Install(t, c, deploy.Manifests, "namespace.yaml", "platform.example.com_tenants.yaml", "rbac.yaml")
}

// create makes a Tenant with the projects web and data.
func (w *world) create(name string, change ...func(*v1.TenantSpec)) {
	w.Helper()
	require.NoError(w, w.tryCreate(name, change...))
}

func (w *world) tryCreate(name string, change ...func(*v1.TenantSpec)) error {
	t := &v1.Tenant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Tenant"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.TenantSpec{Projects: []string{"web", "data"}, Members: []string{"ada"}, Role: "edit",
			Quota: quantities("requests.cpu", "4", "pods", "20")},
	}
	for _, f := range change {
		f(&t.Spec)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	require.NoError(w, err)
	delete(content, "status")
	_, err = w.tenants.Create(w.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	return err
}

// get returns a Tenant; the error says that it does not exist.
func (w *world) get(name string) (*v1.Tenant, error) {
	o, err := w.tenants.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	t := &v1.Tenant{}
	return t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t)
}

func (w *world) patch(name, patch string) {
	w.Helper()
	_, err := w.tenants.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w, err)
}

// is checks the condition, and that the status is about the current spec.
func (w *world) is(name, reason string) func() error {
	status := metav1.ConditionFalse
	if reason == v1.ReasonProvisioned {
		status = metav1.ConditionTrue
	}
	return func() error {
		t, err := w.get(name)
		if err != nil {
			return err
		}
		for _, c := range t.Status.Conditions {
			if c.Type == v1.Ready && c.Status == status && c.Reason == reason && c.ObservedGeneration == t.Generation &&
				t.Status.ObservedGeneration == t.Generation {
				return nil
			}
		}
		return fmt.Errorf("generation %d, status %+v", t.Generation, t.Status)
	}
}

// remove deletes a Tenant; foreground asks the garbage collector to delete first what the Tenant owns.
func (w *world) remove(name string) {
	w.Helper()
	foreground := metav1.DeletePropagationForeground
	require.NoError(w, w.tenants.Delete(w.Context(), name, metav1.DeleteOptions{PropagationPolicy: &foreground}))
}

// gone says that there is no such Tenant.
func (w *world) gone(name string) func() error {
	return func() error {
		t, err := w.get(name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is still there: %+v", t.Status)
	}
}

// clear removes the test's Tenant, if there is one. It takes its time, and the test does not wait for it.
func (w *world) clear() {
	err := w.tenants.Delete(w.Context(), w.name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(w, err)
	}
}

// home is the namespace of a project.
func (w *world) home(project string) string { return w.name + "-" + project }

func (w *world) namespace(project string) (*corev1.Namespace, error) {
	return w.client.CoreV1().Namespaces().Get(w.Context(), w.home(project), metav1.GetOptions{})
}

// noNamespace says that a project has no namespace.
func (w *world) noNamespace(project string) func() error {
	return func() error {
		o, err := w.namespace(project)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("namespace %s is still there, %s", o.Name, o.Status.Phase)
	}
}

func (w *world) quota(project string) (*corev1.ResourceQuota, error) {
	return w.client.CoreV1().ResourceQuotas(w.home(project)).Get(w.Context(), v1.QuotaName, metav1.GetOptions{})
}

func (w *world) binding(project string) (*rbacv1.RoleBinding, error) {
	return w.client.RbacV1().RoleBindings(w.home(project)).Get(w.Context(), v1.MembersName, metav1.GetOptions{})
}

// versions are those of the Tenant and of what it owns.
func (w *world) versions() (map[string]string, error) {
	all := map[string]string{}
	t, err := w.get(w.name)
	if err != nil {
		return nil, err
	}
	all["Tenant"] = t.ResourceVersion
	for _, project := range t.Spec.Projects {
		quota, err1 := w.quota(project)
		binding, err2 := w.binding(project)
		policy, err3 := w.client.NetworkingV1().NetworkPolicies(w.home(project)).Get(w.Context(), v1.QuotaName,
			metav1.GetOptions{})
		limits, err4 := w.client.CoreV1().LimitRanges(w.home(project)).Get(w.Context(), v1.QuotaName,
			metav1.GetOptions{})
		account, err5 := w.client.CoreV1().ServiceAccounts(w.home(project)).Get(w.Context(), v1.DeployerName,
			metav1.GetOptions{})
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return nil, err
		}
		for _, o := range []metav1.Object{binding, policy, limits, account} {
			all[fmt.Sprintf("%T of %s", o, project)] = o.GetResourceVersion()
		}
		all["spec of the quota of "+project] = fmt.Sprint(quota.Spec) // a controller writes the status
	}
	return all, nil
}
