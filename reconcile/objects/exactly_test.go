package objects_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func TestExactlyInMemory(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	testExactly(t, server.Config(), "default")
}

func TestExactlyOnAServer(t *testing.T) {
	c := testcluster.Shared(t)
	testExactly(t, c.Config(), c.Namespace(t))
}

var forced = metav1.ApplyOptions{FieldManager: "me", Force: true}

func testExactly(t *testing.T, cfg *rest.Config, namespace string) {
	client := kubernetes.NewForConfigOrDie(cfg)
	t.Run("map", func(t *testing.T) {
		maps := client.CoreV1().ConfigMaps(namespace)
		config := corev1ac.ConfigMap("exact", namespace).WithData(map[string]string{"a": "1", "b": "2"}).
			WithLabels(map[string]string{"app": "x"})
		o, err := objects.Apply(t.Context(), maps.Apply, config, forced)
		require.NoError(t, err)
		same, err := objects.Exactly(t.Context(), maps, o, config, ".data", ".metadata.labels", ".binaryData")
		require.NoError(t, err)
		require.Same(t, o, same, "a patch that changes nothing was sent")

		_, err = maps.Patch(t.Context(), "exact", types.MergePatchType, []byte(`{"data":{"b":"3","c":"4","d":"5"},`+
			`"metadata":{"labels":{"example.com/theirs":"y"}}}`), metav1.PatchOptions{FieldManager: "them"})
		require.NoError(t, err)
		old := o
		o, err = objects.Apply(t.Context(), maps.Apply, config, forced)
		require.NoError(t, err)
		require.Len(t, o.Data, 4, "an apply leaves what others have added")
		_, err = objects.Exactly(t.Context(), maps, withData(old, "c", "4"), config, ".data")
		require.True(t, apierrors.IsInvalid(err), "a patch of an old version was accepted: %v", err)
		data, err := objects.Exactly(t.Context(), maps, o, config, ".data")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, data.Data)
		require.Contains(t, data.Labels, "example.com/theirs")
		all, err := objects.Exactly(t.Context(), maps, data, config, ".data", ".metadata.labels")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"app": "x"}, all.Labels)
		none, err := objects.Exactly(t.Context(), maps, all, corev1ac.ConfigMap("exact", namespace), ".data")
		require.NoError(t, err)
		require.Empty(t, none.Data, "a configuration without the field wants no entry")
	})
	t.Run("list", func(t *testing.T) {
		jobs := client.BatchV1().CronJobs(namespace) // a suspended one is written by nobody else
		container := func(name string) *corev1ac.ContainerApplyConfiguration {
			return corev1ac.Container().WithName(name).WithImage("none").WithArgs("x", "y")
		}
		pod := corev1ac.PodSpec().WithRestartPolicy(corev1.RestartPolicyNever).
			WithContainers(container("b"), container("d"))
		config := batchv1ac.CronJob("exact", namespace).WithSpec(batchv1ac.CronJobSpec().WithSuspend(true).
			WithSchedule("0 0 1 1 *").WithJobTemplate(batchv1ac.JobTemplateSpec().WithSpec(
			batchv1ac.JobSpec().WithTemplate(corev1ac.PodTemplateSpec().WithSpec(pod)))))
		o, err := objects.Apply(t.Context(), jobs.Apply, config, forced)
		require.NoError(t, err)
		_, err = jobs.Patch(t.Context(), "exact", types.StrategicMergePatchType, []byte(
			`{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"none"},`+
				`{"name":"c","image":"none"},{"name":"b","env":[{"name":"theirs","value":"x"}]}]}}}}}}`),
			metav1.PatchOptions{FieldManager: "them"})
		require.NoError(t, err)
		seen, err := jobs.Get(t.Context(), "exact", metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, containersOf(seen), 4)
		const containers = ".spec.jobTemplate.spec.template.spec.containers"
		exact, err := objects.Exactly(t.Context(), jobs, seen, config, containers)
		require.NoError(t, err)
		require.Equal(t, []string{"b", "d"}, containersOf(exact))
		require.Len(t, exact.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Env, 1,
			"what is in an entry is not compared")
		require.Equal(t, o.UID, exact.UID)

		// What was not applied cannot be told from what others have added.
		pod.Containers[1].WithImage("other")
		_, err = objects.Exactly(t.Context(), jobs, seen, config, containers)
		require.ErrorContains(t, err, "Exactly: "+containers+" of "+namespace+"/exact does not have element 1 of the "+
			"configuration as it is there: apply it first")
	})
}

