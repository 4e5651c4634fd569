package lifecycle

import (
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAGoroutineIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		calls := 0
		g.Keep("kept", func() {
			if calls++; calls < 5 {
				runtime.Goexit()
			}
			time.Sleep(time.Minute)
		})
		require.ErrorIs(t, g.Wait(time.Second), ErrStuck)
		require.NoError(t, g.Wait(time.Hour))
		require.Equal(t, 5, calls)
	})
}

// apart calls fn on a goroutine of its own, which it may end.
func apart(fn func()) {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	<-done
}

func TestOrExitTellsAnExitFromAPanic(t *testing.T) {
	exits := 0
	exited := func() { exits++ }
	OrExit(func() {}, exited)
	require.ErrorIs(t, Try(func() { OrExit(func() { panic(io.EOF) }, exited) }), io.EOF)
	require.Zero(t, exits)
	apart(func() { OrExit(runtime.Goexit, exited) })
	require.Equal(t, 1, exits)
}

func TestAGuardTellsWhyACallFailed(t *testing.T) {
	var told error
	tell := func(p *PanicError) { told = p }
	require.True(t, Guard(func() {}, tell))
	require.NoError(t, told)
	require.False(t, Guard(func() { panic(io.EOF) }, tell))
	require.ErrorIs(t, told, io.EOF)
	apart(func() { Guard(runtime.Goexit, tell) })
	require.ErrorIs(t, told, ErrExited)
}
