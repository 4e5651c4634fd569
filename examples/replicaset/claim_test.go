package main

import (
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// testRS is a ReplicaSet that wants pods labelled app=web.
func testRS(change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	replicas := int32(3)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "rs-uid", Generation: 7},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "tier": "front"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	for _, f := range change {
		f(rs)
	}
	return rs
}

// testPod is a running pod labelled app=web without an owner.
func testPod(uid types.UID, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), Namespace: "ns", UID: uid,
			Labels: map[string]string{"app": "web"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func ownedBy(uid types.UID) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		isController := true
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid, Controller: &isController,
		})
	}
}

func alsoListing(uid types.UID) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = append(pod.OwnerReferences,
			metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid})
	}
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{key: value} }
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func ending(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)} }

func rsDeleting(rs *appsv1.ReplicaSet) {
	rs.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
}

// what happens to a candidate, as far as one can see it from outside.
type outcome string

const (
	ignored  outcome = "not ours, and nothing is sent"
	kept     outcome = "ours, and nothing is sent"
	adopted  outcome = "ours, after a look at the live ReplicaSet and a patch"
	released outcome = "not ours, after a patch"
	fails    outcome = "nothing is known, after a look at the live ReplicaSet"
)

func TestWhatIsClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		rs   *appsv1.ReplicaSet
		pod  *corev1.Pod
		want outcome
	}{
		"ours and matching":               {testRS(), testPod("p", ownedBy("rs-uid")), kept},
		"ours and matching, set deleting": {testRS(rsDeleting), testPod("p", ownedBy("rs-uid")), kept},
		"ours, no longer matching": {testRS(), testPod("p", ownedBy("rs-uid"), labelled("app", "db")),
			released},
		"ours, no longer matching, set deleting": {testRS(rsDeleting),
			testPod("p", ownedBy("rs-uid"), labelled("app", "db")), ignored},
		"ours, no longer matching, ending": {testRS(),
			testPod("p", ownedBy("rs-uid"), labelled("app", "db"), ending), ignored},
		"ours but ending": {testRS(), testPod("p", ownedBy("rs-uid"), ending), ignored},
		"ours but failed": {testRS(), testPod("p", ownedBy("rs-uid"), inPhase(corev1.PodFailed)),
			ignored},
		"ours but succeeded": {testRS(),
			testPod("p", ownedBy("rs-uid"), inPhase(corev1.PodSucceeded)), ignored},
		"of another owner": {testRS(), testPod("p", ownedBy("other")), ignored},
		"of our namesake of before": {testRS(), testPod("p", ownedBy("old-rs-uid"), labelled("app", "db")),
			ignored},
		"orphan, matching":               {testRS(), testPod("p"), adopted},
		"orphan, matching, set deleting": {testRS(rsDeleting), testPod("p"), ignored},
		"orphan, matching, set deleted since": {testRS(func(rs *appsv1.ReplicaSet) { rs.UID = "dead" }),
			testPod("p"), fails},
		"orphan, matching, ending": {testRS(), testPod("p", ending), ignored},
		"orphan, matching, failed": {testRS(), testPod("p", inPhase(corev1.PodFailed)), ignored},
		"orphan, not matching":     {testRS(), testPod("p", labelled("app", "db")), ignored},
		"lists us as a mere owner": {testRS(), testPod("p", alsoListing("rs-uid")), adopted},
		"lists us as a mere owner, has another": {testRS(), testPod("p", alsoListing("rs-uid"), ownedBy("other")),
			ignored},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := selectorOf(c.rs)
			require.NoError(t, err)
			api := inMemory(t)
			live := api.createRS(testRS())
			if c.rs.UID == "rs-uid" {
				c.rs.UID = live.UID
			}
			for i := range c.pod.OwnerReferences {
				if c.pod.OwnerReferences[i].UID == "rs-uid" {
					c.pod.OwnerReferences[i].UID = live.UID
				}
			}
			created := api.createPod(c.pod)
			c.pod.UID, c.pod.ResourceVersion = created.UID, created.ResourceVersion
			before := c.pod.DeepCopy()
			r := &replicaSetReconciler{server: api.server}
			mine, err := r.claim(t.Context(), c.rs, objects.NewOwner(r.server.replicaSets.In("ns"), c.rs, kind),
				selector,
				map[types.UID]*corev1.Pod{c.pod.UID: c.pod})
			require.Equal(t, before, c.pod, "a cached object stays as it is")

			sent, ours := api.order(), len(mine) == 1
			switch c.want {
			case fails:
				require.ErrorIs(t, err, objects.ErrGone)
				require.Equal(t, []string{"GET replicasets"}, sent)
				return
			case adopted:
				require.Equal(t, []string{"GET replicasets", "PATCH pods"}, sent)
				require.True(t, metav1.IsControlledBy(mine[0], c.rs))
			case released:
				require.Equal(t, []string{"PATCH pods"}, sent)
			default:
				require.Empty(t, sent)
			}
			require.NoError(t, err)
			require.Equal(t, c.want == kept || c.want == adopted, ours)
		})
	}
}

