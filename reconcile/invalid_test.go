package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// backup is stricter than the schema of its resource: that takes a string for the days, too.
type backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		RetentionDays int32 `json:"retentionDays"`
	} `json:"spec"`
}

func (b *backup) DeepCopyObject() runtime.Object {
	c := &backup{TypeMeta: b.TypeMeta, ObjectMeta: *b.ObjectMeta.DeepCopy(), Spec: b.Spec}
	return c
}

const backupsCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: backups.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: backups, singular: backup, kind: Backup, listKind: BackupList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              retentionDays: {x-kubernetes-int-or-string: true}
          status:
            type: object
            properties:
              problem: {type: string}
`

// keeper is a controller that gives each Backup a ConfigMap, and takes it away from one that is gone. It believes its
// cache: what the cache does not hold is gone.
type keeper struct {
	backups  *informer.SharedIndexInformer[*backup]
	client   *informer.Resource[*backup]
	metadata *informer.Resource[*metav1.PartialObjectMetadata]
	core     kubernetes.Interface

	mu    sync.Mutex
	lines []string // guarded by mu: what it was called for
}

const finalizer = "thermostat.example/keeper"

func (k *keeper) note(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, fmt.Sprintf(format, args...))
}

func (k *keeper) noted(line string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.lines, line)
}

func (k *keeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = nil
}

func (k *keeper) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	maps := k.core.CoreV1().ConfigMaps(key.Namespace)
	b, ok := k.backups.Get(key)
	if !ok {
		k.note("gone %s", key.Name)
		err := maps.Delete(ctx, key.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return reconcile.Result{}, err
	}
	k.note("%s keeps %d days", key.Name, b.Spec.RetentionDays)
	owner := objects.NewOwner(k.client.In(key.Namespace), b, k.client.GroupVersionKind())
	_, err := objects.CreateOwned(ctx, owner, maps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key.Name}})
	return reconcile.Result{}, err
}

// invalid reports the mistake in the status, and lets go of what is being deleted.
func (k *keeper) invalid(ctx context.Context, key reconcile.Key, why *informer.InvalidError) (reconcile.Result,
	error) {
	k.note("%s is invalid", key.Name)
	if why.Object.DeletionTimestamp != nil {
		_, _, err := objects.Finalize(ctx, k.metadata.In(key.Namespace), why.Object, finalizer,
			func(context.Context) (bool, error) { k.note("%s is cleaned up", key.Name); return true, nil })
		return reconcile.Result{}, err
	}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"problem": why.Error()}})
	if err != nil {
		return reconcile.Result{}, err
	}
	_, err = k.metadata.In(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, status, metav1.PatchOptions{},
		"status")
	return reconcile.Result{}, cmp.Or(err, reconcile.Terminal(why))
}

func crdOf(group string) []byte { return []byte(strings.ReplaceAll(backupsCRD, "GROUP", group)) }

// startKeeper runs the controller until the returned function is called.
func startKeeper(t *testing.T, cfg *rest.Config, group, namespace string, handles bool) (k *keeper, stop func()) {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.Wrap(reconcile.TrackWrites)
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "backups"}
	k = &keeper{core: kubernetes.NewForConfigOrDie(cfg)}
	var err error
	k.client, err = informer.NewResource[*backup](cfg, resource, informer.ResourceOptions{})
	require.NoError(t, err)
	k.metadata, err = informer.NewResource[*metav1.PartialObjectMetadata](cfg, resource, informer.ResourceOptions{})
	require.NoError(t, err)
	k.backups, err = informer.New(k.client.In(namespace), informer.Options[*backup]{})
	require.NoError(t, err)
	maps, err := informer.New[*corev1.ConfigMap](k.core.CoreV1().ConfigMaps(namespace),
		informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	opts := reconcile.Options{Invalid: k.invalid}
	if !handles {
		opts.Invalid = nil
	}
	c, err := reconcile.NewController("keeper", k, opts)
	require.NoError(t, err)
	reconcile.For(c, k.backups)
	reconcile.Owns(c, maps, k.client.GroupVersionKind())
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(stop)
	return k, stop
}

// until waits for a condition, in the time of the test.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(limit), what)
	}
}

// invalidStory is the life of two Backups that the server takes and the program cannot decode.
func invalidStory(t *testing.T, cfg *rest.Config, group, namespace string) {
	k, stop := startKeeper(t, cfg, group, namespace, true)
	admin := dynamic.NewForConfigOrDie(cfg).Resource(k.client.GroupVersionResource()).Namespace(namespace)
	create := func(name string, days any) {
		t.Helper()
		_, err := admin.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Backup",
			"metadata": map[string]any{"name": name, "finalizers": []any{finalizer}},
			"spec":     map[string]any{"retentionDays": days},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	keep := func(name, days string) {
		t.Helper()
		_, err := admin.Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"spec":{"retentionDays":`+days+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	problem := func(name string) string {
		o, err := admin.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		text, _, _ := unstructured.NestedString(o.Object, "status", "problem")
		return text
	}
	const misfit = "spec.retentionDays is a JSON string that cannot be decoded into the Go type int32"
	key := func(name string) reconcile.Key { return reconcile.Key{Namespace: namespace, Name: name} }

	// One was valid, the other never is. Each is reported in its status, and that write does not park the key.
	create("a", 7)
	until(t, "a is reconciled", func() bool { return k.noted("a keeps 7 days") })
	keep("a", `"swordfish"`)
	create("b", "swordfish")
	for _, name := range []string{"a", "b"} {
		until(t, name+" is reported", func() bool { return k.noted(name+" is invalid") && problem(name) != "" })
		require.Contains(t, problem(name), misfit)
		require.NotContains(t, problem(name), "swordfish")
		require.ErrorContains(t, k.backups.Invalid(key(name)), misfit)
	}
	require.ErrorContains(t, k.backups.Health().LastBadObject, misfit)
	k.forget()
	keep("b", `"forever"`)
	until(t, "b is looked at again", func() bool { return k.noted("b is invalid") })

	// A new process has never seen a valid a. It takes nothing away from it.
	stop()
	k, stop = startKeeper(t, cfg, group, namespace, true)
	until(t, "a is looked at", func() bool { return k.noted("a is invalid") })
	_, found := k.backups.Get(key("a"))
	require.False(t, found)
	require.False(t, k.noted("gone a"))
	_, err := k.core.CoreV1().ConfigMaps(namespace).Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err, "what a owns is still there")
	stop()

	// A controller that does not care for invalid objects leaves them alone, too, and hears of those that recover.
	k, stop = startKeeper(t, cfg, group, namespace, false)
	until(t, "the cache has seen them", func() bool { return k.backups.Health().Rejected == 2 })
	keep("a", "8")
	until(t, "a is reconciled", func() bool { return k.noted("a keeps 8 days") })
	require.False(t, k.noted("gone a") || k.noted("gone b"))
	stop()

	// An invalid object that is being deleted is cleaned up after, and then it is gone.
	k, stop = startKeeper(t, cfg, group, namespace, true)
	until(t, "b is looked at", func() bool { return k.noted("b is invalid") })
	require.NoError(t, admin.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	until(t, "b is gone", func() bool { return k.noted("b is cleaned up") && k.noted("gone b") })
	_, err = admin.Get(t.Context(), "b", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.Zero(t, k.backups.Health().Rejected)
	stop()
}

func TestInvalidObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resources, err := reconciletest.ReadCRDs(crdOf("backups.example"))
		require.NoError(t, err)
		server := reconciletest.NewServer(t, reconciletest.Options{Resources: resources})
		invalidStory(t, server.Config(), "backups.example", "default")
	})
}

func TestInvalidObjectsOnARealServer(t *testing.T) {
	c := testcluster.Shared(t)
	// Its group is the test's own: it may run more than once on one control plane.
	group := fmt.Sprintf("b%x.thermostat.example", rand.Uint32())
	definition, err := testcluster.Decode(crdOf(group))
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), definition...))
	invalidStory(t, c.Config(), group, c.Namespace(t))
}
