package objects_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func TestApplySetInMemory(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	testApplySet(t, server.Config(), "default")
}

func TestApplySetOnAServer(t *testing.T) {
	c := testcluster.Shared(t)
	testApplySet(t, c.Config(), c.Namespace(t))
}

// crew is an owner of ConfigMaps and Jobs. Its cache is what the server has at the beginning of each call.
type crew struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	owner     *objects.Owner
}

func (c *crew) maps() []corev1.ConfigMap {
	list, err := c.client.CoreV1().ConfigMaps(c.namespace).List(c.Context(), metav1.ListOptions{LabelSelector: "crew"})
	require.NoError(c, err)
	return list.Items
}

func (c *crew) jobs() []batchv1.Job {
	list, err := c.client.BatchV1().Jobs(c.namespace).List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	return list.Items
}

func (c *crew) config(name, value string) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(name, c.namespace).WithLabels(map[string]string{"crew": ""}).
		WithData(map[string]string{"key": value})
}

// apply applies ConfigMaps of these names and values, and a Job with that image unless it is empty.
func (c *crew) apply(values map[string]string, image string) (map[string]objects.Effect, error) {
	var configs, jobs []any
	for _, name := range slices.Sorted(maps.Keys(values)) {
		configs = append(configs, c.config(name, values[name]))
	}
	if image != "" {
		jobs = append(jobs, jobConfig(c.namespace, image))
	}
	outcomes, err := objects.ApplySet(c.Context(), c.owner, forced,
		objects.Children(c.client.CoreV1().ConfigMaps, pointers(c.maps()), configs...).Exactly(".data"),
		objects.Children(c.client.BatchV1().Jobs, pointers(c.jobs()), jobs...).
			Replace(metav1.DeletePropagationBackground))
	effects := map[string]objects.Effect{}
	for _, o := range outcomes {
		require.Equal(c, c.namespace, o.Key.Namespace)
		require.Equal(c, o.Err != nil, o.Effect == objects.Failed)
		effects[o.Kind+" "+o.Key.Name] = o.Effect
	}
	return effects, err
}

func (c *crew) applies(want map[string]objects.Effect, values map[string]string, image string) {
	c.Helper()
	effects, err := c.apply(values, image)
	require.NoError(c, err)
	require.Equal(c, want, effects)
}