// Where a pod is looked for is decided by what its controller reference says of us: kind, name and UID, not the group.
func TestOwnerKey(t *testing.T) {
	rs := testRS()
	home := ownerKey{"ns", "ReplicaSet", "web", "rs-uid"}
	change := func(f func(*metav1.OwnerReference)) *corev1.Pod {
		return testPod("p", ownedBy("rs-uid"), func(pod *corev1.Pod) { f(&pod.OwnerReferences[0]) })
	}
	require.Equal(t, home, ownerKeyOf(testPod("p", ownedBy("rs-uid"))))
	require.Equal(t, home, ownerKeyOf(
		change(func(ref *metav1.OwnerReference) { ref.APIVersion = "extensions/v1beta1" })))
	require.NotEqual(t, home, ownerKeyOf(
		change(func(ref *metav1.OwnerReference) { ref.Kind = "ReplicationController" })))
	require.NotEqual(t, home, ownerKeyOf(change(func(ref *metav1.OwnerReference) { ref.Name = "db" })))
	require.NotEqual(t, home, ownerKeyOf(change(func(ref *metav1.OwnerReference) { ref.UID = "other" })))
	require.Equal(t, ownerKey{namespace: "ns"}, ownerKeyOf(testPod("p", alsoListing("rs-uid"))),
		"who is no controller does not count")
	require.Equal(t, ownerKey{namespace: "ns"}, ownerKeyOf(rs))
}

// A pod that is adopted between the two looks at the cache is neither missed nor taken for an orphan still.
func TestCandidates(t *testing.T) {
	rs, ours, foreign, orphan := testRS(), testPod("ours", ownedBy("rs-uid")), testPod("foreign", ownedBy("other")),
		testPod("orphan")
	adopted := testPod("orphan", ownedBy("rs-uid"))
	pods := []*corev1.Pod{ours, foreign, orphan}
	looks := 0
	found := candidates(rs, func(p ownerKey) iter.Seq[*corev1.Pod] {
		if looks++; looks == 2 {
			pods[2] = adopted
		}
		return func(yield func(*corev1.Pod) bool) {
			for _, pod := range pods {
				if ownerKeyOf(pod) == p && !yield(pod) {
					return
				}
			}
		}
	})
	require.Equal(t, 2, looks)
	require.Equal(t, map[types.UID]*corev1.Pod{"ours": ours, "orphan": adopted}, found)
}

func TestSelectorOf(t *testing.T) {
	pod := labels.Set{"app": "web"}

	empty, err := selectorOf(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = &metav1.LabelSelector{} }))
	require.NoError(t, err)
	require.False(t, empty.Matches(pod), "an empty selector must not grab every pod of the namespace")

	missing, err := selectorOf(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = nil }))
	require.NoError(t, err)
	require.False(t, missing.Matches(pod))

	_, err = selectorOf(testRS(invalidSelector))
	require.ErrorContains(t, err, "selector")
}

func invalidSelector(rs *appsv1.ReplicaSet) {
	rs.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
		Operator: "Near"}}}
}

func TestTerminating(t *testing.T) {
	selector, err := selectorOf(testRS())
	require.NoError(t, err)
	candidates := map[types.UID]*corev1.Pod{}
	for _, pod := range []*corev1.Pod{
		testPod("1", ownedBy("rs-uid"), ending),
		testPod("2", ownedBy("rs-uid"), ending),
		testPod("3", ownedBy("rs-uid")),
		testPod("4", ownedBy("rs-uid"), ending, inPhase(corev1.PodFailed)),
		testPod("5", ownedBy("rs-uid"), ending, labelled("app", "db")),
		testPod("6", ownedBy("other"), ending),
		testPod("7", ending),
	} {
		candidates[pod.UID] = pod
	}
	require.EqualValues(t, 2, terminating(testRS(), selector, candidates))
}
