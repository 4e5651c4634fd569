package workqueue

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// RateLimiter decides how long a key that failed has to wait. Its methods are those of client-go's TypedRateLimiter, so
// each can be used as the other. A queue calls them from many goroutines, and never with its lock held.
//
// The limiters of this package that count failures keep a count for an hour after the longest delay that they can
// return and free its memory within a further minute, by a timer, so they need not be closed. Their constructors panic
// on arguments that make no sense, as those are constants of the program.
type RateLimiter[K comparable] interface {
	// When counts one more failure of key and returns the delay before the next attempt.
	When(key K) time.Duration
	// Forget sets the count of key back to zero: it succeeded, or was given up.
	Forget(key K)
	// NumRequeues returns the count of key.
	NumRequeues(key K) int
}

const (
	// idleAfter is how long the count of a key outlives the delay that it led to. Success forgets a key at once; this
	// is for keys that no caller forgets.
	idleAfter = time.Hour
	// sweepEvery is the shortest time between two sweeps that free the memory of such counts.
	sweepEvery = time.Minute
)

// Exponential doubles the delay with each failure of a key: base, 2*base, 4*base and so on, up to most. Each delay is
// then multiplied with a random factor from 1-jitter to 1+jitter, so that keys that failed together do not come back
// together; 0 means exact delays. It panics unless 0 < base <= most and 0 <= jitter <= 1.
func Exponential[K comparable](base, most time.Duration, jitter float64) RateLimiter[K] {
	switch {
	case base <= 0 || most < base:
		panic("workqueue: Exponential needs 0 < base <= most")
	case !(jitter >= 0 && jitter <= 1):
		panic("workqueue: Exponential needs a jitter from 0 to 1")
	}
	longest := later(int64(most), time.Duration(min(float64(most)*jitter, math.MaxInt64/2)))
	return newPerKey[K](longest, func(key K, failures int) time.Duration {
		d := lifecycle.Doubled(base, failures-1, most)
		if jitter == 0 {
			return d
		}
		return time.Duration(min(float64(d)*(1+jitter*(2*lifecycle.Random(fmt.Sprint(key))-1)), math.MaxInt64/2))
	})
}

// Bucket lets rate failures a second pass, over all keys together, and burst of them at once after a pause. It delays
// each other failure until the bucket has a token for it. The token is reserved at the time of the failure, so one key
// that fails without end delays all that fail after it. It panics unless rate > 0 and burst >= 1.
func Bucket[K comparable](rate float64, burst int) RateLimiter[K] {
	if !(rate > 0) || burst < 1 {
		panic("workqueue: Bucket needs rate > 0 and burst >= 1")
	}
	return &bucketLimiter[K]{born: time.Now(), tokens: newBucket(rate, burst)}
}

// MaxOf returns the longest delay, and the highest count, of several limiters. It panics if there is none, or if one is
// nil.
func MaxOf[K comparable](limiters ...RateLimiter[K]) RateLimiter[K] {
	if len(limiters) == 0 {
		panic("workqueue: MaxOf needs a limiter")
	}
	if i := slices.Index(limiters, nil); i >= 0 {
		panic(fmt.Sprintf("workqueue: MaxOf needs limiters, and number %d is nil", i))
	}
	return maxOf[K](limiters)
}

// perKey is a limiter whose delay depends on how often the key failed in a row.
type perKey[K comparable] struct {
	// Never changed.
	delay func(key K, failures int) time.Duration // for failures >= 1
	keep  int64                                   // how long a count is kept without a further failure, ns
	born  time.Time

	size atomic.Int64 // len(counts), so that to forget a key costs nothing as long as none fails

	mu sync.Mutex // guards the fields below

	// oldest is the head of a ring of all counts: oldest.next is the one whose last failure is longest ago.
	oldest count[K]
	counts map[K]*count[K]
	peak   int // the most that counts has held; see roomy

	// The sweeper drops the counts that have expired, whether or not another key fails or succeeds. As long as there
	// are counts it is set for the time at which the oldest of them expires or, if that is later, sweepEvery after the
	// sweep before. So a limiter has no goroutine, and one that is not used any more is freed with its last count.
	sweeper *time.Timer // runs sweep; made when first needed
	set     bool
}

type count[K comparable] struct {
	key        K
	failures   int
	last       int64 // time of the last failure, ns since born
	next, prev *count[K]
}

func newPerKey[K comparable](longest int64, delay func(K, int) time.Duration) *perKey[K] {
	p := &perKey[K]{delay: delay, keep: later(longest, idleAfter), born: time.Now(), counts: map[K]*count[K]{}}
	p.oldest.next, p.oldest.prev = &p.oldest, &p.oldest
	return p
}

func (p *perKey[K]) When(key K) time.Duration {
	if key != key {
		return p.delay(key, 1) // its count would never be found again
	}
	p.mu.Lock()
	failures := p.fail(key, int64(time.Since(p.born)))
	p.mu.Unlock()
	return p.delay(key, failures) // it formats the key, which may call the String method of the user's type
}