// pointers are the objects of a list.
func pointers[T any](list []T) func(yield func(*T) bool) {
	return func(yield func(*T) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

func testApplySet(t *testing.T, cfg *rest.Config, namespace string) {
	client := kubernetes.NewForConfigOrDie(cfg)
	h := newHousehold[*corev1.ConfigMap](t, client, namespace, "crew", nil)
	c := &crew{T: t, client: client, namespace: namespace, owner: h.owner}
	both := map[string]string{"a": "1", "b": "2"}

	c.applies(map[string]objects.Effect{"ConfigMap a": objects.Applied, "ConfigMap b": objects.Applied,
		"Job child": objects.Applied}, both, "old")
	c.applies(map[string]objects.Effect{"ConfigMap a": objects.Kept, "ConfigMap b": objects.Kept,
		"Job child": objects.Kept}, both, "old")

	// A dry run writes nothing.
	dry := forced
	dry.DryRun = []string{metav1.DryRunAll}
	_, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), "b", types.MergePatchType,
		[]byte(`{"data":{"key":"theirs","more":"x"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	before := c.maps()
	outcomes, err := objects.ApplySet(t.Context(), c.owner, dry,
		objects.Children(client.CoreV1().ConfigMaps, pointers(before), c.config("b", "2")).Exactly(".data"))
	require.NoError(t, err)
	require.Len(t, outcomes, 2)
	require.Equal(t, before, c.maps())
	c.applies(map[string]objects.Effect{"ConfigMap a": objects.Kept, "ConfigMap b": objects.Applied,
		"Job child": objects.Kept}, both, "old")

	// What is not wanted goes when all that is wanted is there, and what others have made stays: a namesake of another
	// manager that the owner controls, and what nobody controls.
	configMaps := client.CoreV1().ConfigMaps(namespace)
	for name, owners := range map[string][]metav1.OwnerReference{"made": {c.owner.Reference()}, "theirs": nil} {
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"crew": ""}, OwnerReferences: owners}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = configMaps.Patch(t.Context(), "b", types.MergePatchType, []byte(`{"data":{"theirs":"x"}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	c.applies(map[string]objects.Effect{"ConfigMap b": objects.Applied, "Job child": objects.Replacing},
		map[string]string{"b": "2"}, "new")
	require.Equal(t, []string{"a", "b", "made", "theirs"}, namesOfMaps(c.maps()))
	require.Equal(t, map[string]string{"key": "2"}, c.maps()[1].Data)
	c.applies(map[string]objects.Effect{"ConfigMap a": objects.Deleting, "ConfigMap b": objects.Kept,
		"Job child": objects.Applied}, map[string]string{"b": "2"}, "new")
	require.Equal(t, []string{"b", "made", "theirs"}, namesOfMaps(c.maps()))

	// A failure of one does not keep the others from being applied, but nothing is deleted.
	effects, err := c.apply(map[string]string{"theirs": "1", "z": "1"}, "new")
	var taken *objects.TakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, map[string]objects.Effect{"ConfigMap theirs": objects.Failed, "ConfigMap z": objects.Applied,
		"Job child": objects.Kept}, effects)
	require.Equal(t, []string{"b", "made", "theirs", "z"}, namesOfMaps(c.maps()))

	// A set that wants nothing goes from the last part to the first, and waits for each.
	_, err = client.BatchV1().Jobs(namespace).Patch(t.Context(), "child", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/slow"]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for range 2 {
		c.applies(map[string]objects.Effect{"Job child": objects.Deleting}, nil, "")
		require.Equal(t, []string{"b", "made", "theirs", "z"}, namesOfMaps(c.maps()))
	}
	c.applies(map[string]objects.Effect{"ConfigMap b": objects.Kept, "ConfigMap z": objects.Kept,
		"Job child": objects.Replacing}, map[string]string{"b": "2", "z": "1"}, "new")
	_, err = client.BatchV1().Jobs(namespace).Patch(t.Context(), "child", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Empty(t, c.jobs())
	c.applies(map[string]objects.Effect{"ConfigMap b": objects.Deleting, "ConfigMap z": objects.Deleting}, nil, "")
	c.applies(map[string]objects.Effect{}, nil, "")
	require.Equal(t, []string{"made", "theirs"}, namesOfMaps(c.maps()))
}

func namesOfMaps(list []corev1.ConfigMap) (names []string) {
	for _, o := range list {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

// TestASetAcrossNamespaces: a cluster-scoped owner, or one by label, has objects in several, and each is written by the
// client of its own.
func TestASetAcrossNamespaces(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	client := kubernetes.NewForConfigOrDie(server.Config())
	o, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	owner := objects.NewOwner(client.CoreV1().Namespaces(), o, corev1.SchemeGroupVersion.WithKind("Namespace"))
	var configs []any
	for i := range 3 {
		name := fmt.Sprint("n", i)
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		configs = append(configs, corev1ac.ConfigMap("same", name))
	}
	set := func(configs ...any) []objects.Outcome {
		list, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		outcomes, err := objects.ApplySet(t.Context(), owner, forced,
			objects.Children(client.CoreV1().ConfigMaps, pointers(list.Items), configs...))
		require.NoError(t, err)
		return outcomes
	}
	require.Len(t, set(configs...), 3)
	require.Contains(t, set(configs[0]), objects.Outcome{Kind: "ConfigMap",
		Key: informer.Key{Namespace: "n2", Name: "same"}, Effect: objects.Deleting})
	require.Equal(t, []objects.Outcome{{Kind: "ConfigMap", Key: informer.Key{Namespace: "n0", Name: "same"},
		Effect: objects.Kept}}, set(configs[0]))
}

// TestASetDeletesInOrder, whatever the order in which a cache shows the objects: so a program does the same each time.
func TestASetDeletesInOrder(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	server := &oneWay{t: t}
	var seen []*corev1.ConfigMap
	for _, name := range []string{"c", "a", "d", "b"} {
		going := owned(owner, nil)
		going.Name, going.DeletionTimestamp = name, new(metav1.Now())
		going.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "me",
			Operation: metav1.ManagedFieldsOperationApply}}
		seen = append(seen, going)
	}
	outcomes, err := objects.ApplySet(testCtx(t), owner, forced,
		objects.Children(func(string) objects.Replacer[*corev1.ConfigMap] { return server }, slices.Values(seen)))
	require.NoError(t, err)
	var names []string
	for _, o := range outcomes {
		names = append(names, o.Key.Name)
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, names)
}

// TestASetWithoutARecordDeletesNothing: an informer's Transform has removed the managedFields.
func TestASetWithoutARecordDeletesNothing(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	server := &oneWay{t: t}
	outcomes, err := objects.ApplySet(testCtx(t), owner, forced,
		objects.Children(func(string) objects.Replacer[*corev1.ConfigMap] { return server },
			slices.Values([]*corev1.ConfigMap{owned(owner, nil)})))
	require.ErrorContains(t, err, "default/a has no managedFields, so it cannot be told whether it was wanted before")
	require.Equal(t, objects.Failed, outcomes[0].Effect)
	require.Zero(t, server.deleted)
}

// TestWhatIsBeingDeletedIsWaitedFor: nothing is sent again.
func TestWhatIsBeingDeletedIsWaitedFor(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	server, going := &oneWay{t: t}, owned(owner, nil)
	going.DeletionTimestamp = new(metav1.Now())
	going.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "me", Operation: metav1.ManagedFieldsOperationApply}}
	outcomes, err := objects.ApplySet(testCtx(t), owner, forced,
		objects.Children(func(string) objects.Replacer[*corev1.ConfigMap] { return server },
			slices.Values([]*corev1.ConfigMap{going})))
	require.NoError(t, err)
	require.Equal(t, []objects.Outcome{{Kind: "ConfigMap", Key: informer.KeyOf(going), Effect: objects.Deleting}},
		outcomes)
	require.Zero(t, server.deleted)
}

// TestASetDeletesNothingOfAnotherOwner, whose objects the same manager has applied.
func TestASetDeletesNothingOfAnotherOwner(t *testing.T) {
	set, other := newSet("web", "web"), newSet("db", "db")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	server, theirs := &oneWay{t: t}, owned(objects.NewOwner(newDesk(t, other), other, setKind), nil)
	theirs.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "me", Operation: metav1.ManagedFieldsOperationApply}}
	created := owned(owner, nil) // and its status is applied
	created.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "me", Subresource: "status",
		Operation: metav1.ManagedFieldsOperationApply}}
	outcomes, err := objects.ApplySet(testCtx(t), owner, forced,
		objects.Children(func(string) objects.Replacer[*corev1.ConfigMap] { return server },
			slices.Values([]*corev1.ConfigMap{theirs, created})))
	require.NoError(t, err)
	require.Empty(t, outcomes)
	require.Zero(t, server.deleted)
}

