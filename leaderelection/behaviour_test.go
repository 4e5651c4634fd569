package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/election"
)

func TestConfigIsChecked(t *testing.T) {
	good := Config{REST: &rest.Config{Host: "http://server"}, Namespace: "ns", Name: "lock"}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nil client":      {func(c *Config) { c.REST = nil }, "REST is nil"},
		"no namespace":    {func(c *Config) { c.Namespace = "" }, "Namespace"},
		"bad name":        {func(c *Config) { c.Name = "a b" }, "Name"},
		"bad identity":    {func(c *Config) { c.Identity = "a\nb" }, "Identity"},
		"long identity":   {func(c *Config) { c.Identity = strings.Repeat("a", 201) }, "Identity"},
		"fraction":        {func(c *Config) { c.LeaseDuration = 15*time.Second + 1 }, "whole number of seconds"},
		"below a second":  {func(c *Config) { c.LeaseDuration = 900 * time.Millisecond }, "whole number of seconds"},
		"too long":        {func(c *Config) { c.LeaseDuration = 1 << 32 * time.Second }, "at most 2147483647"},
		"negative":        {func(c *Config) { c.StopGrace = -1 }, "StopGrace is negative"},
		"no unit":         {func(c *Config) { c.RetryPeriod = 2 }, "RetryPeriod is only 2ns: is a unit missing?"},
		"no unit, either": {func(c *Config) { c.StopGrace = 3 }, "StopGrace is only 3ns"},
		"without end": {func(c *Config) { c.RenewDeadline = math.MaxInt64 },
			"could start before this one has stopped"},
		"never": {func(c *Config) { c.RetryPeriod = math.MaxInt64 }, "less than half of RenewDeadline"},
		"margin": {func(c *Config) { c.RenewDeadline = 12 * time.Second },
			"could start before this one has stopped"},
		"margin with drift": {func(c *Config) { c.StopGrace = 3572 * time.Millisecond },
			"could start before this one has stopped"},
		"retry": {func(c *Config) { c.RetryPeriod = 6 * time.Second }, "less than half of RenewDeadline"},
		"retry, just so": {func(c *Config) { c.RetryPeriod = 5 * time.Second },
			"one failed renewal ends the tenure"},
		"maximum": {func(c *Config) { c.MaxLeaseDuration = time.Second }, "below LeaseDuration"},
		"certificate": {func(c *Config) {
			c.REST = &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/no/such"}}
		}, "not usable"},
		"host": {func(c *Config) { c.REST = &rest.Config{Host: "http://[::"} }, ""},
		"token file": {func(c *Config) {
			c.REST = &rest.Config{Transport: http.DefaultTransport,
				BearerTokenFile: "/no/such"}
		}, "not usable"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			_, err := New(cfg)
			require.Error(t, err)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := New(Config{})
	for _, want := range []string{"REST", "Namespace", "Name"} {
		require.ErrorContains(t, err, want, "everything that is wrong is said at once")
	}
	e, err := New(good)
	require.NoError(t, err)
	host, _ := os.Hostname()
	require.True(t, strings.HasPrefix(e.Identity(), host+"_"), "the host's name, and a random part")
	other, err := New(good)
	require.NoError(t, err)
	require.NotEqual(t, e.Identity(), other.Identity())
	require.Equal(t, "ns/lock", e.String())
}

func TestTheTransportIsOurOwn(t *testing.T) {
	cfg := &rest.Config{
		Host: "https://server", QPS: 0.001, Burst: 1, Timeout: time.Nanosecond, UserAgent: "me",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Proxy:           func(*http.Request) (*url.URL, error) { return nil, nil },
		Dial:            func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dialled") },
	}
	e, err := New(Config{REST: cfg, Namespace: "ns", Name: "lock"})
	require.NoError(t, err)
	first := e.client.transport.Base()
	require.Equal(t, []string{"http/1.1"}, first.TLSClientConfig.NextProtos)
	_, err = e.client.get(t.Context())
	require.ErrorContains(t, err, "dialled")
	require.NotSame(t, first, e.client.transport.Base(), "a failed try gives the next one a fresh connection")
	require.Equal(t, 0, len(cfg.NextProtos), "the caller's configuration is not touched")

	for err, fresh := range map[error]bool{
		apierrors.NewUnauthorized("the client certificate has expired"): true,
		apierrors.NewInternalError(errors.New("no")):                    true,
		apierrors.NewConflict(leases, "lock", errors.New("changed")):    false,
		apierrors.NewNotFound(leases, "lock"):                           false,
	} {
		before := e.client.transport.Base()
		require.Error(t, e.client.done("update", err))
		require.Equal(t, fresh, before != e.client.transport.Base(), "%v", err)
	}

	e.client.transport.Config.TLSClientConfig.CAData,
		e.client.transport.Config.TLSClientConfig.Insecure = []byte("no certificate"), false
	before := e.client.transport.Base()
	e.client.transport.Fresh()
	require.Same(t, before, e.client.transport.Base(), "unreadable certificates leave the old ones in use")

	closed := false
	shared := &wrapped{&closing{roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("no") }),
		&closed}}
	e, err = New(Config{REST: &rest.Config{Host: "http://server", Transport: shared}, Namespace: "ns", Name: "lock"})
	require.NoError(t, err)
	_, err = e.client.get(t.Context())
	require.Error(t, err)
	require.True(t, closed)
}

