package store

import (
	"hash/maphash"
	"maps"
)

// shards finds the bucket of an index value. A map does not give back memory by itself, so one that has become too
// large is copied, and readers wait meanwhile: 15 ms for the 60,000 values that 500,000 leave. Hence it is many maps,
// each of which is copied at a time of its own.
type shards[X comparable] struct {
	seed maphash.Seed
	maps [64]shard[X]
}

type shard[X comparable] struct {
	buckets map[X]uint32
	most    int // the most that buckets has held since it was made
}

func (s *shards[X]) of(x X) *shard[X] {
	return &s.maps[maphash.Comparable(s.seed, x)%uint64(len(s.maps))]
}

func (s *shards[X]) find(x X) (bucket uint32, ok bool) {
	bucket, ok = s.of(x).buckets[x]
	return bucket, ok
}

func (s *shards[X]) add(x X, bucket uint32) {
	m := s.of(x)
	if m.buckets == nil {
		m.buckets = map[X]uint32{}
	}
	m.buckets[x] = bucket
	m.most = max(m.most, len(m.buckets))
}

// drop removes a value. Once an eighth of the most values is left, it copies them into a smaller map.
func (s *shards[X]) drop(x X) {
	m := s.of(x)
	delete(m.buckets, x)
	if left := len(m.buckets); m.most > page/len(s.maps) && left <= m.most/8 {
		smaller := make(map[X]uint32, left)
		maps.Copy(smaller, m.buckets)
		m.buckets, m.most = smaller, left
	}
}

func (s *shards[X]) values() (values []X) {
	values = []X{}
	for i := range s.maps {
		for x := range s.maps[i].buckets {
			values = append(values, x)
		}
	}
	return values
}
