package leaderelection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	peer "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/util/flowcontrol"
)

// TestFaults runs the same scripts with client-go's elector and with this one, prints both figures side by side, and
// fails if ours is not what is promised. The whole table, 200 runs of each random script, in a few minutes:
//
//	THERMOSTAT_FAULT_RUNS=200 go test -run TestFaults -v ./leaderelection/
func TestFaults(t *testing.T) {
	runs := 10
	if raceEnabled {
		runs = 3
	}
	if n, err := strconv.Atoi(os.Getenv("THERMOSTAT_FAULT_RUNS")); err == nil {
		runs = n
	}
	released, kept := clientGo(true, 0), clientGo(false, 0)
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-4s %-58s %-46s %s\n", "", "script", "client-go v0.37.2", "thermostat")
	for _, row := range []struct {
		id, what string
		fault    fault
		theirs   kind
		ours     kind
		want     string
	}{
		{"F1", "leader cut off for 30 s, ReleaseOnCancel", cutOff, released, ours(), "0/%d overlap"},
		{"F1", "the same, 5 s request timeout", cutOff, clientGo(true, 5*time.Second), ours(), "0/%d overlap"},
		{"F1", "the same, no ReleaseOnCancel", cutOff, kept, ours(), "0/%d overlap"},
		{"F2", "leader's cut heals after the successor took over", healedLate, released, ours(),
			"0/%d successor erased"},
		{"F3", "a renewal answered 4.9 s late, then an outage", answeredLate(4900 * time.Millisecond), kept, ours(),
			"0/%d overlap"},
		{"F3", "a renewal answered 9 s late, then an outage", answeredLate(9 * time.Second), kept, ours(),
			"0/%d overlap"},
		{"F4", "lease deleted under the leader",
			edited(func(*coordinationv1.Lease) *coordinationv1.Lease { return nil }), kept, ours(), "0/%d overlap"},
		{"F4", "holder wiped out by hand", edited(wipe), kept, ours(), "0/%d overlap"},
		{"F4", "holder replaced by hand with the standby's name", editedToStandby, kept, ours(), "0/%d overlap"},
		{"F5", "SIGTERM, work takes 2.9 s to end", slowToStop, released, ours(), "0/%d overlap"},
		{"F6", "LeaseDuration 1.9 s, healthy leader for 1 min", healthy, clientGo(false, 0, theirFraction),
			ours(ourFraction), "refused"},
		{"F7", "wall clock back 1 h / ahead 1 h", clockJump, kept, ours(), "leads on / steps down in 1s"},
		{"F8", "15/14 s accepted, work stops in 2 s, cut off", cutOffSlowStop, clientGo(false, 0, theirMargin),
			ours(ourMargin), "refused"},
		{"F8", "clocks 5 % apart, cut off (ours only)", drifting, kind{}, ours(), "0/%d overlap"},
		{"F9", "leader killed, two challengers", expired, kept, ours(), "0/%d overlap, at most 1 write of the loser's"},
		{"F10", "leaseDurationSeconds edited to 1", editedDuration(1), kept, ours(), "0/%d overlap"},
		{"F10", "edited to 10^6 s, then the leader killed", editedThenKilled, kept, ours(), "next leader after 5m"},
		{"F11", "two processes with one identity", sameIdentity, kept, ours(), "0/%d overlap"},
		{"F12", "work function returns at once", returnsEarly, released, ours(), "standby leads in 0s"},
		{"F13", "work wakes after its tenure and writes", lateWrite, kept, ours(), "0/%d late writes sent"},
		{"F14", "stopped though it never led", neverLed, kept, ours(), "0/%d stop callbacks"},
		{"F15", "client's rate limit used up by the work for 1 min", starved, kept, ours(), "0/%d lost the lease"},
		{"F15", "the connection dies silently, dialling works", deadConnection, kept, ours(), "0/%d lost the lease"},
	} {
		t.Run(row.id+"/"+row.what, func(t *testing.T) {
			theirs := "-"
			if row.theirs.begin != nil {
				theirs = row.fault(t, row.theirs, runs)
			}
			got, want := row.fault(t, row.ours, runs), row.want
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, runs)
			}
			fmt.Fprintf(&table, "%-4s %-58s %-46s %s\n", row.id, row.what, theirs, got)
			require.Equal(t, want, got)
		})
	}
	t.Log(table.String())
}

// A fault runs a script n times with one kind of elector and says what came of it.
type fault func(t *testing.T, k kind, n int) string

// A world is one run of a script.
type world struct {
	*testing.T
	server *server
	kind   kind
	rand   *rand.Rand
	all    []*process
}

func (w *world) spawn(name string, change ...func(*process)) *process {
	return w.spawnAs(w.kind, name, change...)
}

