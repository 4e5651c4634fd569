package story

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNarratorIntoAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		n := &Narrator{out: &out}
		n.act(1, "Count to three.")
		n.Count("one")
		n.Count("one and a half") // too soon after the one before
		time.Sleep(pipePace)
		n.Count("two")
		time.Sleep(pipePace)
		n.Count("two") // nothing new
		n.result("three")
		require.Equal(t, "\n1. Count to three.\n      one\n      two\n   => three\n", out.String())
	})
}

func TestNarratorOnATerminal(t *testing.T) {
	var out bytes.Buffer
	n := &Narrator{out: &out, terminal: true}
	n.act(1, "Count to three.")
	n.Count("one")
	n.Count("two")
	n.result("three")
	require.Equal(t, "\n1. Count to three.\n\r\033[K      one\r\033[K      two\n   => three\n", out.String())
}

func TestNarratorTakesBuildProgress(t *testing.T) {
	var out bytes.Buffer
	n := &Narrator{out: &out}
	_, err := n.Write([]byte("first\nsecond\n"))
	require.NoError(t, err)
	require.Equal(t, "      first\n      second\n", out.String())
}

func TestLook(t *testing.T) {
	pod := func(name, set, image string) *corev1.Pod {
		controller := true
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name,
			OwnerReferences: []metav1.OwnerReference{{Name: set, Controller: &controller}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
	}
	l := look{owned: []*corev1.Pod{pod("b", "web-2", "web:2"), pod("a", "web-1", "web:1"), pod("c", "web-2", "web:2")},
		ready: 2}
	require.Equal(t, "3 pods, 2 Ready", l.String())
	require.Equal(t, "web-1: 1 of web:1, web-2: 2 of web:2", l.replicaSets())
	require.Equal(t, []string{"a", "b", "c"}, l.names())
	require.Equal(t, 2, l.run("web:2"))
	require.False(t, l.allRun("web:2"))
	require.False(t, settled(3)(l))

	l.ready, l.terminating, l.released = 3, 1, []*corev1.Pod{{}}
	require.Equal(t, "3 pods, 3 Ready, 1 ending, 1 released", l.String())
	require.False(t, settled(3)(l), "one is still ending")
	l.terminating = 0
	require.True(t, settled(3)(l))
}

func TestSeconds(t *testing.T) {
	require.Equal(t, "0.08 s", Seconds(84*time.Millisecond))
	require.Equal(t, "12 s", Seconds(12300*time.Millisecond))
}
