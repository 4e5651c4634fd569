package lifecycle

import (
	"errors"
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

func TestApartSurvivesWhateverIsCalled(t *testing.T) {
	require.NoError(t, Apart(func() {}))
	require.ErrorIs(t, Apart(func() { panic(io.EOF) }), io.EOF)
	require.ErrorIs(t, Apart(runtime.Goexit), ErrExited)
}

func TestOrExitTellsAnExitFromAPanic(t *testing.T) {
	exits := 0
	exited := func() { exits++ }
	OrExit(func() {}, exited)
	require.ErrorIs(t, Try(func() { OrExit(func() { panic(io.EOF) }, exited) }), io.EOF)
	require.Zero(t, exits)
	require.ErrorIs(t, Apart(func() { OrExit(runtime.Goexit, exited) }), ErrExited)
	require.Equal(t, 1, exits)
}

func TestAGuardTellsWhyACallFailed(t *testing.T) {
	var told error
	tell := func(p *PanicError) { told = p }
	require.True(t, Guard(func() {}, tell))
	require.NoError(t, told)
	require.False(t, Guard(func() { panic(io.EOF) }, tell))
	require.ErrorIs(t, told, io.EOF)
	require.ErrorIs(t, Apart(func() { Guard(runtime.Goexit, tell) }), ErrExited)
	require.ErrorIs(t, told, ErrExited)
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
			err := Apart(func() { Each(n, call) })
			require.Len(t, called, n)
			require.IsIncreasing(t, append([]int{-2, -1}, called...))
			require.Equal(t, exits != 0, errors.Is(err, ErrExited), "%d of %d", exits, n)
		}
	}
}
