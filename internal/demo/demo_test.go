package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The whole of it, as "make demo" runs it.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	say := &narrator{out: &out}
	stage := &here{narrator: say}
	err := run(t.Context(), say, stage, false)
	require.NoError(t, err, out.String())
	t.Log(out.String())
	require.Equal(t, len((&demo{stage: stage}).steps()), strings.Count(out.String(), "   => "),
		"each step has a result")
}

func TestNarratorIntoAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		n := &narrator{out: &out}
		n.step(1, "Count to three.")
		n.count("one")
		n.count("one and a half") // too soon after the one before
		time.Sleep(pipePace)
		n.count("two")
		time.Sleep(pipePace)
		n.count("two") // nothing new
		n.result("three")
		require.Equal(t, "\n1. Count to three.\n      one\n      two\n   => three\n", out.String())
	})
}

func TestNarratorOnATerminal(t *testing.T) {
	var out bytes.Buffer
	n := &narrator{out: &out, terminal: true}
	n.step(1, "Count to three.")
	n.count("one")
	n.count("two")
	n.result("three")
	require.Equal(t, "\n1. Count to three.\n\r\033[K      one\r\033[K      two\n   => three\n", out.String())
}

func TestNarratorTakesBuildProgress(t *testing.T) {
	var out bytes.Buffer
	n := &narrator{out: &out}
	_, err := n.Write([]byte("first\nsecond\n"))
	require.NoError(t, err)
	require.Equal(t, "      first\n      second\n", out.String())
}

func TestLook(t *testing.T) {
	pod := func(name, image string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
	}
	l := look{owned: []*corev1.Pod{pod("a", "web:1"), pod("b", "web:2"), pod("c", "web:2")}, ready: 2}
	require.Equal(t, "3 pods, 2 Ready", l.String())
	require.Equal(t, "1 of web:1, 2 of web:2", l.images())
	require.True(t, l.has("b"))
	require.False(t, l.has("d"))
	require.False(t, l.allRun("web:2"))
	require.False(t, settled(3)(l))

	l.ready, l.terminating, l.released = 3, 1, []*corev1.Pod{pod("d", "web:1")}
	require.Equal(t, "3 pods, 3 Ready, 1 ending, 1 released", l.String())
	require.False(t, settled(3)(l), "one is still ending")
	l.terminating = 0
	require.True(t, settled(3)(l))
}

func TestSeconds(t *testing.T) {
	require.Equal(t, "0.08 s", seconds(84*time.Millisecond))
	require.Equal(t, "12 s", seconds(12300*time.Millisecond))
}
