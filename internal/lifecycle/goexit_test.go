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

func TestAsideSurvivesWhateverIsCalled(t *testing.T) {
	require.NoError(t, Aside(func() {}))
	require.ErrorIs(t, Aside(func() { panic(io.EOF) }), io.EOF)
	require.Equal(t, ErrExited, Aside(runtime.Goexit))
}

func TestOrExitTellsAnExitFromAPanic(t *testing.T) {
	exits := 0
	exited := func() { exits++ }
	OrExit(func() {}, exited)
	require.ErrorIs(t, Try(func() { OrExit(func() { panic(io.EOF) }, exited) }), io.EOF)
	require.Zero(t, exits)
	require.Equal(t, ErrExited, Aside(func() { OrExit(runtime.Goexit, exited) }))
	require.Equal(t, 1, exits)
}

func TestAnAttemptTellsWhyItFailed(t *testing.T) {
	var told error
	tell := func(err error) { told = err }
	require.True(t, Attempt(func() {}, tell))
	require.NoError(t, told)
	require.False(t, Attempt(func() { panic(io.EOF) }, tell))
	require.ErrorIs(t, told, io.EOF)
	require.Equal(t, ErrExited, Aside(func() { Attempt(runtime.Goexit, tell) }))
	require.Equal(t, ErrExited, told)
}

func TestTheOthersAreCalledBeforeAGoroutineEnds(t *testing.T) {
	for n := range 5 {
		for exits := range 1 << n {
			var called []int
			call := func(i int) {
				if called = append(called, i); exits&(1<<i) != 0 {
					runtime.Goexit()
				}
			}
			err := Aside(func() { Each(n, call) })
			require.Len(t, called, n)
			require.IsIncreasing(t, append([]int{-2, -1}, called...))
			require.Equal(t, exits != 0, err == ErrExited, "%d of %d", exits, n)
		}
	}
}
