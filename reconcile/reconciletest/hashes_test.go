package reconciletest

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestNamesThatEndInHashes stand for the content in a snapshot. The names themselves, and how many collisions there
// have been, are compared unless the controller of the objects has a namesake, with whose objects there may be some.
func TestNamesThatEndInHashes(t *testing.T) {
	server := NewServer(t, Options{})
	owners := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
	var uid types.UID // of the controller
	makeOwner := func() {
		m, err := owners.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		uid = m.UID
	}
	makeOwner()
	made := func(resource, kind, name, hash string, fields map[string]any) kept {
		o := &unstructured.Unstructured{Object: fields}
		group := cmp.Or(map[string]string{"Rollout": "example.com"}[kind], "apps")
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
		o.SetNamespace("default")
		o.SetName(name)
		if o.SetUID(uid); hash != "" {
			o.SetUID("")
			o.SetLabels(map[string]string{"pod-template-hash": hash})
			controls := true
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: uid,
				Controller: &controls}})
		}
		return kept{schema.GroupResource{Group: group, Resource: resource}, o}
	}
	end := func(hash, image, current string, collisions int64) snapshot {
		template := func(image, hash string) map[string]any {
			return map[string]any{"template": map[string]any{"image": image, "hash": hash}}
		}
		return snapshotFrom(server, []kept{
			made("deployments", "Deployment", "web", "", map[string]any{"status": map[string]any{
				"collisionCount": collisions, "message": "it is web-" + current + "."}}),
			made("rollouts", "Rollout", "web", "", map[string]any{"status": map[string]any{
				"collisionCount": collisions}}),
			made("replicasets", "ReplicaSet", "web-old", "old", map[string]any{"spec": template("old", "old")}),
			made("replicasets", "ReplicaSet", "web-"+hash, hash, map[string]any{"spec": template(image, hash)}),
		}, nil, func(*unstructured.Unstructured) {})
	}
	a := end("7f9b54b95", "one", "7f9b54b95", 0)
	needless := end("d9b9f4b64", "one", "d9b9f4b64", 1).differences(a)
	require.Len(t, needless, 3, "another hash, the same content")
	require.Equal(t, "deployments.apps .status.collisionCount", needless[0].kind())
	require.Equal(t, ".metadata.name", needless[1].path)
	require.Equal(t, "rollouts.example.com .status.collisionCount", needless[2].kind(), "its kind is no built-in one")
	require.NotEmpty(t, end("7f9b54b95", "one", "old", 0).differences(a), "the other of the two")
	require.NoError(t, owners.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	makeOwner()
	require.Empty(t, end("d9b9f4b64", "one", "d9b9f4b64", 1).differences(a), "a collision with a namesake's")
	require.NotEmpty(t, end("d9b9f4b64", "two", "d9b9f4b64", 1).differences(a), "another content")
	require.NotEmpty(t, end("7f9b54b95", "one", "old", 0).differences(a), "the other of the two")

	// What is not compared elsewhere is not compared in what the hash stands for either.
	started := func(at string, mask func(*unstructured.Unstructured)) snapshot {
		return snapshotFrom(server, []kept{made("replicasets", "ReplicaSet", "web-7f9b54b95", "7f9b54b95",
			map[string]any{"spec": map[string]any{"template": map[string]any{"restartedAt": at}}})}, nil, mask)
	}
	nothing := func(*unstructured.Unstructured) {}
	require.Empty(t, started("2026-11-27T05:00:00Z", nothing).differences(started("2026-11-28T06:00:00Z", nothing)))
	require.NotEmpty(t, started("one", nothing).differences(started("two", nothing)))
	masked := func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "spec", "template", "restartedAt")
	}
	require.Empty(t, started("one", masked).differences(started("two", masked)))
}

// TestWhatIsLeftIsDeletedByItsName also where a snapshot calls it otherwise, and calls two alike but for a number.
func TestWhatIsLeftIsDeletedByItsName(t *testing.T) {
	server := NewServer(t, Options{})
	sets := kubernetes.NewForConfigOrDie(server.Config()).AppsV1().ReplicaSets("default")
	for i, hash := range []string{"7f9b54b95", "d9b9f4b64"} {
		labels, replicas := map[string]string{"app": "web", "pod-template-hash": hash}, int32(i)
		_, err := sets.Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-" + hash,
			Labels: labels}, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Replicas: &replicas, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	r := &run{server: server, ctx: t.Context(), scenario: &Scenario{}}
	left := func() (names []string) {
		for key := range takeSnapshot(server, nil, func(*unstructured.Unstructured) {}) {
			if strings.HasPrefix(key, "replicasets.apps ") {
				names = append(names, key)
			}
		}
		slices.Sort(names)
		return names
	}
	require.Len(t, left(), 2)
	require.NotContains(t, left(), "replicasets.apps default/web-7f9b54b95")
	r.schedule.deleteLeft = left()[1:]
	verdict{r}.deleteLeft()
	there := List[*appsv1.ReplicaSet](server, "replicasets", "default")
	require.Len(t, there, 1)
	require.Equal(t, "web-7f9b54b95", there[0].Name)
	r.schedule.deleteLeft = left()
	verdict{r}.deleteLeft()
	require.Empty(t, left())
}
