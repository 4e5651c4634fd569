package main

import (
	"context"
	"log"
	"sync"
)

// Step 4: a queue of keys. No two workers have the same key at the same time.
func step4(ctx context.Context, c cluster) error {
	work(ctx, c, func(_ *queue, cache clusterCache, key string) {
		if _, err := reconcile(ctx, c, cache, key); err != nil {
			log.Printf("%s: %v", key, err)
		}
	})
	return nil
}

// work lets workers call handle with each key that the cache or handle itself adds to the queue, until ctx ends.
func work(ctx context.Context, c cluster, handle func(q *queue, cache clusterCache, key string)) {
	q, cache := newQueue(ctx), newCache()
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { cache.follow(ctx, c, q.add) })
	cache.waitUntilComplete(ctx)
	for range numberOfWorkers {
		g.Go(func() {
			for key, ok := q.take(); ok; key, ok = q.take() {
				handle(q, cache, key)
				q.done(key)
			}
		})
	}
}

// queue hands out keys. A key that waits is not added a second time: one look sees all changes before it. A key that a
// worker has is noted, and waits when the worker is done: the worker may have looked before the change.
type queue struct {
	mu     sync.Mutex
	more   *sync.Cond      // order is longer, or the queue is closed
	order  []string        // the keys that wait for a worker
	wanted map[string]bool // the keys in order, and those that will be put there when their worker is done
	active map[string]bool // the keys that a worker has
	closed bool
}

// newQueue makes a queue that closes when ctx ends.
func newQueue(ctx context.Context) *queue {
	q := &queue{wanted: map[string]bool{}, active: map[string]bool{}}
	q.more = sync.NewCond(&q.mu)
	context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.closed = true
		q.more.Broadcast()
	})
	return q
}

// add asks for a look at a key.
func (q *queue) add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wanted[key] {
		return
	}
	q.wanted[key] = true
	if !q.active[key] {
		q.order = append(q.order, key)
		q.more.Signal()
	}
}

// take waits for a key. It returns false once the queue is closed.
func (q *queue) take() (key string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.order) == 0 && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		return "", false
	}
	key, q.order = q.order[0], q.order[1:]
	delete(q.wanted, key)
	q.active[key] = true
	return key, true
}

// done gives a key back.
func (q *queue) done(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.active, key)
	if q.wanted[key] {
		q.order = append(q.order, key)
		q.more.Signal()
	}
}
