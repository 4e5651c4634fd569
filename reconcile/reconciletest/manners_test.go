package reconciletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Keys that write one object wait each for itself; a key that does not wait is found.
func TestAPauseIsThatOfARequestWithItsContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		insists := func(content func(i int) uint64) *breach {
			m, p := newManners(), &process{}
			for i := range 6 {
				g := &gate{request: Request{Verb: "patch", Resource: pods, Name: "a"}, content: content(i), process: p,
					at: time.Now()}
				if found := m.heed(g, disturbance{what: refuse429}, 0); found != nil {
					return found
				}
			}
			return nil
		}
		require.Nil(t, insists(func(i int) uint64 { return uint64(i) }))
		require.NotNil(t, insists(func(int) uint64 { return 7 }))
	})
}
