package leaderelection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBesideClientGo is our half of the bargain with client-go's elector, in virtual time: a client-go challenger
// starts only after our work has ended, we start only after a client-go record has expired, and what one released the
// other takes.
func TestBesideClientGo(t *testing.T) {
	theirs := clientGo(true, 0)
	const linger = 2900 * time.Millisecond // nearly StopGrace
	for name, c := range map[string]struct {
		holder, challenger kind
		linger             time.Duration
		end                func(holder *process)
		soonest, latest    time.Duration // until the challenger works, from when the holder was told or cut off
	}{
		// An expiry counts from the last look at the last renewal, which was up to RetryPeriod ago. A client-go
		// challenger looks every 2 to 4.4 s.
		"ours is cut off": {ours(), theirs, linger, func(h *process) { h.link.cut(true) },
			12900 * time.Millisecond, 24 * time.Second},
		"ours is asked to end": {ours(), theirs, linger, func(h *process) { h.cancel() }, linger,
			linger + 4500*time.Millisecond},
		"client-go is killed": {theirs, ours(), 0, (*process).kill, 13 * time.Second, 18 * time.Second},
		"client-go is cut off": {clientGo(false, 0), ours(), 0, func(h *process) { h.link.cut(true) },
			13 * time.Second, 18 * time.Second},
		"client-go is asked to end": {theirs, ours(), 0, func(h *process) { h.cancel() }, 0, 25 * time.Millisecond},
		"client-go is asked after long": {theirs, ours(), 0,
			func(h *process) { time.Sleep(10 * time.Minute); h.cancel() }, 10 * time.Minute,
			10*time.Minute + 25*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			count(t, ours(), 20, func(w *world) bool {
				holder := w.spawnAs(c.holder, "a", func(p *process) { p.linger, p.once = c.linger, true })
				leader(t, holder)
				challenger := w.spawnAs(c.challenger, "b")
				time.Sleep(20*time.Second + uniform(w.rand, 4*time.Second))
				took := lasted(func() { c.end(holder); leader(t, challenger) })
				require.GreaterOrEqual(t, took, c.soonest)
				require.LessOrEqual(t, took, c.latest)
				require.Zero(t, overlap(w.all...))
				return true
			})
		})
	}
}