type closing struct {
	roundTrip
	closed *bool
}

func (c *closing) CloseIdleConnections() { *c.closed = true }

type wrapped struct{ http.RoundTripper }

func (w *wrapped) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// recorder keeps each event.
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (h *recorder) Eventf(object runtime.Object, eventType, reason, message string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lease := object.(*coordinationv1.Lease)
	h.all = append(h.all, fmt.Sprintf("%s %s %s: %s", eventType, reason, lease.Name,
		fmt.Sprintf(message, args...)))
}

func TestEventsAreToldToTheRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newServer(), &recorder{}
		l := s.link("a")
		a := start(t, newCandidate(t, l, func(c *Config) { c.Events = h }), 0)
		settle(time.Minute)
		require.True(t, a.IsLeader())
		stats := a.Stats()
		require.True(t, stats.Leading)
		require.Greater(t, stats.Remaining, 7*time.Second)
		require.InDelta(t, 30, stats.Renewals, 2)
		require.NoError(t, a.stop())
		b := start(t, a.Elector, 0)
		settle(10 * time.Second)
		l.cut(true)
		err := b.wait()
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the loss says why the last renewal failed")
		require.ErrorContains(t, err, "no renewal was acknowledged within RenewDeadline")
		require.Equal(t, []string{
			"Normal LeaderElection lock: " + a.Identity() + " became leader",
			"Normal LeaderElection lock: " + a.Identity() + " stopped leading",
			"Normal LeaderElection lock: " + a.Identity() + " became leader",
			"Warning LeaderElection lock: " + a.Identity() + " lost the lease: deadline",
		}, h.all)
		stats = a.Stats()
		require.False(t, stats.Leading)
		require.Equal(t, uint64(2), stats.Tenures)
		require.Equal(t, uint64(1), stats.Losses)
		require.Equal(t, uint64(1), stats.Releases)
		require.Greater(t, stats.Requests, stats.Renewals+stats.RenewalFailures)
		require.NotZero(t, stats.RenewalFailures)
	})
}

// slowEvents is a recorder that takes its time with the first event that says so.
type slowEvents struct {
	at    string
	takes time.Duration
	once  sync.Once
}

func (s *slowEvents) Eventf(_ runtime.Object, _, _, message string, args ...any) {
	if strings.Contains(fmt.Sprintf(message, args...), s.at) {
		s.once.Do(func() { time.Sleep(s.takes) })
	}
}

// TestASlowRecorderMakesNoTenureLonger: not even when it holds up the first renewal until a successor works.
func TestASlowRecorderMakesNoTenureLonger(t *testing.T) {
	for _, at := range []string{"became leader", "lost the lease"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				slow := ours(func(c *Config) { c.Events = &slowEvents{at: at, takes: 20 * time.Second} })
				l := s.link("a")
				a := spawn(t, slow, l, func(p *process) { p.linger = time.Second })
				time.Sleep(time.Second)
				b := spawn(t, ours(), s.link("b"))
				if at == "lost the lease" {
					l.cut(true)
					time.AfterFunc(30*time.Second, func() { l.cut(false) })
				}
				settle(18 * time.Second)
				require.True(t, b.leads(), "a's tenure has expired")
				settle(time.Minute)
				require.True(t, a.leads() != b.leads())
				require.Zero(t, overlap(a, b))
				a.stop()
				b.stop()
			})
		})
	}
}

