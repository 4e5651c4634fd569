package workqueue

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// model is what a queue without priorities and groups does, said in the plainest way: slices, maps, no lock, no timer.
// advance plays the part of the clock.
type model struct {
	bug string // a mistake to make on purpose; see TestModelNoticesBugs

	keys  map[string]*modelKey // those that the queue knows something about
	ready []string
	now   time.Duration
	down  bool
}

type modelKey struct {
	active, dirty bool
	claim         int               // live claim, 0 for none; -1: held by Get
	at            [2]*time.Duration // asked, left
}

func (m *model) key(k string) *modelKey {
	if m.keys[k] == nil {
		m.keys[k] = &modelKey{}
	}
	return m.keys[k]
}

func (m *model) want(k string) {
	x := m.key(k)
	waits := slices.Contains(m.ready, k)
	switch {
	case x.active:
		x.dirty = m.bug != "lose a dirty add"
	case !waits || m.bug == "queue a waiting key again":
		m.ready = append(m.ready, k)
	}
}

func (m *model) alarm(k string, kind int, d time.Duration) {
	x, at := m.key(k), m.now+d
	if was := x.at[kind]; was != nil && m.bug != "let the later deadline win" {
		at = min(at, *was)
	}
	x.at[kind] = &at
}

func (m *model) add(k string, d time.Duration) {
	switch {
	case m.down && m.bug != "add after shutdown":
	case d > 0:
		m.alarm(k, ofAdd, d)
	default:
		m.want(k)
	}
}

// next hands out a key; claim is -1 for a Get.
func (m *model) next(claim int) (string, bool) {
	if len(m.ready) == 0 {
		return "", false
	}
	k := m.ready[0]
	m.ready = m.ready[1:]
	x := m.key(k)
	x.active, x.claim = true, claim
	if claim > 0 && m.bug != "keep the delay of an earlier outcome" {
		x.at[ofOutcome] = nil
	}
	return k, true
}

// end finishes the hand-out of k that claim stands for.
func (m *model) end(k string, claim int, o outcome) {
	x := m.keys[k]
	if x == nil || !x.active || x.claim != claim && m.bug != "let a stray call end a hand-out" {
		return
	}
	if o.again && (o.after > 0 || m.down) {
		m.alarm(k, ofOutcome, max(o.after, 0))
	} else if o.again {
		m.want(k)
	}
	if x.active, x.claim = false, 0; x.dirty {
		x.dirty = false
		m.ready = append(m.ready, k)
	}
}

func (m *model) cancel(k string) bool {
	x := m.keys[k]
	had := x != nil && (x.at[ofAdd] != nil || x.at[ofOutcome] != nil)
	if had {
		x.at = [2]*time.Duration{}
		if m.bug == "cancel what is ready" {
			m.ready = slices.DeleteFunc(m.ready, func(o string) bool { return o == k })
		}
	}
	return had
}

func (m *model) advance(d time.Duration) {
	end := m.now + d
	for !m.down {
		var first string
		kind, at := 0, end+1
		for k, x := range m.keys {
			for i, t := range x.at {
				if t != nil && *t < at {
					first, kind, at = k, i, *t
				}
			}
		}
		if at > end {
			break
		}
		m.now = at
		x := m.keys[first]
		if x.at[kind] = nil; m.bug == "ring once for both" {
			x.at = [2]*time.Duration{}
		}
		m.want(first)
	}
	m.now = end
}

// String is the whole state, in the same words as describe has for a queue.
func (m *model) String() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		x := m.keys[k]
		state := Delayed
		switch {
		case x.active:
			state = Active
		case slices.Contains(m.ready, k):
			state = Ready
		case x.at == [2]*time.Duration{}:
			continue
		}
		next := time.Duration(-1)
		for _, at := range x.at {
			if at != nil && (next < 0 || *at < next) {
				next = *at
			}
		}
		all = append(all, fmt.Sprint(k, " ", state, " ", x.dirty, " ", next))
	}
	return fmt.Sprint(len(m.ready), all)
}

func describe(q *Queue[string]) string {
	var all []string
	for _, i := range q.Snapshot() {
		next := time.Duration(-1)
		if !i.Next.IsZero() {
			next = i.Next.Sub(q.core.born)
		}
		all = append(all, fmt.Sprint(i.Key, " ", i.State, " ", i.Again, " ", next))
	}
	slices.Sort(all)
	return fmt.Sprint(q.Len(), all)
}

// odd is a limiter whose delays never make two keys due at once, as the order of those is not promised.
type odd struct {
	op       *int
	failures map[string]int
}

func (o odd) When(k string) time.Duration {
	o.failures[k]++
	return o.last(k)
}
func (o odd) last(k string) time.Duration {
	return time.Duration(o.failures[k])*time.Second + time.Duration(*o.op)*time.Microsecond
}
func (o odd) Forget(k string)          { delete(o.failures, k) }
func (o odd) NumRequeues(k string) int { return o.failures[k] }

