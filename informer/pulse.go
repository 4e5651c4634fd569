package informer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// pulse shows from outside whether a goroutine moves that runs code which may never return: a client whose transport
// does not heed its context, a Transform, a handler. The goroutine says what it does, which costs two atomic
// operations; a timer looks now and then. The zero value is at rest.
type pulse struct {
	beats atomic.Uint64 // how often it has said something
	beat  atomic.Uint64 // what it does in the low bits, and above them the number of the beat
	gated atomic.Int32  // how many requests of it wait at a Gate, each on a goroutine of its own
}

// activity is what a goroutine may be found stuck in.
type activity uint64

const (
	resting   activity = iota // waiting for something that a timer of its own bounds
	asking                    // in a request, and not held back by a Gate
	ending                    // at the end of a watch
	receiving                 // dealing with what has come
	storing                   // changing the store
	handling                  // calling a handler
)

func (a activity) String() string {
	return [...]string{
		resting:   "waiting",
		asking:    "in a method of the client or in the transport below it",
		ending:    "at the end of a watch, in the client's Stop or in the transport below it",
		receiving: "in a method of an object or in Options.Transform",
		storing:   "in an index function, an inline handler, or HandlerOptions.Reached or Invalid",
		handling:  "in a call",
	}[a]
}

const activityBits = 3

// does says what the goroutine does from now on.
func (p *pulse) does(a activity) { p.beat.Store(p.beats.Add(1)<<activityBits | uint64(a)) }

type pulseKey struct{}

// rests says that the goroutine which a request belongs to waits for something that ends by itself, until the function
// that it returns is called.
func rests(ctx context.Context) (on func()) {
	p, ok := ctx.Value(pulseKey{}).(*pulse)
	if !ok {
		return func() {}
	}
	p.gated.Add(1)
	return func() {
		p.does(asking)
		p.gated.Add(-1)
	}
}

// A goroutine that has done the same thing for stuckAfter is stuck. Requests are given up before, see listTimeout.
const stuckEvery, stuckAfter = time.Minute, 3 * time.Minute

var errStuck = errors.New("a goroutine stands still")

// watch looks after a goroutine until ctx ends: it calls know with an error when the goroutine no longer moves, and
// with nil when it does again.
func (p *pulse) watch(ctx context.Context, who string, know func(error)) {
	seen, looks := p.beat.Load(), 0
	var timer *time.Timer
	look := func() {
		now := p.beat.Load()
		doing := activity(now & (1<<activityBits - 1))
		switch looks++; {
		case ctx.Err() != nil:
			return
		case now != seen || doing == resting || p.gated.Load() > 0:
			if looks > int(stuckAfter/stuckEvery) {
				know(nil)
			}
			seen, looks = now, 0
		case looks == int(stuckAfter/stuckEvery):
			know(fmt.Errorf("%w: the %s has not moved for %s, %s", errStuck, who, stuckAfter, doing))
		}
		timer.Reset(stuckEvery)
	}
	armed := make(chan struct{})
	timer = time.AfterFunc(stuckEvery, func() { <-armed; look() })
	close(armed)
	context.AfterFunc(ctx, func() { timer.Stop() })
}