func TestALossThatCameBeforeTheFirstRenewalIsFoundByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		events := &slowEvents{at: "became leader", takes: 5 * time.Second}
		a := start(t, newCandidate(t, s.link("a"), func(c *Config) { c.Events = events }), 0)
		settle(time.Second)
		s.edit(heldBy("x"))
		settle(3 * time.Second)
		require.True(t, a.IsLeader(), "an event alone is not believed")
		settle(1500 * time.Millisecond)
		require.False(t, a.IsLeader())
		require.ErrorIs(t, a.wait(), ErrLost)
	})
}

// TestAnOldTroubleIsForgotten: what kept one Run from leading says nothing about the next.
func TestAnOldTroubleIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newServer().link("a")
		l.set(func(s *linkState) { s.deny = map[string]bool{"create": true} })
		e := newCandidate(t, l)
		a := start(t, e, 0)
		settle(time.Minute)
		var denied *DeniedError
		require.ErrorAs(t, e.Ready(), &denied)
		require.ErrorAs(t, a.stop(), &denied)
		l.set(func(s *linkState) { s.deny = nil })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, e.Run(ended, func(context.Context) error { return nil }),
			"ended before it could find anything out")
		a = start(t, e, 0)
		settle(5 * time.Second)
		require.True(t, a.IsLeader())
		require.NoError(t, a.stop())
	})
}

// TestEveryOutageOfALeaderIsLogged, and its end, not only the first one.
func TestEveryOutageOfALeaderIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newServer().link("a")
		ctx, cancel, lines := logged(t)
		e := newCandidate(t, l)
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		settle(20 * time.Second)
		for range 3 {
			before := lines()
			l.set(func(s *linkState) { s.lose = func(verb string) bool { return verb == "update" } })
			settle(5 * time.Second)
			require.Equal(t, before+1, lines(), "it fails")
			l.set(func(s *linkState) { s.lose = nil })
			settle(20 * time.Second)
			require.Equal(t, before+2, lines(), "it works again")
		}
		require.True(t, e.IsLeader())
		cancel()
		require.NoError(t, <-done)
	})
}

func TestLosses(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*coordinationv1.Lease) *coordinationv1.Lease
		reason Reason
		text   string
	}{
		"deleted": {func(*coordinationv1.Lease) *coordinationv1.Lease { return nil }, ReasonDeleted, "deleted"},
		"wiped":   {wipe, ReasonHolder, "another tenure"},
		"lower term": {func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec.LeaseTransitions = new(
				int32)
			return l
		}, ReasonHolder, "another tenure"},
		"new uid": {func(l *coordinationv1.Lease) *coordinationv1.Lease { l.UID = "other"; return l }, ReasonDeleted,
			"deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.edit(func(*coordinationv1.Lease) *coordinationv1.Lease {
					l := released(&coordinationv1.Lease{}, time.Now())
					l.Spec.LeaseTransitions = new(int32(4))
					return l
				})
				a := start(t, newCandidate(t, s.link("a")), time.Second)
				settle(time.Second)
				s.edit(c.edit)
				took := lasted(func() {
					err := a.wait()
					var lost *LostError
					require.ErrorAs(t, err, &lost)
					require.Equal(t, c.reason, lost.Reason)
					require.ErrorContains(t, err, c.text)
				})
				require.Equal(t, time.Second, took, "F4: at once, and the time that the work took to stop")
				require.False(t, s.get() != nil && isReleased(s.get()), "I17: what is somebody else's is not released")
			})
		})
	}
}

func TestAWorkThatOutlivesItsTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := s.link("a")
		a := start(t, newCandidate(t, l), 20*time.Second)
		settle(2 * time.Second)
		l.cut(true)
		err := a.wait()
		require.ErrorIs(t, err, ErrStuck)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, a.Check(nil), ErrStuck)
		l.cut(false)
		settle(10 * time.Second)
		require.False(t, isReleased(s.get()))
		settle(10 * time.Second)
		require.NoError(t, a.Check(nil))
	})
}

// TestALostTenureIsNotDrained: being asked to end does not give a work that has lost the Lease more time than it had.
func TestALostTenureIsNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a")), 20*time.Second)
		settle(time.Second)
		s.edit(wipe)
		settle(time.Second)
		took := lasted(func() { require.ErrorIs(t, a.stop(), ErrStuck) })
		require.Equal(t, 2*time.Second, took)
		settle(20 * time.Second)
	})
}

