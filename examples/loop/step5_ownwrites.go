package main

import (
	"context"
	"log"
	"sync"
)

// Step 5: own writes. No look at a key begins before the cache shows what the last one has created.
func step5(ctx context.Context, c cluster) error {
	var written perKey // the version of the last pod that was created for a key
	work(ctx, c, func(_ *queue, cache clusterCache, key string) {
		if !cache.pods.reached(written.get(key)) {
			return // the event, or the list, that brings this version adds the key again
		}
		version, err := reconcile(ctx, c, cache, key)
		if version > 0 {
			written.set(key, version)
		}
		if err != nil {
			log.Printf("%s: %v", key, err)
		}
	})
	return nil
}

// reached reports whether the store has all changes up to a version.
func (s *store[T]) reached(version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version >= version
}

// perKey has a number for each key, zero to begin with.
type perKey struct {
	mu      sync.Mutex
	numbers map[string]uint64
}

func (p *perKey) get(key string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.numbers[key]
}

func (p *perKey) set(key string, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.numbers == nil {
		p.numbers = map[string]uint64{}
	}
	p.numbers[key] = n
}
