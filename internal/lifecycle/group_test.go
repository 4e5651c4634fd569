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

func TestWaitReturnsWhenTheLastOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		start := time.Now()
		for i := range 3 {
			g.Go("sleeper", func() { time.Sleep(time.Duration(i+1) * time.Second) })
		}
		require.NoError(t, g.Wait(time.Minute))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.NoError(t, g.Wait(time.Minute), "waiting for nobody returns at once")
	})
}

func TestWaitNamesWhoIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		release := make(chan struct{})
		g.Go("b", func() { <-release })
		g.Go("a", func() { <-release })
		g.Go("quick", func() {})
		start := time.Now()
		err := g.Wait(10 * time.Second)
		require.ErrorIs(t, err, ErrStuck)
		require.EqualError(t, err, "did not stop in time: a, b had 10s to end")
		require.Equal(t, 10*time.Second, time.Since(start))
		close(release)
		require.NoError(t, g.Wait(time.Second))
	})
}

func TestTryTurnsAPanicIntoAnError(t *testing.T) {
	require.NoError(t, Try(func() {}))

	err := Try(func() { panic("the password is swordfish") })
	var p *PanicError
	require.ErrorAs(t, err, &p)
	require.Contains(t, string(p.Stack), "TestTryTurnsAPanicIntoAnError")
	require.Equal(t, "panic of type string", err.Error(), "the value may be a secret")

	require.True(t, errors.Is(Try(func() { panic(io.EOF) }), io.EOF))
}

func TestDoneIsClosedWhenNobodyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		<-g.Done() // nobody yet
		g.Go("sleeper", func() { time.Sleep(time.Second) })
		first, second := g.Done(), g.Done()
		start := time.Now()
		<-first
		<-second
		require.Equal(t, time.Second, time.Since(start))
		<-g.Done()
	})
}

func TestGuardTellsHowAGoroutineWasEnded(t *testing.T) {
	told := make(chan *PanicError, 1)
	returned := false
	go func() {
		Guard(runtime.Goexit, func(p *PanicError) { told <- p })
		returned = true
	}()
	p := <-told
	require.Nil(t, p.Value)
	require.Contains(t, string(p.Stack), "TestGuardTellsHowAGoroutineWasEnded")
	require.False(t, returned)
}

func BenchmarkTry(b *testing.B) {
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		_ = Try(func() { n++ })
	}
}