func TestTheErrorOfTheWorkIsKeptBesideTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		boom := errors.New("boom")
		ctx, cancel := quiet(t)
		defer cancel()
		err := newCandidate(t, s.link("a")).Run(ctx, func(ctx context.Context) error {
			s.edit(wipe)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), ErrLost)
			return boom
		})
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, err, boom)
	})
}

// TestStoppingInEveryPhase is G1: Run returns within a second and StopGrace of the end of its context, whatever it is
// in the middle of.
func TestStoppingInEveryPhase(t *testing.T) {
	for name, setup := range map[string]func(s *server, l *link){
		"first look hangs": func(_ *server, l *link) { l.cut(true) },
		"refused":          func(_ *server, l *link) { l.set(func(s *linkState) { s.refuse = true }) },
		"garbage":          func(_ *server, l *link) { l.set(func(s *linkState) { s.garbage = true }) },
		"server error":     func(_ *server, l *link) { l.set(func(s *linkState) { s.status = 503 }) },
		"throttled":        func(_ *server, l *link) { l.set(func(s *linkState) { s.status = 429 }) },
		"take is slow": func(_ *server,
			l *link) {
			l.set(func(s *linkState) { s.there = slowFor("create", 2*time.Second) })
		},
		"take's answer is slow": func(_ *server, l *link) {
			l.set(func(s *linkState) { s.back = slowFor("create", 2900*time.Millisecond) })
		},
		"take's answer is lost": func(_ *server, l *link) {
			l.set(func(s *linkState) { s.lose = func(v string) bool { return v == "create" } })
		},
		"standby": func(s *server, _ *link) { s.edit(heldBy("x")) },
		"standby without watch": func(s *server, l *link) {
			s.edit(heldBy("x"))
			l.set(func(s *linkState) { s.deny = map[string]bool{"watch": true} })
		},
		"leading": func(*server, *link) {},
		"leading, renewal hangs": func(_ *server,
			l *link) {
			l.set(func(s *linkState) { s.back = slowFor("update", time.Hour) })
		},
		"watch hangs": func(_ *server, l *link) { l.set(func(s *linkState) { s.hangWatch = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second,
				2500 * time.Millisecond, 5 * time.Second, 20 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					l := s.link("a")
					setup(s, l)
					a := start(t, newCandidate(t, l), 0)
					settle(after)
					took := lasted(func() { _ = a.stop() })
					require.LessOrEqual(t, took, 4*time.Second)
					if lease := s.get(); lease != nil && took < 4*time.Second && !strings.HasPrefix(name, "leading, ") {
						require.NotEqual(t, a.Identity(), value(lease.Spec.HolderIdentity),
							"a claim that nobody will act on is given back")
					}
					l.set(func(s *linkState) { *s = linkState{} })
					time.Sleep(2 * time.Hour)
				})
			}
		})
	}
}

func slowFor(verb string, d time.Duration) func(string) time.Duration {
	return func(v string) time.Duration {
		if v == verb {
			return d
		}
		return 0
	}
}

func heldBy(holder string) func(*coordinationv1.Lease) *coordinationv1.Lease {
	return func(l *coordinationv1.Lease) *coordinationv1.Lease {
		return acquired(l, metav1.ObjectMeta{}, holder, 15*time.Second, time.Now())
	}
}

func TestWatchTrouble(t *testing.T) {
	for name, disturb := range map[string]func(s *server, l *link){
		"ends":        func(s *server, _ *link) { s.endStreams() },
		"goes silent": func(s *server, _ *link) { s.muteStreams() },
		"sends an error": func(s *server, _ *link) {
			s.push(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}`)
		},
		"sends garbage": func(s *server, _ *link) {
			s.push(
				`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1"}}`)
		},
		"sends a status": func(s *server, _ *link) {
			s.push(
				`{"type":"MODIFIED","object":{"kind":"Status","apiVersion":"v1"}}`)
		},
		"sends a bookmark": func(s *server, _ *link) {
			s.push(`{"type":"BOOKMARK","object":{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}}`)
		},
		"sends other leases": func(s *server, _ *link) {
			s.push(`{"type":"DELETED","object":{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",` +
				`"metadata":{"name":"other","namespace":"ns"}}}`)
		},
		"is forbidden": func(s *server, l *link) {
			l.set(func(s *linkState) { s.deny = map[string]bool{"watch": true} })
			s.endStreams()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				a := start(t, newCandidate(t, s.link("a")), 0)
				settle(time.Second)
				l := s.link("b")
				b := start(t, newCandidate(t, l), 0)
				settle(time.Minute)
				require.True(t, a.IsLeader())
				disturb(s, l)
				settle(10 * time.Second)
				require.True(t, a.IsLeader())
				took := lasted(func() {
					require.NoError(t, a.stop())
					for !b.IsLeader() {
						time.Sleep(time.Millisecond)
					}
				})
				if name == "is forbidden" {
					require.Less(t, took, 2500*time.Millisecond)
					l.set(func(s *linkState) { s.deny = nil })
				} else {
					require.LessOrEqual(t, took, 25*time.Millisecond, "the watch was opened again")
				}
				settle(2 * time.Minute)
				require.True(t, b.IsLeader())
				require.NoError(t, b.stop())
			})
		})
	}
}

func TestAPausedLeaderInTheMiddleOfThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := start(t, newCandidate(t, s.link("a")), 0)
		settle(time.Second)
		ten := a.tenure.Load()
		sent := ten.sent
		lease := ten.lastLease()
		settle(500 * time.Millisecond)
		ten.extend(election.Instant{Mono: sent.Mono.Add(-time.Hour), Wall: sent.Wall.Add(-time.Hour)}, lease)
		require.False(t, a.IsLeader(), "the wall says that it is over")
		require.ErrorIs(t, a.wait(), ErrLost)
		ten.extend(a.now(), lease)
		require.False(t, ten.valid(), "an answer after the end brings nothing back")
	})
}

func TestAServerThatChangesWhatItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		rename := func(_, after *coordinationv1.Lease, by string) {
			if after != nil && value(after.Spec.HolderIdentity) != "" {
				after.Spec.HolderIdentity = new("webhook")
			}
		}
		s.onWrite = rename
		a := start(t, newCandidate(t, s.link("a")), 0)
		settle(5 * time.Second)
		require.False(t, a.IsLeader())
		require.NoError(t, a.stop())

		s.onWrite = nil
		s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease { return released(l, time.Now()) })
		b := start(t, newCandidate(t, s.link("b")), 0)
		settle(time.Second)
		require.True(t, b.IsLeader())
		s.mu.Lock()
		s.onWrite = rename
		s.mu.Unlock()
		require.ErrorIs(t, b.wait(), ErrLost)
	})
}

func TestOddRecords(t *testing.T) {
	require.Equal(t, int32(0), *acquired(
		&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseTransitions: new(int32(1<<31 - 1))}},
		metav1.ObjectMeta{}, "a", time.Second, time.Now()).Spec.LeaseTransitions)
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.edit(heldBy("x"))
		s.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec.LeaseDurationSeconds = new(int32(1_000_000))
			return l
		})
		a := start(t, newCandidate(t, s.link("a")), 0)
		settle(time.Second)
		require.Equal(t, uint64(1), a.Stats().OddDurations)
		require.NoError(t, a.stop())
	})
}

// TestRealConnections runs over net/http: a leader survives the death of every connection it has, and leaves none
// behind.
func TestRealConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		n := newNetwork(s)
		e, err := New(Config{REST: &rest.Config{Host: "http://server", Dial: n.dial}, Namespace: "ns", Name: "lock",
			SkipFirstWait: true})
		require.NoError(t, err)
		r := start(t, e, 0)
		settle(30 * time.Second)
		require.True(t, e.IsLeader())
		require.LessOrEqual(t, n.dialed, 3, "connections are kept: one for the watch, one for the rest")
		for range 5 {
			n.freeze()
			settle(20 * time.Second)
			require.True(t, e.IsLeader())
		}
		require.Len(t, r.worked(), 1, "one tenure")
		require.NoError(t, r.stop())
		n.close()
	})
}

func TestExitIfStuck(t *testing.T) {
	require.NoError(t, ExitIfStuck(nil))
	require.Equal(t, ErrLost, ExitIfStuck(ErrLost))
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "CANDIDATE=stuck")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, string(out), "did not stop")
}

// TestCalmLogs is I23: a long outage is a handful of lines, not one for each try.
func TestCalmLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := s.link("a")
		l.set(func(s *linkState) { s.refuse = true })
		ctx, cancel, lines := logged(t)
		e := newCandidate(t, l)
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		settle(time.Hour)
		require.Positive(t, lines(), "an outage is worth a line")
		require.LessOrEqual(t, lines(), 3)
		l.set(func(s *linkState) { s.refuse = false })
		settle(time.Hour)
		cancel()
		require.NoError(t, <-done)
		require.LessOrEqual(t, lines(), 12)
	})
}