// TestADeletionOfASetHoldsForTheObjectThatWasSeen: the errors of the others are joined.
func TestADeletionOfASetHoldsForTheObjectThatWasSeen(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	client := kubernetes.NewForConfigOrDie(server.Config())
	h := newHousehold[*corev1.ConfigMap](t, client, "default", "crew", nil)
	configMaps := client.CoreV1().ConfigMaps("default")
	made, err := objects.ApplyOwned(t.Context(), h.owner, configMaps, nil, config("v"), forced, nil)
	require.NoError(t, err)
	require.NoError(t, configMaps.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	_, err = configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	outcomes, err := objects.ApplySet(t.Context(), h.owner, forced,
		objects.Children(client.CoreV1().ConfigMaps, slices.Values([]*corev1.ConfigMap{made})))
	require.True(t, apierrors.IsConflict(outcomes[0].Err), outcomes)
	require.ErrorIs(t, err, outcomes[0].Err)
	require.ErrorContains(t, err, "delete default/a of ConfigMap default/crew: ")
}

// TestASetThatIsRefusedByAPatchReplacesNothing: others have changed the object since the cache has seen it, so that the
// patch which would remove their entries does not hold.
func TestASetThatIsRefusedByAPatchReplacesNothing(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	client := kubernetes.NewForConfigOrDie(server.Config())
	h := newHousehold[*corev1.ConfigMap](t, client, "default", "crew", nil)
	configMaps := client.CoreV1().ConfigMaps("default")
	made, err := objects.ApplyOwned(t.Context(), h.owner, configMaps, nil, config("v"), forced, nil)
	require.NoError(t, err)
	var seen *corev1.ConfigMap
	for _, entry := range []string{"x", "y"} {
		now, err := configMaps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"`+entry+`":"theirs"}}`),
			metav1.PatchOptions{FieldManager: "them"})
		require.NoError(t, err)
		if seen == nil {
			seen = now
		}
	}
	outcomes, err := objects.ApplySet(t.Context(), h.owner, forced,
		objects.Children(client.CoreV1().ConfigMaps, slices.Values([]*corev1.ConfigMap{seen}), config("v")).
			Exactly(".data").Replace(metav1.DeletePropagationBackground))
	require.True(t, apierrors.IsInvalid(err), err)
	require.Equal(t, objects.Failed, outcomes[0].Effect)
	now, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, made.UID, now.UID)
}

func TestApplySetRefusesMistakes(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	server := &oneWay{t: t}
	client := func(string) objects.Replacer[*corev1.ConfigMap] { return server }
	none := slices.Values([]*corev1.ConfigMap{})
	for want, part := range map[string]objects.Part{
		"part 0 is nil": nil,
		"part 0: the function that returns the client is nil": objects.Children(
			(func(string) objects.Replacer[*corev1.ConfigMap])(nil), none),
		"part 0: the objects that were seen are nil": objects.Children(client, nil),
		"part 0: the configuration is nil":           objects.Children(client, none, nil),
		"part 0: the configuration has no name": objects.Children(client, none,
			&corev1ac.ConfigMapApplyConfiguration{}),
		"part 0: there are two configurations of def": objects.Children(client, none, config("1"), config("2")),
		`part 0: the field "data" is not a path such`: objects.Children(client, none).Exactly("data"),
	} {
		_, err := objects.ApplySet(testCtx(t), owner, forced, part)
		require.ErrorContains(t, err, "ApplySet: "+want)
	}
	_, err := objects.ApplySet(testCtx(t), owner, forced, objects.Children(client, none, config("1")),
		objects.Children(client, none))
	require.EqualError(t, err,
		"ApplySet: parts 0 and 1 are both of *v1.ConfigMap: each would delete what the other wants")
	_, err = objects.ApplySet(testCtx(t), nil, forced)
	require.EqualError(t, err, "ApplySet: the owner is nil")
	_, err = objects.ApplySet(testCtx(t), owner, metav1.ApplyOptions{}, objects.Children(client, none, config("1")))
	require.ErrorContains(t, err, "ApplyOptions.FieldManager is empty")
}
