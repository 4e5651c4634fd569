package sharding

import (
	"context"
	"maps"
	"slices"
)

// Inherit lets the work of the slices begin that this replica comes to own, until ctx ends. For those that have come
// since it looked last it waits until the caches of [Keys] and its like have all their objects, and calls settle, which
// returns when this process has seen all that earlier owners have written. Then Enter lets their work begin, and opened
// is called with those that are still this replica's: it queues their keys. Both are called by the goroutine of the
// caller, one after the other. Slices that come meanwhile wait for the next turn.
//
// Those whose objects the caches have do not wait for those of others.
//
// The words are what the last owners of the slices have left by [Shards.LeaveWords], each once. all says that there is
// one for each slice, or nothing to wait for: else an owner may have written something of which there is no word. The
// context of settle is ctx.
func (s *Shards) Inherit(ctx context.Context, settle func(ctx context.Context, words []string, all bool),
	opened func(slices []int)) {
	listed := map[*work]bool{} // settle was called without a word of them
	defer s.caches.lacks(ctx, nil, nil)
	for ctx.Err() == nil {
		fresh, changed := term{s}.unopened()
		maps.DeleteFunc(listed, func(w *work, _ bool) bool { return !slices.Contains(fresh, w) })
		if len(fresh) == 0 {
			s.caches.lacks(ctx, nil, nil)
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		s.caches.follow(s)
		if here := s.caches.complete(slicesOf(fresh)); len(here) > 0 {
			fresh = slices.DeleteFunc(fresh, func(w *work) bool { return !slices.Contains(here, w.slice) })
		}
		// With a word, a list from now on shows what it tells of. Else settle asks for one, which may be the same.
		words, all := term{s}.words(fresh, listed)
		if !all {
			settle(ctx, words, false)
			for _, w := range fresh {
				listed[w] = true
			}
		}
		if !s.caches.fill(ctx, slicesOf(fresh), changed) {
			continue
		}
		if all {
			settle(ctx, words, true)
		}
		if ctx.Err() != nil || len(s.caches.complete(slicesOf(fresh))) < len(fresh) {
			continue
		}
		if open := (term{s}).open(fresh); len(open) > 0 {
			opened(open)
		}
	}
}

// LeaveWords sets what is called when this replica is about to give slices away whose work has ended: it returns what
// the next owners have to have seen, in a text that their settle understands. No more than 8 KiB of it are left. Empty,
// and without LeaveWords, nothing is left, and nothing is known. It is called by a goroutine of Run.
func (s *Shards) LeaveWords(leave func(slices []int) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave = leave
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

// words returns what the last owners of slices have left. One that this replica has given up and has got back before
// another one had it has no word, and needs none; nor does one that is listed.
func (s term) words(fresh []*work, listed map[*work]bool) (words []string, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r == nil || s.r.seen.table == nil {
		return nil, false // the tenure is over: none of them will be opened
	}
	all = true
	for _, w := range fresh {
		if !unheard(s.r, w.slice) || listed[w] {
			continue // it is not opened, or was before
		}
		text, ok := s.r.seen.table.wordOf(w.slice)
		switch {
		case !ok:
			all = false
		case !slices.Contains(words, text):
			words = append(words, text)
		}
	}
	return words, all
}

// open lets the work of slices begin, and returns those of which it could. A slice that was lost and has come again
// meanwhile is another work, which has not been settled.
func (s term) open(fresh []*work) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := slices.DeleteFunc(fresh, func(w *work) bool { return s.works[w.slice] != w })
	for _, w := range open {
		w.open, s.r.holds[w.slice].heard = true, true
		if w.slice < len(s.led) {
			s.stats.Pauses.add(&s.led[w.slice])
		}
	}
	if len(open) > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
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
