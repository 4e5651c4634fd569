package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestAHeldRequestIsNoStuckGoroutine, even if the goroutine says what it does after the Gate has begun to hold its
// request, which another goroutine sends.
func TestAHeldRequestIsNoStuckGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pulse
		var found []error
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.watch(ctx, "reflector", func(err error) { found = append(found, err) })
		on := rests(context.WithValue(ctx, pulseKey{}, &p))
		p.does(asking)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Empty(t, found)
		on()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, found, 1, "it is not held any more, and does not move")
	})
}

// The time of a request begins anew when the Gate lets it go, however long before that somebody has looked.
func TestARequestThatWasHeldHasAllOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pulse
		found := make(chan error, 9)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.watch(ctx, "reflector", func(err error) { found <- err })
		p.does(asking)
		on := rests(context.WithValue(ctx, pulseKey{}, &p))
		time.Sleep(10*stuckEvery - time.Second) // a second before the next look
		on()
		time.Sleep(stuckAfter)
		synctest.Wait()
		require.Empty(t, found)
		time.Sleep(stuckEvery)
		synctest.Wait()
		require.Len(t, found, 1)
	})
}

// Each call returns soon, so nothing stands still, however many there are.
func TestManyCallsOfInvalidAreNotOneCall(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
		if strings.HasPrefix(p.Name, "bad") {
			return nil, errors.New("refused")
		}
		return p, nil
	}}, func(t *testing.T, p *proxy, inf *informerOfPods, _ *history) {
		for i := range chunk - 10 {
			p.Create(pod(fmt.Sprint("bad-", i)))
		}
		calls := 0
		_, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Inline: true,
			Invalid: func(Key, *InvalidError, *InvalidError) { calls++; time.Sleep(2 * time.Second) }})
		require.NoError(t, err)
		run(t, inf)
		for range 100 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.NotErrorIs(t, inf.Health().LastError, errStuck)
		}
		require.Equal(t, chunk-10, calls)
	})
}
