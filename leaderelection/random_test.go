package leaderelection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// A chaos is one random run: three processes, each with a clock of its own, and two minutes of whatever can happen to
// them, to their links and to the Lease; then half a minute of peace. It says what was broken.
type chaos struct {
	*world
	running []*process // as of now, one per slot; the others are dead or stopped
	starts  int
	bug     func(*process) // a bug to seed, if set
	skip    bool           // Config.SkipFirstWait
	began   time.Time

	mu      sync.Mutex // taken after the server's
	broken  []string
	history []string // what happened, for whoever has to find out why
	named   map[string]*process
}

func (c *chaos) breaks(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

func (c *chaos) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, fmt.Sprintf("%8.3f ", time.Since(c.began).Seconds())+fmt.Sprintf(format, args...))
}

// drift is the rate of a clock, at most 5 % off.
func (c *chaos) drift() float64 { return 0.95 + 0.1*c.rand.Float64() }

func (c *chaos) start(slot int) {
	c.starts++
	slow := c.drift()
	if c.rand.IntN(2) == 0 { // the ends of the range are where it is tight
		slow = []float64{0.95, 1.05}[c.rand.IntN(2)]
	}
	name := fmt.Sprintf("%c%d", 'a'+slot, c.starts)
	p := c.spawn(name, func(q *process) {
		c.mu.Lock()
		c.named[name] = q
		c.mu.Unlock()
		q.linger = uniform(c.rand, scale(2999*time.Millisecond, slow))
		if c.rand.IntN(20) == 0 {
			q.linger = time.Minute // a work that does not stop: its process exits when Run says so
		}
		source, lock := rand.New(rand.NewPCG(c.rand.Uint64(), 0)), sync.Mutex{}
		q.tweak = func(e *Elector) {
			e.random = func() float64 { lock.Lock(); defer lock.Unlock(); return source.Float64() }
			// A clock that is slow by 5 % makes each of our durations last 5 % longer.
			e.cfg.RenewDeadline, e.cfg.StopGrace = scale(e.cfg.RenewDeadline, slow), scale(e.cfg.StopGrace, slow)
			e.cfg.RetryPeriod, e.cfg.DrainTimeout = scale(e.cfg.RetryPeriod, slow), scale(5*time.Second, slow)
			e.cfg.LeaseDuration, e.cfg.MaxLeaseDuration = scale(e.cfg.LeaseDuration, slow),
				scale(e.cfg.LeaseDuration, slow)
			e.cfg.SkipFirstWait = c.skip
		}
		q.exit = true
		if c.bug != nil {
			c.bug(q)
		}
	})
	c.running[slot] = p
}

// step lets one thing happen.
func (c *chaos) step() {
	slot := c.rand.IntN(len(c.running))
	p := c.running[slot]
	lead := p
	for _, q := range c.running {
		if q.leads() {
			lead = q
		}
	}
	if c.rand.IntN(2) == 0 { // most trouble is for whoever leads
		p = lead
		for i, q := range c.running {
			if q == p {
				slot = i
			}
		}
	}
	what := c.rand.IntN(16)
	c.note("%s: %s", p.name, [...]string{"cut", "cut", "cut", "heal", "heal", "slow", "lose an answer", "well", "kill",
		"SIGTERM", "end streams",
		"mute streams", "status 500", "refuse", "deny", "edit by hand"}[what])
	switch what {
	case 0, 1, 2:
		p.link.cut(true)
	case 3, 4:
		p.link.cut(false)
	case 5: // slow both ways
		there, back := uniform(c.rand, 3*time.Second), uniform(c.rand, 3*time.Second)
		p.link.set(func(s *linkState) {
			s.there = func(string) time.Duration { return there }
			s.back = func(string) time.Duration { return back }
		})
	case 6: // an answer is lost
		var lost atomic.Bool
		p.link.set(func(s *linkState) { s.lose = func(string) bool { return lost.CompareAndSwap(false, true) } })
	case 7:
		p.link.set(func(s *linkState) { *s = linkState{} })
	case 8:
		p.kill()
		c.start(slot)
	case 9: // SIGTERM, and a new one in its place
		p.cancel()
		c.start(slot)
	case 10:
		c.server.endStreams()
	case 11:
		c.server.muteStreams()
	case 12:
		p.link.set(func(s *linkState) { s.status = 500 })
	case 13:
		p.link.set(func(s *linkState) { s.refuse = true })
	case 14:
		p.link.set(func(s *linkState) {
			s.deny = map[string]bool{[]string{"get", "update", "create", "watch"}[c.rand.IntN(4)]: true}
		})
	case 15:
		c.byHand()
	}
}