// fail counts a failure of key and returns how many it has had in a row.
func (p *perKey[K]) fail(key K, now int64) int {
	c := p.counts[key]
	if c == nil {
		c = &count[K]{key: key}
		p.counts[key] = c
		p.peak = max(p.peak, len(p.counts))
		p.size.Add(1)
	} else {
		c.unlink()
		if p.expired(c, now) {
			c.failures = 0
		}
	}
	c.failures++
	c.last = now
	c.next, c.prev = &p.oldest, p.oldest.prev
	c.prev.next, c.next.prev = c, c
	p.schedule(now, 0)
	return c.failures
}

// schedule sets the sweeper, for the end of pause at the earliest, unless it is set or no count will ever expire.
func (p *perKey[K]) schedule(now int64, pause time.Duration) {
	if p.set || len(p.counts) == 0 {
		return
	}
	last := later(p.oldest.next.last, time.Duration(p.keep)) // the last moment at which the oldest one counts
	if last == never {
		return
	}
	p.set = true
	d := max(time.Duration(last+1-now), pause)
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(d, p.sweep)
	} else {
		p.sweeper.Reset(d)
	}
}

// sweep runs when the sweeper fires.
func (p *perKey[K]) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.dropExpired()
	p.set = false
	p.schedule(now, sweepEvery)
}

// dropExpired drops all counts that have expired, and returns the time at which none was left. It lets go of the lock
// in between, so that a million of them keep no other goroutine from it.
func (p *perKey[K]) dropExpired() (now int64) {
	for {
		now = int64(time.Since(p.born))
		if p.dropSome(now) {
			return now
		}
		p.mu.Unlock()
		p.mu.Lock()
	}
}

// dropSome drops up to a thousand expired counts, and reports whether that was all.
func (p *perKey[K]) dropSome(now int64) (all bool) {
	for range 1000 {
		if p.oldest.next == &p.oldest || !p.expired(p.oldest.next, now) {
			return true
		}
		p.drop(p.oldest.next)
	}
	return false
}

func (p *perKey[K]) Forget(key K) {
	if p.size.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.counts[key]; c != nil {
		p.drop(c)
	}
}

func (p *perKey[K]) NumRequeues(key K) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.counts[key]; c != nil && !p.expired(c, int64(time.Since(p.born))) {
		return c.failures
	}
	return 0
}

func (p *perKey[K]) failing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropExpired()
	return len(p.counts)
}

// expired reports whether c no longer counts, even if it has not been dropped.
func (p *perKey[K]) expired(c *count[K], now int64) bool { return now-c.last > p.keep }

func (p *perKey[K]) drop(c *count[K]) {
	c.unlink()
	delete(p.counts, c.key)
	p.counts, p.peak = shrunk(p.counts, p.peak)
	p.size.Add(-1)
}

func (c *count[K]) unlink() { c.prev.next, c.next.prev = c.next, c.prev }

type maxOf[K comparable] []RateLimiter[K]

func (m maxOf[K]) When(key K) (d time.Duration) {
	for _, l := range m {
		d = max(d, l.When(key))
	}
	return d
}

func (m maxOf[K]) Forget(key K) {
	for _, l := range m {
		l.Forget(key)
	}
}

func (m maxOf[K]) NumRequeues(key K) (n int) {
	for _, l := range m {
		n = max(n, l.NumRequeues(key))
	}
	return n
}

func (m maxOf[K]) failing() (n int) {
	for _, l := range m {
		n = max(n, failing(l))
	}
	return n
}

// failing is how many keys l counts failures of; 0 if l is not of this package.
func failing[K comparable](l RateLimiter[K]) int {
	if l, ok := l.(interface{ failing() int }); ok {
		return l.failing()
	}
	return 0
}

type bucketLimiter[K comparable] struct {
	born   time.Time
	mu     sync.Mutex
	tokens bucket
}

func (b *bucketLimiter[K]) When(K) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tokens.reserve(int64(time.Since(b.born)))
}
func (b *bucketLimiter[K]) Forget(K)          {}
func (b *bucketLimiter[K]) NumRequeues(K) int { return 0 }

// bucket is a token bucket, kept as the one number of the generic cell rate algorithm (ITU-T I.371): full, the time at
// which it will be full again if no token is reserved. Each token puts that off by interval.
type bucket struct {
	interval, slack int64 // slack: how far ahead of now full may be for a token to be there, ns
	full            int64
}

func newBucket(rate float64, burst int) bucket {
	interval := int64(min(max(float64(time.Second)/rate, 1), math.MaxInt64/4))
	if int64(burst-1) > math.MaxInt64/4/interval {
		burst = int(math.MaxInt64 / 4 / interval)
	}
	return bucket{interval: interval, slack: int64(burst-1) * interval}
}

// reserve reserves the next free token, and returns how long it takes until the bucket has it.
func (b *bucket) reserve(now int64) time.Duration {
	wait := max(b.full-b.slack-now, 0)
	b.full = later(max(b.full, now), time.Duration(b.interval))
	return time.Duration(wait)
}
