package leaderelection

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// failures holds what fails at present, by what was tried: "look", "watch", "acquire" and "renew". So a failure is
// logged when it begins and when it ends, not each time between, and Run can say why it never led.
type failures struct {
	mu  sync.Mutex
	now map[string]failure // guarded by mu; an entry is there while the last try of its kind failed
}

type failure struct {
	err   error
	since time.Time
}

func (failure) any() bool { return true }

func (f failure) denied() bool {
	var denied *DeniedError
	return errors.As(f.err, &denied)
}

// note notes the outcome of a try, and logs it if it is news. A try that this process cut off itself says nothing.
func (c *candidate) note(ctx context.Context, what string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	last, news := c.failures.note(what, err)
	denied := failure{err: err}.denied()
	logger := klog.FromContext(ctx)
	switch {
	case !news && err != nil:
		logger.V(2).Info("Still failing", "what", what, "lease", c.String(), "err", err)
	case !news:
	case err == nil:
		logger.Info("Works again", "what", what, "lease", c.String(), "after", time.Since(last.since))
	case what == "watch" && denied:
		logger.Info("May not watch the lease, so it is polled; a hand-over takes longer", "lease", c.String(), "period",
			c.cfg.RetryPeriod, "err", err)
	case denied:
		logger.Info("Access to the lease is denied; retrying", "what", what, "err", err)
	default:
		logger.Info("Failing; retrying", "what", what, "lease", c.String(), "err", err)
	}
}

// note returns the last failure of that kind, and whether the outcome is news. A refusal is news after another failure,
// and the other way round.
func (f *failures) note(what string, err error) (last failure, news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, failed := f.now[what]
	if err == nil {
		delete(f.now, what)
		return last, failed
	}
	next := failure{err: err, since: time.Now()}
	if news = !failed || last.denied() != next.denied(); !news {
		next.since = last.since
	}
	if f.now == nil {
		f.now = map[string]failure{}
	}
	f.now[what] = next
	return last, news
}

// clear is for a new campaign: what an earlier one was refused may have been granted since.
func (f *failures) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.now)
}

// denied returns the oldest refusal that keeps a candidate from leading. A refused watch does not.
func (f *failures) denied() failure { return f.oldest(failure.denied, "look", "acquire") }

// refused is denied for a leader, too.
func (f *failures) refused() failure { return f.oldest(failure.denied, "look", "acquire", "renew") }

func (f *failures) any() failure { return f.oldest(failure.any, "look", "acquire") }

// renewal returns what the last renewal failed with, if it was not acknowledged.
func (f *failures) renewal() failure { return f.oldest(failure.any, "renew") }

func (f *failures) oldest(counts func(failure) bool, whats ...string) (oldest failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range whats {
		now, failing := f.now[what]
		if failing && counts(now) && (oldest.err == nil || now.since.Before(oldest.since)) {
			oldest = now
		}
	}
	return oldest
}
