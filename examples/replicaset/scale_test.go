package main

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each call takes a second, so the seconds that passed are the number of batches.
func TestSlowStart(t *testing.T) {
	for name, c := range map[string]struct {
		n, room     int // calls asked for, and how many of them succeed
		calls       int
		batches     int
		wantFailure bool
	}{
		"none":                          {n: 0, room: 100},
		"one":                           {n: 1, room: 100, calls: 1, batches: 1},
		"1+2+4+3":                       {n: 10, room: 100, calls: 10, batches: 4},
		"500":                           {n: 500, room: 500, calls: 500, batches: 9},
		"no room: one call finds out":   {n: 500, room: 0, calls: 1, batches: 1, wantFailure: true},
		"a batch is finished, then end": {n: 500, room: 5, calls: 7, batches: 3, wantFailure: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				start := time.Now()
				err := slowStart(c.n, func() error {
					time.Sleep(time.Second)
					if calls.Add(1) > int64(c.room) {
						return errors.New("no room")
					}
					return nil
				})
				require.Equal(t, c.wantFailure, err != nil)
				require.EqualValues(t, c.calls, calls.Load())
				require.Equal(t, time.Duration(c.batches)*time.Second, time.Since(start))
			})
		})
	}
}

func TestAtOnceWaitsForAllAndTellsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		err := atOnce(20, func(i int) error {
			time.Sleep(time.Duration(i) * time.Second)
			ended.Add(1)
			if i%2 == 0 {
				return errors.New("even")
			}
			return nil
		})
		require.EqualError(t, err, "even")
		require.EqualValues(t, 20, ended.Load())
	})
}

func TestPodFor(t *testing.T) {
	rs := testRS(func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Annotations = map[string]string{"note": "kept"}
		rs.Spec.Template.Finalizers = []string{"example.com/kept"}
		rs.Spec.Template.Name = "not-kept"
	})
	yes := true
	pod, err := podFor(rs)
	require.NoError(t, err)
	require.Equal(t, metav1.ObjectMeta{
		GenerateName: "web-", Namespace: "ns",
		Labels:      map[string]string{"app": "web", "tier": "front"},
		Annotations: map[string]string{"note": "kept"},
		Finalizers:  []string{"example.com/kept"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs-uid", Controller: &yes, BlockOwnerDeletion: &yes,
		}},
	}, pod.ObjectMeta)
	require.Equal(t, rs.Spec.Template.Spec, pod.Spec)

	pod.Labels["app"], pod.Spec.Containers[0].Image = "changed", "changed"
	require.Equal(t, "web", rs.Spec.Template.Labels["app"], "the template is copied, not shared")
	require.Equal(t, "i", rs.Spec.Template.Spec.Containers[0].Image)
}

func TestPodForWithoutLabels(t *testing.T) {
	_, err := podFor(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = nil }))
	require.ErrorContains(t, err, "no labels")
}

func TestWanted(t *testing.T) {
	require.Equal(t, 3, wanted(testRS()))
	require.Equal(t, 1, wanted(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = nil })))
}
