package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// testPod is a running pod labelled app=web that nobody owns.
func testPod(uid types.UID, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), Namespace: "ns", UID: uid, Labels: map[string]string{"app": "web"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
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
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid})
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

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		rs   *appsv1.ReplicaSet
		pod  *corev1.Pod
		want verdict
	}{
		"ours and matching":                      {testRS(), testPod("p", ownedBy("rs-uid")), kept},
		"ours and matching, set deleting":        {testRS(rsDeleting), testPod("p", ownedBy("rs-uid")), kept},
		"ours, no longer matching":               {testRS(), testPod("p", ownedBy("rs-uid"), labelled("app", "db")), released},
		"ours, no longer matching, set deleting": {testRS(rsDeleting), testPod("p", ownedBy("rs-uid"), labelled("app", "db")), ignored},
		"ours, no longer matching, ending":       {testRS(), testPod("p", ownedBy("rs-uid"), labelled("app", "db"), ending), ignored},
		"ours but ending":                        {testRS(), testPod("p", ownedBy("rs-uid"), ending), ignored},
		"ours but failed":                        {testRS(), testPod("p", ownedBy("rs-uid"), inPhase(corev1.PodFailed)), ignored},
		"ours but succeeded":                     {testRS(), testPod("p", ownedBy("rs-uid"), inPhase(corev1.PodSucceeded)), ignored},
		"of another owner":                       {testRS(), testPod("p", ownedBy("other")), ignored},
		"of our namesake of before":              {testRS(), testPod("p", ownedBy("old-rs-uid"), labelled("app", "db")), ignored},
		"orphan, matching":                       {testRS(), testPod("p"), adopted},
		"orphan, matching, set deleting":         {testRS(rsDeleting), testPod("p"), ignored},
		"orphan, matching, ending":               {testRS(), testPod("p", ending), ignored},
		"orphan, matching, failed":               {testRS(), testPod("p", inPhase(corev1.PodFailed)), ignored},
		"orphan, not matching":                   {testRS(), testPod("p", labelled("app", "db")), ignored},
		"lists us as a mere owner":               {testRS(), testPod("p", alsoListing("rs-uid")), adopted},
		"lists us as a mere owner, has another":  {testRS(), testPod("p", alsoListing("rs-uid"), ownedBy("other")), ignored},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := selectorOf(c.rs)
			require.NoError(t, err)
			require.Equal(t, c.want, judge(c.rs, selector, c.pod))
		})
	}
}

func TestSelectorOf(t *testing.T) {
	pod := testPod("p")

	empty, err := selectorOf(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = &metav1.LabelSelector{} }))
	require.NoError(t, err)
	require.Equal(t, ignored, judge(testRS(), empty, pod), "an empty selector must not grab every pod of the namespace")

	missing, err := selectorOf(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = nil }))
	require.NoError(t, err)
	require.Equal(t, ignored, judge(testRS(), missing, pod))

	_, err = selectorOf(testRS(func(rs *appsv1.ReplicaSet) {
		rs.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	}))
	require.ErrorContains(t, err, "selector")
}

func TestTerminating(t *testing.T) {
	selector, err := selectorOf(testRS())
	require.NoError(t, err)
	got := terminating(testRS(), selector, []*corev1.Pod{
		testPod("1", ownedBy("rs-uid"), ending),
		testPod("2", ownedBy("rs-uid"), ending),
		testPod("3", ownedBy("rs-uid")),
		testPod("4", ownedBy("rs-uid"), ending, inPhase(corev1.PodFailed)),
		testPod("5", ownedBy("rs-uid"), ending, labelled("app", "db")),
		testPod("6", ownedBy("other"), ending),
		testPod("7", ending),
	})
	require.EqualValues(t, 2, got)
}
