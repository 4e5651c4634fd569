package store

import "reflect"

// Bytes estimates how much memory the table and its indexes take, without what keys, facts and values lead to. The
// caller holds the lock, at least for reading.
func (s *Store[K, F, V]) Bytes() int {
	n := s.keys.bytes() + s.facts.bytes() + s.values.bytes() + s.finder.heads.bytes() + s.finder.rest.bytes()
	for _, ix := range s.indexes {
		n += ix.bytes()
	}
	return n
}

func (c *column[T]) bytes() (n int) {
	for _, p := range c.pages {
		n += cap(p)
	}
	return n * int(reflect.TypeFor[T]().Size())
}

// bytes does not look at each bucket: there may be as many as rows.
func (ix *Index[X, K, F, V]) bytes() int {
	leaves, values := 0, 0
	for _, l := range ix.buckets.elements.leaves {
		if l != nil {
			leaves++
		}
	}
	for i := range ix.byValue.maps {
		values += len(ix.byValue.maps[i].buckets)
	}
	const (
		reference = 4
		slack     = 4.0 / 3 // of arrays and maps that grow, on average
	)
	entry := int(reflect.TypeFor[X]().Size()) + reference + 1
	return ix.slots.bytes() + leaves*int(reflect.TypeFor[leaf[bucket[X]]]().Size()) +
		int(slack*float64(reference*ix.slots.len+entry*values))
}
