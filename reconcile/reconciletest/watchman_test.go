package reconciletest

import (
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestWorkWithoutAPause is believed when a run was seen at it often, with the line.
func TestWorkWithoutAPause(t *testing.T) {
	var stop atomic.Bool
	begun, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		synctest.Test(t, func(*testing.T) {
			begun <- bubbleText.FindString(string(debug.Stack()))
			for !stop.Load() { // it never gets to know that time passes
			}
		})
	}()
	bubble := <-begun
	w := &watchman{}
	w.bubble.Store(&bubble)
	looks := func(n int) (text string, good bool) {
		for range n {
			if text, good = w.look(); good {
				break
			}
		}
		return text, good
	}
	_, good := looks(workFor)
	require.False(t, good, "too soon")
	w.turns.Add(1) // it has asked the server
	_, good = looks(1 + workFor)
	require.False(t, good, "it has gone on")
	text, good := looks(1)
	require.True(t, good)
	require.Contains(t, text, "it is at work, for a minute by now")
	stop.Store(true)
	<-ended
}
