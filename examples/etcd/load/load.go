package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"
)

// Options say who reads and writes. Endpoints is required.
type Options struct {
	// Endpoints returns the URLs at which the members serve clients. It is called whenever a client has lost its
	// member, by several goroutines at the same time.
	Endpoints func() []string
	// TLS returns the configuration with which clients reach members. It is called before each request, by several
	// goroutines at the same time. A client goes to its member anew when it is another one. Default: no TLS.
	TLS func() *tls.Config
	// Writers and Readers are the numbers of clients. Each has a connection to one member at a time, and goes to the
	// next one when a request fails. Default: 4 each.
	Writers, Readers int
	// Pause is how long a client waits between two requests. Default: 5 ms.
	Pause time.Duration
}

// patience is how long a client waits for the answer to a request.
const patience = time.Second

// Load is a set of clients at work. Its methods may be called by several goroutines at the same time.
type Load struct {
	o         Options
	prefix    string // of all keys; no other Load has it
	registers []*register
	watcher   *watcher
	// cancel and group are of the clients that run, or ran last; the others are of the watch.
	cancel, unwatch context.CancelFunc
	group, watching sync.WaitGroup

	lock    sync.Mutex // guards what follows
	report  Report
	lap     Report // since the last Lap
	seconds []Second
	ended   time.Time // by Stop
}

// Report is what the clients have seen so far.
type Report struct {
	Began         time.Time
	Writes, Reads Count
	// Wrong are the lost writes and the reads that went back. It must be empty.
	Wrong []string
}

// Count is about requests of one kind.
type Count struct {
	Done, Failed int
	// Gap is the longest time in which no request of any client succeeded. It began at GapAt.
	Gap   time.Duration
	GapAt time.Time
	last  time.Time
}

// Second has the successful and failed requests of one second.
type Second struct{ Writes, Reads, Failed int }

// Start starts the clients. They end when ctx does, or by [Load.Stop].
func Start(ctx context.Context, o Options) *Load {
	if o.Writers == 0 {
		o.Writers = 4
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.Pause == 0 {
		o.Pause = 5 * time.Millisecond
	}
	l := begin(o)
	for i := range o.Writers {
		l.registers = append(l.registers, newRegister(fmt.Sprintf("%s/%02d", l.prefix, i)))
	}
	l.run(ctx)
	return l
}

// run starts the clients.
func (l *Load) run(ctx context.Context) {
	watch, unwatch := context.WithCancel(ctx)
	l.unwatch = unwatch
	l.watching.Go(func() { l.watcher.repeat(watch) })
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range l.o.Writers {
		c := &client{load: l, number: i, turn: i}
		l.group.Go(func() { c.repeat(ctx, c.writer(l.registers[i])) })
	}
	for i := range l.o.Readers {
		c := &client{load: l, number: l.o.Writers + i, turn: i}
		l.group.Go(func() { c.repeat(ctx, c.reader(i)) })
	}
}

func begin(o Options) *Load {
	if o.TLS == nil {
		o.TLS = func() *tls.Config { return nil }
	}
	now := time.Now()
	none := Report{Began: now, Writes: Count{last: now}, Reads: Count{last: now}}
	l := &Load{o: o, prefix: fmt.Sprintf("load/%x", now.UnixNano()), report: none, lap: none}
	l.watcher = &watcher{load: l}
	return l
}

// Stop ends the clients, and returns when they have ended. The watch may take up to 30 s to catch up.
func (l *Load) Stop() Report {
	l.cancel()
	l.group.Wait()
	l.watcher.await(l.newest())
	l.unwatch()
	l.watching.Wait()
	l.lock.Lock()
	l.ended = time.Now()
	l.lock.Unlock()
	return l.Report()
}

// newest returns the highest revision of all operations.
func (l *Load) newest() (revision int64) {
	for _, r := range l.registers {
		for _, k := range r.all() {
			for _, o := range k.operations() {
				revision = max(revision, o.revision)
			}
		}
	}
	return revision
}

// Resume starts the clients again after [Load.Stop]. What was acknowledged before must still be there. The time between
// the two is in no gap. Stop and Resume must not be called at the same time as each other.
func (l *Load) Resume(ctx context.Context) {
	l.lock.Lock()
	rest := time.Since(l.ended)
	for _, r := range []*Report{&l.report, &l.lap} {
		r.Writes.last, r.Reads.last = r.Writes.last.Add(rest), r.Reads.last.Add(rest)
	}
	l.ended = time.Time{}
	l.lock.Unlock()
	l.run(ctx)
}

// Report returns what the clients have seen so far. A gap that has not ended counts as far as it goes.
func (l *Load) Report() Report {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.finish(l.report)
}

// Lap returns what the clients have seen since the last call of Lap. A gap that began before it counts as a whole.
func (l *Load) Lap() Report {
	l.lock.Lock()
	defer l.lock.Unlock()
	lap, now := l.lap, time.Now()
	l.lap = Report{Began: now, Writes: Count{last: lap.Writes.last}, Reads: Count{last: lap.Reads.last}}
	return l.finish(lap)
}

// finish ends the present gaps in a copy of a report. The lock is held.
func (l *Load) finish(r Report) Report {
	r.Wrong = append([]string(nil), r.Wrong...)
	now := l.ended
	if now.IsZero() {
		now = time.Now()
	}
	r.Writes.until(now)
	r.Reads.until(now)
	return r
}

// Seconds returns the seconds that are over since the clients have begun.
func (l *Load) Seconds() []Second {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.second()
	return append([]Second(nil), l.seconds[:len(l.seconds)-1]...)
}

// second returns the present second. The lock is held.
func (l *Load) second() *Second {
	for n := int(time.Since(l.report.Began) / time.Second); len(l.seconds) <= n; {
		l.seconds = append(l.seconds, Second{})
	}
	return &l.seconds[len(l.seconds)-1]
}

// count takes the outcome of one request.
func (l *Load) count(write bool, err error, wrong string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	second := l.second()
	for _, r := range []*Report{&l.report, &l.lap} {
		if wrong != "" {
			r.Wrong = append(r.Wrong, wrong)
		}
		if write {
			r.Writes.add(err)
		} else {
			r.Reads.add(err)
		}
	}
	switch {
	case err != nil:
		second.Failed++
	case write:
		second.Writes++
	default:
		second.Reads++
	}
}

// add counts one request.
func (c *Count) add(err error) {
	if err != nil {
		c.Failed++
		return
	}
	now := time.Now()
	c.until(now)
	c.Done, c.last = c.Done+1, now
}

// until ends the present gap.
func (c *Count) until(now time.Time) {
	if gap := now.Sub(c.last); gap > c.Gap {
		c.Gap, c.GapAt = gap, c.last
	}
}
