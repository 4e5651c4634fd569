package leaderelection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestACrashLeavesNoWord(t *testing.T) {
	base := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"whose": "theirs"}}}
	base.Spec = record("a leader", 15*time.Second, 7, time.Now(), time.Now())
	free := bequeath(released(base, time.Now()), new("seven"))
	taken := claimed(free, metav1.ObjectMeta{}, "the next", 15*time.Second, time.Now())
	require.Equal(t, map[string]string{"whose": "theirs", handoverAnnotation: "seven"}, taken.Annotations)
	expired := claimed(taken, metav1.ObjectMeta{}, "the one after", 15*time.Second, time.Now())
	require.Equal(t, map[string]string{"whose": "theirs"}, expired.Annotations, "the next has not left it")
}
