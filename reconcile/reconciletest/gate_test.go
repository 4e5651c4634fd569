package reconciletest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestGatesLetTheFirstThrough is what a run's being the same each time rests on: Go's scheduler decides in which order
// requests of one time come.
func TestGatesLetTheFirstThrough(t *testing.T) {
	now := time.Now()
	at := func(after time.Duration, verb string, incarnation int) *gate {
		return &gate{at: now.Add(after), process: &process{incarnation: incarnation},
			request: Request{Verb: verb, Resource: corev1.SchemeGroupVersion.WithResource("pods")}}
	}
	want := []*gate{at(0, "update", 3), at(1, "create", 1), at(1, "create", 2), at(1, "delete", 1)}
	gs := newGates(nil)
	gs.pending = []*gate{want[3], want[2], want[0], want[1]}
	gs.choose = func(n int) int { return n - 1 }
	require.Same(t, want[3], gs.pick(), "a schedule with a seed chooses")
	gs.pending = []*gate{want[2], want[3], want[1], want[0]}
	gs.choose = nil
	for _, g := range want {
		require.Same(t, g, gs.pick())
		require.True(t, gs.drop(g))
		require.False(t, gs.drop(g))
	}
	require.Nil(t, gs.pick())
}

// TestWhatShowsThatAProgramIsAtWork leaves out what a program does to show that it lives.
func TestWhatShowsThatAProgramIsAtWork(t *testing.T) {
	for _, test := range []struct {
		verb, group, resource string
		counts, alike         bool
	}{
		{"update", "", "pods", true, false},
		{"list", "", "pods", false, false},
		{"update", "coordination.k8s.io", "leases", false, true},
		{"update", "example.com", "leases", true, true},
		{"create", "", "events", false, true},
		{"create", "events.k8s.io", "events", false, true},
		{"create", "authorization.k8s.io", "selfsubjectaccessreviews", true, true},
	} {
		g := &gate{request: Request{Verb: test.verb, Resource: schema.GroupVersionResource{Group: test.group,
			Version: "v1", Resource: test.resource}}}
		require.Equal(t, test.counts, g.counts(), g.request)
		require.Equal(t, test.alike, alike(g.kind()), g.request)
	}
}
