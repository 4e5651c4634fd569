package leaderelection

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestALeaderLeavesWordForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		ctx, cancel := quiet(t)
		defer cancel()
		skip := func(c *Config) { c.SkipFirstWait = true }
		lead := func(e *Elector, word string) (found string) {
			require.Empty(t, e.Left(), "it does not lead yet")
			require.NoError(t, e.Run(ctx, func(context.Context) error {
				found = e.Left()
				if word != "" {
					e.Leave("not yet")
					e.Leave(word)
				}
				return nil
			}))
			return found
		}
		first, second := candidate(t, s.link("first"), skip), candidate(t, s.link("second"), skip)
		require.Empty(t, lead(first, "seven"))
		require.True(t, isReleased(s.get()))
		require.Equal(t, "seven", lead(second, ""))
		require.Equal(t, "seven", lead(second, "eight"), "who has nothing to say takes nothing away")
		require.Equal(t, "eight", lead(first, ""))
	})
}