func (c *chaos) byHand() {
	kind := c.rand.IntN(8)
	name := c.running[c.rand.IntN(len(c.running))]
	c.server.edit(func(l *coordinationv1.Lease) *coordinationv1.Lease {
		if l == nil {
			return &coordinationv1.Lease{}
		}
		switch kind {
		case 0:
			return nil
		case 1:
			return wipe(l)
		case 2:
			other := "somebody"
			if e := name.elector.Load(); e != nil {
				other = e.Identity()
			}
			l.Spec.HolderIdentity = &other
		case 3:
			seconds := []int32{1, 3, 1_000_000}[c.rand.IntN(3)]
			l.Spec.LeaseDurationSeconds = &seconds
		case 4:
			terms := value(l.Spec.LeaseTransitions) + int32(c.rand.IntN(3)) - 1
			terms = max(terms, 0)
			l.Spec.LeaseTransitions = &terms
		case 5:
			l.Spec = coordinationv1.LeaseSpec{}
		default: // what is none of the election's business
			l.Annotations = map[string]string{"touched": fmt.Sprint(c.rand.Int())}
		}
		return l
	})
}

// written checks the write rules. It is called with the server's lock held.
func (c *chaos) written(before, after *coordinationv1.Lease, by string, stood time.Duration) {
	if after == nil {
		c.note("%s deleted the lease", by)
	} else {
		c.note("%s wrote %s/%d, %ds, after %v", by, value(after.Spec.HolderIdentity),
			value(after.Spec.LeaseTransitions), value(after.Spec.LeaseDurationSeconds), stood)
	}
	if by == "hand" || after == nil {
		return
	}
	c.mu.Lock()
	p := c.named[by]
	c.mu.Unlock()
	was, now := "", value(after.Spec.HolderIdentity)
	if before != nil {
		was = value(before.Spec.HolderIdentity)
	}
	if isReleased(after) && p.leads() {
		c.breaks("I16: %s released while it worked", by)
	}
	if was != "" && was != now && !strings.HasPrefix(was, by+"_") && stood < scale(15*time.Second, 0.95) {
		c.breaks("I17: %s replaced the record of %s after %v", by, was, stood)
	}
	if before != nil && now != "" && was != now &&
		value(after.Spec.LeaseTransitions) <= value(before.Spec.LeaseTransitions) {
		c.breaks("%s took the lease without a new term", by)
	}
}

