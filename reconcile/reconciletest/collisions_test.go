package reconciletest_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// rollsOut gives each Greeting a ReplicaSet whose name ends in a hash of its template and of how many collisions there
// were, and deletes its other ones. mine says whether a ReplicaSet that has the name already will do.
func rollsOut(mine func(g *unstructured.Unstructured, there *appsv1.ReplicaSet) bool) reconciletest.Scenario {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		sets := c.core.AppsV1().ReplicaSets("default")
		all, err := sets.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		current := ""
		for _, set := range all.Items {
			if metav1.IsControlledBy(&set, g) && set.Spec.Template.Labels["text"] == text {
				current = set.Name
			}
		}
		for collisions := 0; current == "" && err == nil; {
			set := setOf(g, text, collisions)
			_, err = sets.Create(ctx, set, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				_, err = sets.Create(ctx, set, metav1.CreateOptions{}) // its queue would do so later
			}
			switch {
			case err == nil:
				current = set.Name
			case apierrors.IsAlreadyExists(err):
				var there *appsv1.ReplicaSet
				if there, err = sets.Get(ctx, set.Name, metav1.GetOptions{}); err == nil && mine(g, there) {
					current = set.Name
				}
				collisions++
			}
		}
		if err == nil {
			all, err = sets.List(ctx, metav1.ListOptions{})
		}
		for _, set := range all.Items {
			if err == nil && metav1.IsControlledBy(&set, g) && set.Name != current {
				err = ignoreGone(sets.Delete(ctx, set.Name, metav1.DeleteOptions{}))
			}
		}
		return err
	}))
	s.Server.Roles, s.User, s.Settled = nil, "", nil
	s.Steps = s.Steps[:1]
	return s
}

func setOf(g *unstructured.Unstructured, text string, collisions int) *appsv1.ReplicaSet {
	h := fnv.New32a()
	fmt.Fprint(h, text, collisions)
	hash := fmt.Sprintf("%08x", h.Sum32())
	labels := map[string]string{"text": text, appsv1.DefaultDeploymentUniqueLabelKey: hash}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: g.GetName() + "-" + hash, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(g, greetings.GroupVersion().WithKind("Greeting"))}},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}},
	}
}

// TestCheckFindsACollisionThatIsNone: the ReplicaSet that is there is the program's own, whose answer was lost.
func TestCheckFindsACollisionThatIsNone(t *testing.T) {
	s := rollsOut(func(*unstructured.Unstructured, *appsv1.ReplicaSet) bool { return false })
	s.Replay = "v1 seed=0 steps=1: lose answer to create replicasets #1"
	found := first(t, s)
	require.Equal(t, "ends alike", found.Rule, found)
	require.Regexp(t, `a-<hash of \w+> .metadata.name: A has a-\w+, B has a-\w+`, found.Detail[1])
}

// TestCheckIsSilentAboutACollision with the ReplicaSet of a namesake, after which the same template has another hash.
func TestCheckIsSilentAboutACollision(t *testing.T) {
	s := rollsOut(func(g *unstructured.Unstructured, there *appsv1.ReplicaSet) bool {
		return metav1.IsControlledBy(there, g)
	})
	s.Replay = "v1 seed=0 steps=1: namesake at once after step 1"
	require.Empty(t, reconciletest.Search(t, s))
	require.Regexp(t, `(?s)create replicasets default/: 409.*create replicasets default/: 201`,
		reconciletest.Traces(t, s, s.Replay, 1)[0])
	s.Replay = "v1 seed=0 steps=1: lose answer to create replicasets #1"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestCheckNamesALostWriteOfWhatAHashNames although a snapshot calls the object otherwise.
func TestCheckNamesALostWriteOfWhatAHashNames(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		sets := c.core.AppsV1().ReplicaSets("default")
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		set := setOf(g, "same", 0)
		there, err := sets.Get(ctx, set.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			there, err = sets.Create(ctx, set, metav1.CreateOptions{})
		}
		if replicas := int32(len(text)); err == nil && *there.Spec.Replicas != replicas {
			there.Spec.Replicas = &replicas
			_, _ = sets.Update(ctx, there, metav1.UpdateOptions{})
		}
		return err
	}))
	s.Server.Roles, s.User, s.Settled = nil, "", nil
	s.Steps = s.Steps[:2]
	s.Replay = "v1 seed=0 steps=2: 500 to update replicasets #2"
	require.Equal(t, "repeats a write that failed", first(t, s).Rule)
}