func (w *world) spawnAs(k kind, name string, change ...func(*process)) *process {
	p := spawn(w.T, k, w.server.link(name), change...)
	w.all = append(w.all, p)
	return p
}

// pair is a leader that has led for a random while, and a standby.
func (w *world) pair(change ...func(*process)) (lead, standby *process) {
	lead = w.spawn("a", change...)
	leader(w.T, lead)
	standby = w.spawn("b", change...)
	time.Sleep(20*time.Second + uniform(w.rand, 4*time.Second))
	return lead, standby
}

// count runs a script n times, each in a bubble of its own, and counts for how many it said yes.
func count(t *testing.T, k kind, n int, script func(w *world) bool) int {
	yes := 0
	for i := range n {
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t, server: newServer(), kind: k, rand: rand.New(rand.NewPCG(uint64(i), 6))}
			if script(w) {
				yes++
			}
			for _, p := range w.all {
				p.link.set(func(s *linkState) { *s = linkState{} })
				p.cancel()
			}
			for _, p := range w.all {
				p.stop()
			}
			time.Sleep(10 * time.Second) // what is in flight arrives
		})
	}
	return yes
}

// overlaps counts the runs of a script in which two worked at once.
func overlaps(script func(w *world)) fault {
	return func(t *testing.T, k kind, n int) string {
		return fmt.Sprintf("%d/%d overlap", count(t, k, n, func(w *world) bool {
			script(w)
			return overlap(w.all...) > 0
		}), n)
	}
}

var cutOff = overlaps(func(w *world) {
	lead, _ := w.pair()
	lead.link.cut(true)
	time.Sleep(30 * time.Second)
})

func healedLate(t *testing.T, k kind, n int) string {
	erased := count(t, k, n, func(w *world) bool {
		lead, standby := w.pair()
		lead.link.cut(true)
		leader(w.T, standby)
		time.Sleep(uniform(w.rand, time.Second))
		erased := false // guarded by the server's lock
		w.server.mu.Lock()
		w.server.onWrite = func(before, after *coordinationv1.Lease, by string) {
			holder := value(before.Spec.HolderIdentity)
			erased = erased || by == "a" && strings.HasPrefix(holder, "b") && value(after.Spec.HolderIdentity) != holder
		}
		w.server.mu.Unlock()
		lead.link.cut(false)
		time.Sleep(10 * time.Second)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return erased
	})
	return fmt.Sprintf("%d/%d successor erased", erased, n)
}

func answeredLate(late time.Duration) fault {
	return overlaps(func(w *world) {
		lead, _ := w.pair()
		sent := make(chan struct{}, 100)
		lead.link.set(func(s *linkState) {
			s.back = func(verb string) time.Duration {
				if verb != "update" {
					return 0
				}
				sent <- struct{}{}
				return late
			}
		})
		<-sent
		time.Sleep(late) // the outage begins when the answer is there
		synctest.Wait()
		lead.link.cut(true)
		time.Sleep(30 * time.Second)
	})
}

func wipe(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Spec.HolderIdentity = new(string)
	return l
}

func edited(change func(*coordinationv1.Lease) *coordinationv1.Lease) fault {
	return overlaps(func(w *world) {
		w.pair()
		w.server.edit(change)
		time.Sleep(time.Minute)
	})
}

var editedToStandby = overlaps(func(w *world) {
	_, standby := w.pair()
	name := standby.identity
	if e := standby.elector.Load(); e != nil {
		name = e.Identity()
	}
	w.server.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
		l.Spec.HolderIdentity = &name
		return l
	})
	time.Sleep(time.Minute)
})

var slowToStop = overlaps(func(w *world) {
	lead, _ := w.pair(func(p *process) { p.linger, p.once = 2900*time.Millisecond, true })
	lead.stop()
	time.Sleep(10 * time.Second)
})

