package reconcile_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// as returns a configuration for a service account, and lets that read ConfigMaps in its own namespace.
func as(t *testing.T, cluster *testcluster.Cluster, home string) *rest.Config {
	t.Helper()
	cfg := cluster.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: reconciletest.ServiceAccount(home, "default")}
	allow(t, cluster, home, home, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"list", "watch"}})
	return cfg
}

// allow gives the service account of a home a rule in a namespace.
func allow(t *testing.T, cluster *testcluster.Cluster, home, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "of-" + home + "-" + rule.Resources[0]}
	rights := cluster.Client().RbacV1()
	_, err := rights.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: name,
		Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rights.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: name,
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: "default"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

var secretRights = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
	Verbs: []string{"list", "watch", "create", "delete"}}

// TestFiftyNamespacesComeAndGo has a controller with rights in the namespaces of its tenants only. Those of the last
// one come late.
func TestFiftyNamespacesComeAndGo(t *testing.T) {
	const tenants = 50
	cluster := testcluster.Shared(t)
	home := cluster.Namespace(t)
	var namespaces []string
	for range tenants {
		namespaces = append(namespaces, cluster.Namespace(t))
	}
	late := tenants - 1
	for _, namespace := range namespaces[:late] {
		allow(t, cluster, home, namespace, secretRights)
	}
	e := newEstateWith(t, cluster.Config(), as(t, cluster, home), home)
	e.options.Workers = 4
	e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
		for _, namespace := range namespacesOf(tenant) {
			inf, err := e.secrets.Get(namespace)
			if err != nil || inf.Len() > 0 {
				return err
			}
			_, err = e.clients.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "own-", Labels: map[string]string{"tenant": tenant.Name}}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	}
	e.start()
	eventually := func(what string, is func() bool) {
		t.Helper()
		require.Eventually(t, is, 3*time.Minute, 50*time.Millisecond, what)
	}
	eventually("the workers are there", func() bool { return e.manager.Inspect().Stage == status.StageWorking })
	before := runtime.NumGoroutine()
	name := func(i int) string { return fmt.Sprint("t-", i) }
	for i, namespace := range namespaces {
		e.tenant(name(i), namespace)
	}
	made := func(i int) int {
		list, err := cluster.Client().CoreV1().Secrets(namespaces[i]).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items)
	}
	for i := range late {
		eventually("a tenant has its Secret", func() bool { return made(i) == 1 })
	}
	var err error
	eventually("the last one is refused", func() bool {
		_, err = e.secrets.Get(namespaces[late])
		doubt := e.InspectKey(reconcile.Key{Namespace: home, Name: name(late)}).Doubt
		return err != nil && strings.Contains(err.Error(), "secrets is forbidden") && doubt != nil &&
			doubt.CacheState == string(informer.Denied)
	})
	require.Regexp(t, `cannot (list|watch) resource "secrets" in API group "" in the namespace "`+namespaces[late], err)
	allow(t, cluster, home, namespaces[late], secretRights)
	eventually("the last one has, too", func() bool { return made(late) == 1 })

	for i := range tenants { // they go and come
		e.tenant(name(i))
	}
	eventually("all are given up", func() bool { return len(e.family().Namespaces) == 0 })
	eventually("all have ended", func() bool { return runtime.NumGoroutine() < before+10 })
	for i, namespace := range namespaces {
		e.tenant(name(i), namespace)
	}
	for i := range tenants {
		eventually("it has run again", func() bool {
			return slices.ContainsFunc(e.saw(name(i)), func(saw string) bool {
				return strings.HasPrefix(saw, namespaces[i]+":own-")
			})
		})
		require.Equal(t, 1, made(i), "no run has begun on a cache without it")
	}
	require.EqualValues(t, 2*tenants, e.made.Load())
	require.NoError(t, e.stop())
}

// TestADefinitionThatIsInstalledLater has an object that names a kind before the kind exists.
func TestADefinitionThatIsInstalledLater(t *testing.T) {
	cluster := testcluster.Shared(t)
	home := cluster.Namespace(t)
	group := home + ".example.com"
	kind := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	cfg, err := reconcile.ClientConfig(as(t, cluster, home))
	require.NoError(t, err)
	maps, err := informer.New[*corev1.ConfigMap](kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(home),
		informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	kinds, err := reconcile.NewDynamic("kinds",
		func(r schema.GroupVersionResource) (*informer.SharedIndexInformer[*unstructured.Unstructured], error) {
			client, err := informer.NewResource[*unstructured.Unstructured](cfg, r, informer.ResourceOptions{})
			if err != nil {
				return nil, err
			}
			return informer.New(client.In(home), informer.Options[*unstructured.Unstructured]{Name: r.Resource})
		})
	require.NoError(t, err)
	ran := make(chan string, 100)
	c, err := reconcile.NewController("c", reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result,
		error) {
		m, ok := maps.Get(key)
		if !ok || m.Data["resource"] == "" {
			return reconcile.Result{}, nil
		}
		inf, err := kinds.Get(kind)
		if err == nil {
			ran <- fmt.Sprint(inf.Len())
		}
		return reconcile.Result{}, err
	}), reconcile.Options{})
	require.NoError(t, err)
	reconcile.For(c, maps)
	reconcile.Needs(c, maps, kinds, func(m *corev1.ConfigMap) []schema.GroupVersionResource {
		if m.Data["resource"] == "" {
			return nil
		}
		return []schema.GroupVersionResource{{Group: group, Version: "v1", Resource: m.Data["resource"]}}
	}, func(inf *informer.SharedIndexInformer[*unstructured.Unstructured]) {
		reconcile.Owns(c, inf, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	})
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, ErrorTexts: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()

	app, err := cluster.Client().CoreV1().ConfigMaps(home).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string]string{"resource": "widgets"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	key := informer.KeyOf(app)
	// Why tells of the cache in some states of the key only: the key tries again and again.
	doubted := func(state informer.State, reason string) {
		t.Helper()
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			doubt := c.InspectKey(key).Doubt
			require.NotNil(t, doubt)
			require.Equal(t, []string{"widgets", string(state)}, []string{doubt.Informer, doubt.CacheState})
			require.Regexp(t, reason, doubt.Reason.Text)
		}, 2*time.Minute, 20*time.Millisecond)
	}
	doubted(informer.Denied, `cannot (list|watch) resource "widgets" in API group "`+group)
	allow(t, cluster, home, home, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"widgets"},
		Verbs: []string{"list", "watch"}})
	doubted(informer.Missing, "could not find the requested resource")
	require.Empty(t, ran)

	objects, err := testcluster.Decode([]byte(strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, "GROUP", group)))
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), objects...))
	require.Equal(t, "0", <-ran, "without a restart")
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Widget"}}
	widget.SetName("w")
	widget.SetNamespace(home)
	widget.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(app,
		corev1.SchemeGroupVersion.WithKind("ConfigMap"))})
	require.NoError(t, cluster.Apply(t.Context(), widget))
	for saw := "0"; saw != "1"; {
		saw = <-ran
	}
	cancel()
	require.NoError(t, <-done)
}