func (c *chaos) run(steps int) []string {
	c.running, c.began, c.named = make([]*process, 3), time.Now(), map[string]*process{}
	c.server.edit(func(*coordinationv1.Lease) *coordinationv1.Lease {
		return released(&coordinationv1.Lease{}, time.Now())
	})
	last := time.Now()
	c.server.mu.Lock()
	c.server.onWrite = func(before, after *coordinationv1.Lease, by string) {
		c.written(before, after, by, time.Since(last))
		if !sameRecord(before, after) {
			last = time.Now()
		}
	}
	c.server.mu.Unlock()
	for slot := range c.running {
		c.start(slot)
	}
	for range steps {
		time.Sleep(uniform(c.rand, 8*time.Second))
		c.step()
	}
	for slot, p := range c.running {
		p.link.set(func(s *linkState) { *s = linkState{} })
		if p.ended() { // its work did not stop
			c.start(slot)
		}
	}
	// LeaseDuration on the slowest clock, two RetryPeriods, the time of a try, and the work of an old leader that
	// has to end first.
	time.Sleep(scale(15*time.Second+2*2400*time.Millisecond+3*time.Second+500*time.Millisecond, 1.05) + 6*time.Second)
	leading := 0
	for _, p := range c.running {
		if p.leads() {
			leading++
		}
	}
	if leading == 0 {
		c.breaks("I18: nobody leads though all could")
	}
	for _, p := range c.all {
		for _, s := range p.tenures() {
			c.note("%s worked from %.3f to %.3f", p.name, s.from.Sub(c.began).Seconds(), s.to.Sub(c.began).Seconds())
		}
	}
	if o := overlap(c.all...); o > 0 {
		c.breaks("I15: two worked at once for %v", o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// chaosRun runs one seed in a bubble of its own.
func chaosRun(t *testing.T, seed uint64, change func(*chaos)) (broken []string) {
	synctest.Test(t, func(t *testing.T) {
		c := &chaos{world: &world{T: t, server: newServer(), kind: ours(), rand: rand.New(rand.NewPCG(seed, 15))}}
		if change != nil {
			change(c)
		}
		broken = c.run(24)
		if len(broken) > 0 && os.Getenv("THERMOSTAT_SEED") != "" {
			t.Log(strings.Join(c.history, "\n"))
		}
		for _, p := range c.all {
			p.link.set(func(s *linkState) { *s = linkState{} })
			p.cancel()
		}
		for _, p := range c.all {
			p.stop()
		}
		time.Sleep(10 * time.Second) // what is in flight arrives
	})
	return broken
}

// TestRandomRuns looks for a broken invariant in many random runs: 10,000 with THERMOSTAT_SOAK=1. THERMOSTAT_SEED=n
// repeats one.
func TestRandomRuns(t *testing.T) {
	first, n := uint64(0), uint64(150)
	switch {
	case soak():
		n = 10_000
	case raceEnabled:
		n = 30
	}
	if seed, err := strconv.ParseUint(os.Getenv("THERMOSTAT_SEED"), 10, 64); err == nil {
		first, n = seed, 1
	}
	for seed := first; seed < first+n; seed++ {
		require.Empty(t, chaosRun(t, seed, nil), "THERMOSTAT_SEED=%d go test -run TestRandomRuns ./leaderelection",
			seed)
	}
}

// TestRandomRunsFindSeededBugs shows that the same runs, with the same checks, do find what is wrong.
func TestRandomRunsFindSeededBugs(t *testing.T) {
	tweak := func(p *process, more func(*Elector)) {
		before := p.tweak
		p.tweak = func(e *Elector) { before(e); more(e) }
	}
	for name, b := range map[string]struct {
		change func(*chaos)
		finds  string
	}{
		"deadline counted from the answer": {func(c *chaos) {
			c.bug = func(p *process) {
				tweak(p, func(e *Elector) { e.tryTimeout, p.linger = 5*time.Second, e.cfg.StopGrace-1 })
				p.link.set(func(s *linkState) {
					s.back = func(
						string) time.Duration {
						return 1500 * time.Millisecond
					}
				})
				p.link.answered = func(verb string) {
					if e := p.elector.Load(); e != nil && verb == "update" {
						time.AfterFunc(time.Millisecond, func() { // right after the renewal has set what is right
							if t := e.tenure.Load(); t != nil {
								lease := t.lastLease()
								t.extend(e.now(), lease)
							}
						})
					}
				}
			}
		}, "I15"},
		"LeaseDuration does not cover the stop": {func(c *chaos) {
			c.bug = func(p *process) { tweak(p, func(e *Elector) { e.cfg.StopGrace *= 3; p.linger *= 3 }) }
		}, "I15"},
		"wait cut short": {func(c *chaos) {
			c.bug = func(p *process) {
				tweak(p, func(e *Elector) { e.cfg.LeaseDuration /= 2; e.cfg.MaxLeaseDuration /= 2 })
			}
		}, "I17"},
		"released when told to stop": {func(c *chaos) {
			c.bug = func(p *process) {
				p.act = func(ctx context.Context) error {
					<-ctx.Done()
					e := p.elector.Load()
					if t := e.tenure.Load(); t != nil {
						lease := t.lastLease()
						e.release(ctx, lease, t.token, "")
					}
					time.Sleep(p.linger)
					return ctx.Err()
				}
			}
		}, "I16"},
		"a lease that is gone is taken at once": {func(c *chaos) {
			c.skip = true
			c.bug = func(p *process) { tweak(p, func(e *Elector) { p.linger = e.cfg.StopGrace - 1 }) }
		}, "I15"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				for _, broken := range chaosRun(t, seed, b.change) {
					if strings.HasPrefix(broken, b.finds) {
						t.Logf("seed %d: %s", seed, broken)
						return
					}
				}
			}
			require.Fail(t, "nothing found")
		})
	}
}