// refusedOr runs the script unless the configuration is refused.
func refusedOr(t *testing.T, k kind, otherwise func() string) string {
	p := &process{name: "x", identity: "x"}
	if err := k.begin(p, canceled(), &rest.Config{Host: "http://server"}); err != nil {
		return "refused"
	}
	return otherwise()
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func theirFraction(c *peer.LeaderElectionConfig) {
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 1900*time.Millisecond, 1500*time.Millisecond, 700*time.Millisecond
}

func ourFraction(c *Config) {
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod, c.StopGrace = 1900*time.Millisecond, time.Second,
		500*time.Millisecond, 300*time.Millisecond
}

func theirMargin(c *peer.LeaderElectionConfig) { c.RenewDeadline = 14 * time.Second }
func ourMargin(c *Config)                      { c.RenewDeadline = 14 * time.Second }

func healthy(t *testing.T, k kind, n int) string {
	return refusedOr(t, k, func() string {
		stolen := count(t, k, n, func(w *world) bool {
			_, standby := w.pair()
			time.Sleep(time.Minute)
			return len(standby.tenures()) > 0
		})
		return fmt.Sprintf("%d/%d stolen", stolen, n)
	})
}

var cutOffSlowStop = func(t *testing.T, k kind, n int) string {
	return refusedOr(t, k, func() string {
		return overlaps(func(w *world) {
			lead, _ := w.pair(func(p *process) { p.linger = 2 * time.Second })
			lead.link.cut(true)
			time.Sleep(30 * time.Second)
		})(t, k, n)
	})
}

func clockJump(t *testing.T, k kind, n int) string {
	if k.name != "thermostat" {
		return "monotonic only (by reading)"
	}
	back, ahead := "steps down", "leads on"
	count(t, k, 1, func(w *world) bool {
		var offset atomic.Int64
		lead := w.spawn("a", func(p *process) {
			p.tweak = func(e *Elector) {
				e.wall = func() time.Time {
					return time.Now().Add(
						time.Duration(offset.Load()))
				}
			}
		})
		leader(w.T, lead)
		time.Sleep(10 * time.Second)
		offset.Store(-int64(time.Hour))
		time.Sleep(time.Minute)
		if len(lead.tenures()) == 1 && lead.leads() {
			back = "leads on"
		}
		offset.Store(0)
		time.Sleep(time.Minute)
		offset.Store(int64(time.Hour))
		if took := lasted(func() {
			for len(lead.tenures()) == 1 && lead.leads() {
				time.Sleep(time.Millisecond)
			}
		}); took <= clockCheck+time.Millisecond {
			ahead = "steps down in 1s"
		}
		return true
	})
	return back + " / " + ahead
}

// drifting has the holder's clock run 5 % slow and the challenger's 5 % fast: one's durations take longer, the other's
// shorter.
var drifting = overlaps(func(w *world) {
	lead := w.spawn("a", func(p *process) {
		p.linger = 3150 * time.Millisecond // StopGrace, on the slow clock
		p.tweak = func(e *Elector) {
			e.cfg.RenewDeadline, e.cfg.StopGrace = scale(e.cfg.RenewDeadline, 1.05), scale(e.cfg.StopGrace, 1.051)
		}
	})
	leader(w.T, lead)
	w.spawn("b", func(p *process) {
		p.tweak = func(e *Elector) {
			e.cfg.LeaseDuration, e.cfg.MaxLeaseDuration = scale(15*time.Second, 0.95), scale(15*time.Second, 0.95)
		}
	})
	time.Sleep(20*time.Second + uniform(w.rand, 4*time.Second))
	lead.link.cut(true)
	time.Sleep(30 * time.Second)
})

func expired(t *testing.T, k kind, n int) string {
	most := 0
	n2 := count(t, k, n, func(w *world) bool {
		lead, b := w.pair()
		c := w.spawn("c")
		time.Sleep(20*time.Second + uniform(w.rand, 4*time.Second))
		lead.kill()
		next := leader(w.T, b, c)
		other := b
		if next == b {
			other = c
		}
		time.Sleep(5 * time.Second) // the loser has lost by now
		w.server.mu.Lock()
		most = max(most, w.server.tries[other.name])
		w.server.mu.Unlock()
		return overlap(w.all...) > 0
	})
	if most <= 1 {
		return fmt.Sprintf("%d/%d overlap, at most 1 write of the loser's", n2, n)
	}
	return fmt.Sprintf("%d/%d overlap, %d writes of the loser's", n2, n, most)
}

func editedDuration(seconds int32) fault {
	return overlaps(func(w *world) {
		w.pair()
		w.server.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec.LeaseDurationSeconds = &seconds
			return l
		})
		time.Sleep(time.Minute)
	})
}

func editedThenKilled(t *testing.T, k kind, n int) string {
	took := time.Duration(0)
	count(t, k, 1, func(w *world) bool {
		lead, standby := w.pair()
		lead.kill()
		time.Sleep(time.Second)
		w.server.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
			seconds := int32(1_000_000)
			l.Spec.LeaseDurationSeconds = &seconds
			return l
		})
		took = lasted(func() {
			for !standby.leads() && time.Since(lead.dead) < time.Hour {
				time.Sleep(time.Second)
			}
		})
		return true
	})
	if took >= time.Hour-time.Minute {
		return "no leader for an hour"
	}
	return "next leader after " + strings.TrimSuffix(took.Round(time.Minute).String(), "0s")
}

var sameIdentity = overlaps(func(w *world) {
	w.pair(func(p *process) { p.identity = "same" })
	time.Sleep(time.Minute)
})

