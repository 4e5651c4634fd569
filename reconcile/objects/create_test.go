package objects_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

func newOwner(t *testing.T) *objects.Owner {
	return objects.NewOwner(newDesk[*appsv1.ReplicaSet](t), newSet("owner", "u"), setKind)
}

func TestWhatIsCreatedIsOwned(t *testing.T) {
	pods := newDesk[*corev1.Pod](t)
	template := newPod("a", "", theirInterest)
	template.Namespace = ""
	before := clone(template)
	created, err := objects.CreateOwned(testCtx(t), newOwner(t), pods, template)
	require.NoError(t, err)
	require.Equal(t, pods.get("a"), created)
	require.Equal(t, "default", created.Namespace)
	require.Equal(t, []metav1.OwnerReference{theirInterest, ourRef}, created.OwnerReferences)
	require.Equal(t, before, template, "the template was changed")
	require.Equal(t, []string{"create a"}, pods.took())
}

// TestACreationMayBeRepeated loses the answer of the first; the second finds what the first has made.
func TestACreationMayBeRepeated(t *testing.T) {
	pods := newDesk[*corev1.Pod](t)
	pods.after = func(string) error { return errors.New("connection reset") }
	_, err := objects.CreateOwned(testCtx(t), newOwner(t), pods, newPod("a", ""))
	require.ErrorContains(t, err, "create default/a for ReplicaSet default/owner: connection reset")
	pods.after = nil
	existing, err := objects.CreateOwned(testCtx(t), newOwner(t), pods, newPod("a", ""))
	require.NoError(t, err)
	require.Equal(t, pods.get("a"), existing)
	require.Equal(t, []string{"create a", "create a", "get a"}, pods.took())
}

func TestANameThatIsTaken(t *testing.T) {
	for want, owners := range map[string][]metav1.OwnerReference{
		"has no controller":                   {theirInterest},
		"ReplicaSet another (UID x) controls": {anotherRef},
		// the owner's namesake
		"ReplicaSet owner (UID before) controls":  {*metav1.NewControllerRef(newSet("owner", "before"), setKind)},
		"is taken by an object that has no contr": {ourInterest},
	} {
		pods := newDesk(t, newPod("a", "1", owners...))
		before := pods.get("a")
		_, err := objects.CreateOwned(testCtx(t), newOwner(t), pods, newPod("a", ""))
		require.ErrorContains(t, err, want)
		var taken *objects.TakenError
		require.ErrorAs(t, err, &taken)
		require.Equal(t, informer.Key{Namespace: "default", Name: "a"}, taken.Key)
		require.Equal(t, metav1.GetControllerOf(before), taken.Controller)
		require.True(t, apierrors.IsAlreadyExists(err))
		require.Equal(t, before, pods.get("a"))
	}
}

func TestWhatWasInTheWayIsGone(t *testing.T) {
	pods := newDesk(t, newPod("a", "1", ourRef))
	pods.before = func(verb string) error {
		if verb == "get" {
			pods.remove("a")
		}
		return nil
	}
	_, err := objects.CreateOwned(testCtx(t), newOwner(t), pods, newPod("a", ""))
	require.True(t, apierrors.IsNotFound(err), err)
	var taken *objects.TakenError
	require.False(t, errors.As(err, &taken))
	_, err = objects.CreateOwned(testCtx(t), newOwner(t), pods, newPod("a", ""))
	require.NoError(t, err)
}

func TestCreateOwnedRefusesMistakes(t *testing.T) {
	pods := newDesk[*corev1.Pod](t)
	generated := newPod("", "")
	generated.GenerateName = "a-"
	elsewhere := newPod("a", "")
	elsewhere.Namespace = "elsewhere"
	for want, test := range map[string]struct {
		owner  *objects.Owner
		client objects.Creator[*corev1.Pod]
		child  *corev1.Pod
	}{
		"the owner is nil": {nil, pods, newPod("a", "")},
		"CreateOwned: the owner": {objects.NewOwner[*appsv1.ReplicaSet](nil, nil, setKind), pods,
			newPod("a", "")},
		"the client is nil":           {newOwner(t), nil, newPod("a", "")},
		"the object is nil":           {newOwner(t), pods, nil},
		`no name (GenerateName "a-")`: {newOwner(t), pods, generated},
		"another namespace":           {newOwner(t), pods, elsewhere},
		"has a controller: another":   {newOwner(t), pods, newPod("a", "", anotherRef)},
	} {
		_, err := objects.CreateOwned(testCtx(t), test.owner, test.client, test.child)
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, pods.took())
}
