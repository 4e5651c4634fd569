package sharding

import (
	"context"
	"slices"
)

// Inherit lets the work of the slices begin that this replica comes to own, until ctx ends. For those that have come
// since it looked last it calls settle, which returns when this process has seen all that earlier owners have written.
// Then Enter lets their work begin, and opened is called with those that are still this replica's: it queues their
// keys. Both are called by the goroutine of the caller, one after the other. Slices that come meanwhile wait for the
// next turn. The context of settle is ctx.
func (s *Shards) Inherit(ctx context.Context, settle func(ctx context.Context, slices []int),
	opened func(slices []int)) {
	for ctx.Err() == nil {
		fresh, changed := term{s}.unopened()
		if len(fresh) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		settle(ctx, slicesOf(fresh))
		if ctx.Err() != nil {
			return
		}
		open := term{s}.open(fresh)
		if len(open) > 0 {
			opened(open)
		}
	}
}

// unopened returns the slices whose work waits for Inherit, and a channel that is closed when anything has changed.
func (s term) unopened() (fresh []*work, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.works {
		if !w.open && w.drain == nil && w.ctx.Err() == nil {
			fresh = append(fresh, w)
		}
	}
	return fresh, s.changed
}

// open lets the work of slices begin, and returns those of which it could. A slice that was lost and has come again
// meanwhile is another work, which has not been settled.
func (s term) open(fresh []*work) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := slices.DeleteFunc(fresh, func(w *work) bool { return s.works[w.slice] != w })
	for _, w := range open {
		w.open = true
	}
	return slicesOf(open)
}

func slicesOf(all []*work) (numbers []int) {
	for _, w := range all {
		numbers = append(numbers, w.slice)
	}
	slices.Sort(numbers)
	return numbers
}
