package leaderelection

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOneFailedRenewalEndsNoTenure, whether it is refused at once or never answered, and however long a RetryPeriod is
// allowed to be.
func TestOneFailedRenewalEndsNoTenure(t *testing.T) {
	for _, retry := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4900 * time.Millisecond} {
		for name, fail := range map[string]func(l *link){
			"refused":        func(l *link) { l.set(func(s *linkState) { s.refuse = true }) },
			"never answered": func(l *link) { l.cut(true) },
		} {
			t.Run(retry.String()+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newServer().link("a")
					a := start(t, newCandidate(t, l, func(c *Config) { c.RetryPeriod = retry }), 0)
					settle(time.Second)
					for a.Stats().Renewals == 0 {
						time.Sleep(time.Millisecond)
					}
					synctest.Wait()
					fail(l)
					for a.Stats().RenewalFailures == 0 {
						time.Sleep(time.Millisecond)
					}
					synctest.Wait()
					l.set(func(s *linkState) { *s = linkState{back: slowFor("update", 150*time.Millisecond)} })
					settle(time.Minute)
					require.True(t, a.IsLeader())
					require.Equal(t, uint64(1), a.Stats().Tenures)
					require.NoError(t, a.stop())
				})
			})
		}
	}
}

// TestALateAnswerDoesNotReviveATenure of which nothing is left, though nobody has been told of its end yet.
func TestALateAnswerDoesNotReviveATenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newCandidate(t, newServer().link("a"))
		lease := acquired(nil, metav1.ObjectMeta{UID: "u"}, e.identity, 15*time.Second, time.Now())
		ten := e.newTenure(t.Context(), e.now(), lease, handover{})
		time.Sleep(8 * time.Second)
		sent := e.now()
		time.Sleep(2*time.Second - 1)
		require.True(t, ten.valid())
		time.Sleep(time.Nanosecond)
		require.False(t, ten.valid())
		ten.extend(sent, lease)
		require.False(t, ten.valid(), "the answer came at the deadline")
	})
}

// TestAClaimIsKnownByAllThatItSays, and once the Lease has gone beyond it, it is ours no more.
func TestAClaimIsKnownByAllThatItSays(t *testing.T) {
	base := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}}
	now := time.Now()
	claim := acquired(base, metav1.ObjectMeta{}, "me", 15*time.Second, now)
	see := func(v *view, version string, change func(*coordinationv1.Lease)) bool {
		lease := claim.DeepCopy()
		lease.ResourceVersion = version
		change(lease)
		v.see(lease, "", 0)
		return v.get().mine
	}
	fresh := func() *view {
		v := newView()
		v.see(base, "", 0)
		v.attempting(claim)
		return v
	}
	same := func(*coordinationv1.Lease) {}
	acquired := func(l *coordinationv1.Lease) { l.Spec.AcquireTime = &metav1.MicroTime{Time: now.Add(time.Second)} }
	term := func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(value(l.Spec.LeaseTransitions) + 1) }
	earlier := func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(0)) }
	require.True(t, see(fresh(), "2", same))
	for name, other := range map[string]func(*coordinationv1.Lease){
		"another acquireTime": acquired, "another term": term,
		"another holder": func(l *coordinationv1.Lease) { wipe(l) },
		"another Lease":  func(l *coordinationv1.Lease) { l.UID = "v" },
	} {
		v := fresh()
		require.False(t, see(v, "2", other), name)
		require.False(t, see(v, "3", same), "%s has superseded it, even if somebody restores it", name)
		require.False(t, v.uncertain(), name)
	}
	v := fresh()
	require.False(t, see(v, "2", earlier), "the claim may still be on its way")
	require.True(t, v.uncertain())
	require.True(t, see(v, "3", same))
}

// TestAClaimIsGivenBackByWhateverKnowsOfIt: by the answer to it that comes after the end, where no look tells of it,
// and by a look where the answer never comes.
func TestAClaimIsGivenBackByWhateverKnowsOfIt(t *testing.T) {
	deaf := map[string]bool{"watch": true} // no watch tells of it, either
	for name, failure := range map[string]func(s *linkState){
		"the answer alone": func(s *linkState) {
			s.deny, s.back = deaf, slowFor("create", 2*time.Second)
		},
		"a look alone": func(s *linkState) {
			s.deny, s.lose = deaf, func(verb string) bool { return verb == "create" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				l := s.link("a")
				l.set(failure)
				e := newCandidate(t, l)
				// so that it takes the Lease at once, and the observer looks every 2 s
				e.random = func() float64 { return 0 }
				a := start(t, e, 0)
				settle(time.Second)
				require.Equal(t, a.Identity(), value(s.get().Spec.HolderIdentity))
				l.set(func(s *linkState) { s.deny = map[string]bool{"watch": true, "get": true} })
				a.cancel()
				if name == "a look alone" { // the claim is given up after 3 s, and the observer looks again after 4
					settle(1500 * time.Millisecond)
					l.set(func(s *linkState) { s.deny = deaf })
				}
				_ = a.wait()
				require.True(t, isReleased(s.get()), "who has not led gives back what it has claimed")
				require.Empty(t, a.worked())
				time.Sleep(time.Hour)
			})
		})
	}
}

// TestAWatchThatOpensTooLateIsNone: it is given up, and that it was answered at last does not make the failure end.
func TestAWatchThatOpensTooLateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.edit(heldBy("somebody"))
		ctx, cancel, lines := logged(t)
		l := s.link("a")
		opened := 0
		late := roundTrip(func(req *http.Request) (*http.Response, error) {
			if verbOf(req) != "watch" {
				return l.RoundTrip(req)
			}
			opened++
			time.Sleep(4 * time.Second) // deaf to the request's context
			header := http.Header{"Content-Type": {"application/json"}}
			return &http.Response{StatusCode: 200, Header: header, Body: endless{req.Context()}, Request: req}, nil
		})
		cfg := l.config()
		cfg.Transport = late
		e, err := New(Config{REST: cfg, Namespace: "ns", Name: "lock"})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		for range 100 {
			settle(5 * time.Second)
			s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
				return renewed(l, 15*time.Second,
					time.Now())
			})
		}
		require.Greater(t, opened, 50)
		require.LessOrEqual(t, lines(), 4, "it fails, and goes on to fail")
		require.Equal(t, e.failures.oldest(failure.any, "watch").err, context.DeadlineExceeded)
		cancel()
		require.NoError(t, <-done)
		settle(time.Minute)
	})
}

// endless is a body of which nothing comes until its request ends.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) { <-e.ctx.Done(); return 0, io.EOF }
func (e endless) Close() error             { return nil }