// play gives each operation of script, which is two bytes, to a queue and to the model, and returns the first
// difference between the two, or the first broken invariant of the queue. It runs in a synctest bubble.
func play(script []byte, bug string) error {
	op := 0
	limiter := odd{&op, map[string]int{}}
	o := Options[string]{RateLimiter: limiter}
	m := &model{bug: bug, keys: map[string]*modelKey{}}
	q := newQueue(o)
	defer q.ShutDown()
	ended, cancel := context.WithCancel(context.Background())
	cancel()

	var claims []Claim[string]
	var log []string
	for ; op < len(script)/2; op++ {
		code, arg := script[2*op], script[2*op+1]
		k := string(rune('a' + arg%4))
		d := time.Duration(arg/4)*100*time.Millisecond + time.Duration(op)*time.Microsecond
		var real, want any
		switch code % 16 {
		case 0, 1:
			log = append(log, "Add "+k)
			q.Add(k)
			m.add(k, 0)
		case 2:
			log = append(log, fmt.Sprint("AddAfter ", k, " ", d))
			q.AddAfter(k, d)
			m.add(k, d)
		case 3:
			log = append(log, "AddRateLimited "+k)
			q.AddRateLimited(k)
			m.add(k, limiter.last(k))
		case 4, 5, 6:
			log = append(log, "Take or Get")
			claim := -1
			if code%16 != 6 {
				claim = len(claims) + 1
			}
			expected, ok := m.next(claim)
			if ok {
				want = expected
			}
			switch {
			case !ok && m.down:
				_, err := q.Take(context.Background())
				real, want = err, ErrShutDown
			case !ok:
				ctx, cancel := context.WithTimeout(context.Background(), 1)
				_, err := q.Take(ctx)
				cancel()
				real, want = err, context.DeadlineExceeded
				time.Sleep(time.Microsecond - 1)
				synctest.Wait()
				m.advance(time.Microsecond)
			case claim < 0:
				real, _ = q.Get()
			default:
				c, err := q.Take(context.Background())
				if err != nil {
					return err
				}
				claims = append(claims, c)
				real = c.Key()
			}
		case 7:
			log = append(log, "Done "+k)
			q.Done(k)
			m.end(k, -1, outcome{})
		case 8, 9, 10: // also of claims that have ended
			if len(claims) == 0 {
				continue
			}
			i := int(arg) % len(claims)
			c, how := claims[i], code%16*8+arg/32
			live := m.keys[c.key] != nil && m.keys[c.key].claim == i+1
			log = append(log, fmt.Sprint("end ", c.key, " in way ", how%5))
			switch how % 5 {
			case 0:
				c.Done()
				m.end(c.key, i+1, outcome{})
			case 1:
				c.DoneAfter(d)
				m.end(c.key, i+1, outcome{again: true, after: d})
			case 2:
				got := c.Retry()
				if !live && got != 0 {
					return fmt.Errorf("a stray Retry counted a failure")
				}
				m.end(c.key, i+1, outcome{again: true, after: got})
			case 3:
				c.RetryAfter(d)
				m.end(c.key, i+1, outcome{again: true, after: d})
			case 4:
				c.Rest(0)
				m.end(c.key, i+1, outcome{})
			}
		case 11:
			log = append(log, "Cancel "+k)
			real, want = q.Cancel(k), m.cancel(k)
		case 12:
			log = append(log, "take with a dead context")
			_, err := q.Take(ended)
			real, want = err, context.Canceled
		case 13, 14:
			d = time.Duration(arg) * 10 * time.Millisecond
			log = append(log, fmt.Sprint("Sleep ", d))
			time.Sleep(d)
			synctest.Wait()
			m.advance(d)
		case 15:
			if arg < 64 {
				log = append(log, "ShutDown")
				q.ShutDown()
				m.down = true
			}
		}
		if real != want {
			return fmt.Errorf("after %q: %v, and the model says %v", log, real, want)
		}
		if a, b := describe(q), m.String(); a != b {
			return fmt.Errorf("after %q:\n queue %s\n model %s", log, a, b)
		}
		if err := q.check(); err != nil {
			return fmt.Errorf("after %q: %w", log, err)
		}
	}
	return nil
}

func randomScript(r *rand.Rand, n int) []byte {
	script := make([]byte, n)
	for i := range script {
		script[i] = byte(r.Uint32())
	}
	return script
}

func TestQueueIsTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(many(3000)) {
			r := rand.New(rand.NewPCG(seed, 0))
			require.NoError(t, play(randomScript(r, 20+r.IntN(200)), ""), "seed %d", seed)
		}
	})
}

// TestModelNoticesBugs shows that each kind of mistake is a difference that play finds.
func TestModelNoticesBugs(t *testing.T) {
	for _, bug := range []string{
		"lose a dirty add", "queue a waiting key again", "let the later deadline win",
		"add after shutdown", "keep the delay of an earlier outcome", "let a stray call end a hand-out",
		"cancel what is ready", "ring once for both",
	} {
		t.Run(bug, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(3000) {
					r := rand.New(rand.NewPCG(seed, 0))
					if play(randomScript(r, 20+r.IntN(200)), bug) != nil {
						return
					}
				}
				t.Error("nobody noticed")
			})
		})
	}
}

func FuzzQueue(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomScript(rand.New(rand.NewPCG(seed, 1)), 101+int(seed)))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 1600)] // the delays are told apart by less than 1000 operations
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, play(script, ""))
		})
	})
}
