package main

import (
	"context"
	"log"
	"sync"
)

const numberOfWorkers = 3

// Step 3: workers. A channel holds the keys, and several goroutines take them: a slow key holds up no other.
func step3(ctx context.Context, c cluster) error {
	keys, cache := make(chan string, 1000), newCache()
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { cache.follow(ctx, c, func(key string) { send(ctx, keys, key) }) })
	cache.waitUntilComplete(ctx)
	for range numberOfWorkers {
		g.Go(func() {
			for {
				select {
				case key := <-keys:
					if _, err := reconcile(ctx, c, cache, key); err != nil {
						log.Printf("%s: %v", key, err)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return nil
}