// TestExactlyTellsElementsOfListsApart that have no keys, and may have a default that is not configured.
func TestExactlyTellsElementsOfListsApart(t *testing.T) {
	type list = []any
	port := func(n int64, protocol ...any) map[string]any {
		p := map[string]any{"port": n}
		for _, name := range protocol {
			p["protocol"] = name
		}
		return p
	}
	tree := func(ports list) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ports": ports},
			"metadata": map[string]any{"name": "a", "uid": "1", "resourceVersion": "7"}}}
	}
	for name, test := range map[string]struct {
		is, want list
		removes  string // the path
		fails    string
	}{
		"one has a default": {is: list{port(53, "UDP"), port(53, "TCP")}, want: list{port(53, "UDP"), port(53)}},
		"the same twice":    {is: list{port(1, "TCP"), port(1, "TCP")}, want: list{port(1), port(1)}},
		"text twice":        {is: list{"-v", "-v"}, want: list{"-v", "-v"}},
		"another's at the end": {is: list{port(1, "TCP"), port(2, "TCP")}, want: list{port(1)},
			removes: "/spec/ports/1"},
		"another's before": {is: list{port(2, "TCP"), port(1, "TCP")}, want: list{port(1)},
			removes: "/spec/ports/0"},
		"a wider one": {is: list{port(1, "TCP"), port(1), port(2)}, want: list{port(1), port(1, "TCP")},
			removes: "/spec/ports/2"},
		"which one is ours?": {is: list{port(1, "UDP"), port(1, "TCP")}, want: list{port(1)},
			fails: "has more than one element that may be element 0 of the configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			client := &noted{}
			_, err := objects.Exactly(t.Context(), client, tree(test.is), tree(test.want), ".spec.ports")
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.removes, client.removed)
		})
	}
}

// TestExactlyLeavesTheMarkOfAnOwner, without which the object would be nobody's.
func TestExactlyLeavesTheMarkOfAnOwner(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a", "uid": "1",
		"labels":      map[string]any{ownerLabel: "2", "theirs": "x"},
		"annotations": map[string]any{ownerLabel: "default/b"}}}}
	client := &noted{}
	_, err := objects.Exactly(t.Context(), client, o, map[string]any{}, ".metadata.labels", ".metadata.annotations")
	require.NoError(t, err)
	require.Equal(t, "/metadata/labels/theirs", client.removed)
}

// noted notes the last path that a patch removes.
type noted struct{ removed string }

func (n *noted) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (*unstructured.Unstructured, error) {
	var ops []struct{ Op, Path string }
	err := json.Unmarshal(data, &ops)
	for _, op := range ops {
		if op.Op == "remove" {
			n.removed = op.Path
		}
	}
	return &unstructured.Unstructured{}, err
}

func withData(o *corev1.ConfigMap, key, value string) *corev1.ConfigMap {
	o = o.DeepCopy()
	o.Data[key] = value
	return o
}

func containersOf(job *batchv1.CronJob) (names []string) {
	for _, c := range job.Spec.JobTemplate.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

func TestExactlyRefusesMistakes(t *testing.T) {
	maps := newDesk[*corev1.ConfigMap](t)
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1",
		Finalizers: []string{"example.com/theirs"}}, Data: map[string]string{"k": "v"}}
	for field, want := range map[string]string{
		"data":                 `the field "data" is not a path such as .spec.hard`,
		"":                     `the field "" is not a path`,
		".spec..hard":          `the field ".spec..hard" is not a path`,
		".metadata.finalizers": "the field .metadata.finalizers: of the metadata only labels and annotations",
		".metadata":            "the field .metadata: of the metadata only labels and annotations",
		".data.k":              ".data.k of default/a is neither a map nor a list",
	} {
		_, err := objects.Exactly(testCtx(t), maps, o, config("v"), field)
		require.ErrorContains(t, err, "Exactly: "+want)
	}
	_, err := objects.Exactly(testCtx(t), nil, o, config("v"))
	require.EqualError(t, err, "Exactly: the client is nil")
	_, err = objects.Exactly(testCtx(t), maps, (*corev1.ConfigMap)(nil), config("v"))
	require.EqualError(t, err, "Exactly: the object is nil")
	_, err = objects.Exactly(testCtx(t), maps, o, nil)
	require.EqualError(t, err, "Exactly: the configuration is nil")
	_, err = objects.Exactly(testCtx(t), maps, &corev1.ConfigMap{}, config("v"))
	require.ErrorContains(t, err, "has no UID")

	o.DeletionTimestamp = new(metav1.Now())
	same, err := objects.Exactly(testCtx(t), maps, o, config("v"), ".data")
	require.NoError(t, err)
	require.Same(t, o, same, "an object that goes need not be exact")
	require.Empty(t, maps.took())
}
