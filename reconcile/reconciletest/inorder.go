package reconciletest

import (
	"iter"
	"runtime"
	"sync"
	"time"
)

// runner is the part of a check that runs schedules.
type runner struct{ *check }

// atOnce is how many schedules run at the same time.
func (c runner) atOnce() int {
	if c.scenario.Parallel {
		return runtime.GOMAXPROCS(0)
	}
	return 1
}

// each returns a schedule for each of several lists of disturbances.
func (c runner) each(all [][]disturbance) iter.Seq[schedule] {
	return func(yield func(schedule) bool) {
		for _, disturbances := range all {
			if !yield(c.schedule(disturbances...)) {
				return
			}
		}
	}
}

// inOrder runs schedules and yields each with its end, in their order, until there are enough findings or until a time;
// zero stands for none. While one is looked at, the next ones run, as far as there are to be several at once: so what
// is found is the same.
func (c runner) inOrder(schedules iter.Seq[schedule], until time.Time) iter.Seq2[schedule, *ending] {
	return func(yield func(schedule, *ending) bool) {
		next, stop := iter.Pull(schedules)
		defer stop()
		var runs sync.WaitGroup
		defer runs.Wait()
		var begun []*ahead
		for !c.enough() {
			for len(begun) < c.atOnce() && (until.IsZero() || time.Now().Before(until)) {
				s, more := next()
				if !more {
					break
				}
				a := &ahead{schedule: s, ended: make(chan struct{})}
				begun = append(begun, a)
				runs.Go(func() {
					defer close(a.ended)
					a.end = c.play(s, c.ideal)
				})
			}
			if len(begun) == 0 {
				return
			}
			first := begun[0]
			if <-first.ended; first.end == nil {
				c.t.FailNow() // the scenario has failed the test on the goroutine of the run
			}
			begun = begun[1:]
			if c.count(first.schedule, first.end); !yield(first.schedule, first.end) {
				return
			}
		}
	}
}

// ahead is a schedule that runs, or has run.
type ahead struct {
	schedule schedule
	ended    chan struct{} // closed once end is set; end is nil if the run has failed the test
	end      *ending
}
