package leaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// long are the durations of a holder that takes its time.
func long(c *Config) { c.LeaseDuration, c.RenewDeadline = time.Minute, 40*time.Second }

// TestAHolderWithALongerDurationIsWaitedFor although the Lease says so no longer: a challenger with the default
// durations remembers.
func TestAHolderWithALongerDurationIsWaitedFor(t *testing.T) {
	for name, edit := range map[string]func(*coordinationv1.Lease) *coordinationv1.Lease{
		"the Lease is deleted": func(*coordinationv1.Lease) *coordinationv1.Lease { return nil },
		"its spec is wiped": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec = coordinationv1.LeaseSpec{}
			return l
		},
		"its duration is edited": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec.LeaseDurationSeconds = new(int32(1))
			return l
		},
		"it is edited twice": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new("somebody"), new(int32(2))
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				l := s.link("a")
				a := start(t, newCandidate(t, l, long), 2*time.Second)
				settle(time.Second)
				b := start(t, newCandidate(t, s.link("b"), func(c *Config) { c.SkipFirstWait = false }), 0)
				settle(10 * time.Second)
				require.True(t, a.IsLeader())
				l.cut(true)
				s.edit(edit)
				if name == "it is edited twice" {
					settle(10 * time.Second)
					s.edit(wipe)
				}
				settle(5 * time.Second)
				challengers := []*run{b}
				// the one that b has made in its place tells others how long to wait
				if name == "the Lease is deleted" {
					challengers = append(challengers, start(t, newCandidate(t, s.link("c")), 0))
				}
				settle(2 * time.Minute)
				require.ErrorIs(t, a.wait(), ErrLost)
				led := 0
				for _, next := range challengers {
					led += len(next.worked())
					for _, span := range next.worked() {
						early := a.worked()[0].to.Sub(span.from)
						require.LessOrEqual(t, early, time.Duration(0), "%s began before the work had ended",
							next.Identity())
					}
				}
				require.Equal(t, 1, led)
				for _, next := range challengers {
					require.NoError(t, next.stop())
				}
			})
		})
	}
}

// TestALongDurationIsForgottenWithARelease: whoever releases has stopped, and nobody has to wait for what was before.
func TestALongDurationIsForgottenWithARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a"), long), 0)
		settle(time.Second)
		b := newCandidate(t, s.link("b"))
		ctx, cancel := quiet(t)
		go func() { _ = b.Run(ctx, (&run{}).lead) }()
		settle(time.Second)
		require.Equal(t, time.Minute, b.view.get().longest)
		require.NoError(t, a.stop())
		settle(time.Second)
		require.True(t, b.IsLeader())
		require.Zero(t, b.view.get().longest)
		cancel()
		settle(time.Second)
	})
}

// annotate changes what is none of the election's business.
func annotate(s *server) {
	s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
		l.Annotations = map[string]string{"at": time.Now().String()}
		return l
	})
}

// TestMetadataDoNotRestartTheWait: the record is what a challenger waits for, and it stands.
func TestMetadataDoNotRestartTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.edit(heldBy("somebody who has crashed"))
		b := start(t, newCandidate(t, s.link("b")), 0)
		began := time.Now()
		for range 60 {
			if b.IsLeader() {
				break
			}
			settle(3 * time.Second)
			annotate(s)
		}
		require.Len(t, b.worked(), 1)
		require.GreaterOrEqual(t, b.worked()[0].from.Sub(began), 15*time.Second)
		require.Less(t, b.worked()[0].from.Sub(began), 17*time.Second)
		require.NotEmpty(t, s.get().Annotations["at"], "they are kept")
		require.NoError(t, b.stop())
	})
}

// TestARecordThatIsPutBackIsAnotherOne: between two looks of a challenger without a watch the holder has renewed the
// Lease, and a hand has put back what was there before. And a Lease that was made anew with the old record is another
// one in any case.
func TestARecordThatIsPutBackIsAnotherOne(t *testing.T) {
	for name, c := range map[string]struct {
		mayWatch bool
		change   func(s *server)
	}{
		"between two looks": {false, func(s *server) {
			old := s.get()
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
				return renewed(l, 15*time.Second,
					time.Now())
			})
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Spec = old.Spec; return l })
		}},
		"before the eyes of a watch": {true, func(s *server) {
			old := s.get()
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
				return renewed(l, 15*time.Second,
					time.Now())
			})
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Spec = old.Spec; return l })
		}},
		"while the watch is silent": {true, func(s *server) {
			s.muteStreams()
			old := s.get()
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
				return renewed(l, 15*time.Second,
					time.Now())
			})
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Spec = old.Spec; return l })
		}},
		"with the Lease": {true, func(s *server) {
			old := s.get()
			s.edit(func(*coordinationv1.Lease) *coordinationv1.Lease { return nil })
			s.edit(func(*coordinationv1.Lease) *coordinationv1.Lease { return &coordinationv1.Lease{Spec: old.Spec} })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.edit(heldBy("somebody"))
				l := s.link("b")
				l.set(func(s *linkState) { s.deny = map[string]bool{"watch": !c.mayWatch} })
				b := start(t, newCandidate(t, l), 0)
				settle(10 * time.Second)
				put := time.Now()
				c.change(s)
				for !b.IsLeader() {
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				require.GreaterOrEqual(t, b.worked()[0].from.Sub(put), 15*time.Second)
				require.NoError(t, b.stop())
			})
		})
	}
}

// TestARecordKeepsItsAgeOnlyFromVersionToVersion: an event that comes after another version than the one that is known
// may have missed a renewal.
func TestARecordKeepsItsAgeOnlyFromVersionToVersion(t *testing.T) {
	lease := func(version string) *coordinationv1.Lease {
		l := heldBy("somebody")(nil)
		l.UID, l.ResourceVersion = "u", version
		l.Spec.AcquireTime, l.Spec.RenewTime = nil, nil
		return l
	}
	for after, stood := range map[string]bool{"5": true, "4": false, "6": false, "": false} {
		synctest.Test(t, func(t *testing.T) {
			v := newView()
			v.see(lease("5"), "", 0)
			since := v.get().since
			time.Sleep(time.Second)
			require.Equal(t, !stood, v.see(lease("7"), after, 0), "after %q", after)
			require.Equal(t, stood, v.get().since.Equal(since), "after %q", after)
			require.Equal(t, "7", v.get().lease.ResourceVersion, "the next update has to name it")
		})
	}
}