func returnsEarly(t *testing.T, k kind, n int) string {
	result := ""
	count(t, k, 1, func(w *world) bool {
		lead := w.spawn("a", func(p *process) {
			p.once = true
			p.act = func(context.Context) error { time.Sleep(10 * time.Second); return nil }
		})
		leader(w.T, lead)
		standby := w.spawn("b")
		time.Sleep(9 * time.Second)
		for lead.leads() {
			time.Sleep(time.Millisecond)
		}
		w.server.mu.Lock()
		before := w.server.writes["a"]
		w.server.mu.Unlock()
		took := lasted(func() {
			for i := 0; i < 60_000 && !standby.leads(); i++ {
				time.Sleep(time.Millisecond)
			}
		})
		w.server.mu.Lock()
		renewals := w.server.writes["a"] - before
		w.server.mu.Unlock()
		result = fmt.Sprintf("standby leads in %v", took.Round(time.Second))
		if !standby.leads() {
			result = fmt.Sprintf("%d renewals/min, nobody works", renewals)
		}
		return true
	})
	return result
}

func lateWrite(t *testing.T, k kind, n int) string {
	late := count(t, k, n, func(w *world) bool {
		var sent atomic.Int32
		wire := roundTrip(func(*http.Request) (*http.Response, error) { sent.Add(1); return nil, context.Canceled })
		lead, _ := w.pair(func(p *process) {
			p.act = func(ctx context.Context) error {
				<-ctx.Done()
				var transport http.RoundTripper = wire
				if e := p.elector.Load(); e != nil {
					transport = e.Fence(wire)
				}
				req, _ := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://server/pods",
					nil)
				_, _ = transport.RoundTrip(req)
				return nil
			}
		})
		lead.link.cut(true)
		time.Sleep(30 * time.Second)
		return sent.Load() > 0
	})
	return fmt.Sprintf("%d/%d late writes sent", late, n)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func neverLed(t *testing.T, k kind, n int) string {
	called := count(t, k, n, func(w *world) bool {
		_, standby := w.pair(func(p *process) { p.once = true })
		standby.stop()
		return standby.stoppedCallbacks.Load() > 0 || len(standby.tenures()) > 0
	})
	return fmt.Sprintf("%d/%d stop callbacks", called, n)
}

// starved has the work use the rest.Config that the elector was given, its rate limiter included.
func starved(t *testing.T, k kind, n int) string {
	lost := count(t, k, n, func(w *world) bool {
		l := w.server.link("a")
		cfg := l.config()
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(5, 10)
		p := &process{name: "a", identity: "a", link: l, done: make(chan struct{})}
		ctx, cancel := quiet(w.T)
		p.cancel = cancel
		go func() { defer close(p.done); p.err = k.begin(p, ctx, cfg) }()
		w.all = append(w.all, p)
		leader(w.T, p)
		for range 60 * 20 { // 20 requests a second for a minute, all of which wait for a token
			go func() { _ = cfg.RateLimiter.Wait(ctx) }()
			time.Sleep(50 * time.Millisecond)
		}
		lost := !p.leads()
		cancel()
		p.wait()
		return lost
	})
	return fmt.Sprintf("%d/%d lost the lease", lost, n)
}

func deadConnection(t *testing.T, k kind, n int) string {
	lost := count(t, k, n, func(w *world) bool {
		network := newNetwork(w.server)
		defer network.close()
		p := &process{name: "a", identity: "a", link: w.server.link("a"), done: make(chan struct{}), once: true}
		ctx, cancel := quiet(w.T)
		p.cancel = cancel
		go func() {
			defer close(p.done)
			p.err = k.begin(p, ctx, &rest.Config{Host: "http://server", Dial: network.dial})
		}()
		leader(w.T, p)
		time.Sleep(20 * time.Second)
		network.freeze()
		time.Sleep(30 * time.Second)
		lost := len(p.tenures()) != 1 || !p.leads()
		network.close()
		cancel()
		p.wait()
		return lost
	})
	return fmt.Sprintf("%d/%d lost the lease", lost, n)
}

func TestOverlapIsSeen(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	p := func(spans ...span) *process { return &process{spans: spans} }
	require.Equal(t, 2*time.Second, overlap(p(span{at(0), at(10)}), p(span{at(8), at(20)})))
	require.Zero(t, overlap(p(span{at(0), at(10)}), p(span{at(10), at(20)})))
	require.Equal(t, 3*time.Second, overlap(p(span{at(0), at(10)}, span{at(12), at(30)}), p(span{at(11), at(15)})))
	killed := p(span{from: at(0)})
	killed.dead = at(5)
	require.Zero(t, overlap(killed, p(span{at(6), at(7)})))
	require.True(t, slices.Equal(killed.tenures(), []span{{at(0), at(5)}}))
}
