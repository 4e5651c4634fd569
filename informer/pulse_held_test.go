package informer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
