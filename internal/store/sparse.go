package store

import "math/bits"

// sparse is an array with gaps whose memory is bounded by the elements that it has: 64 neighbours share a leaf, and an
// empty leaf is given back. One empty leaf is kept, so that an element that comes and goes does not allocate. One
// pointer for each 64 places of the greatest length so far stays. No element is ever moved, so no change takes longer
// than another. The zero value is empty.
//
//	leaves[i/64].used has bit i%64 <=> element i is there
//	leaves[n] is nil               <=> none of its elements is there
type sparse[T any] struct {
	leaves []*leaf[T]
	spare  *leaf[T]
}

type leaf[T any] struct {
	used     uint64
	elements [leafSize]T
}

// leafSize is 64, so that one word tells which elements are there.
const (
	leafBits = 6
	leafSize = 1 << leafBits
	full     = ^uint64(0)
)

// at returns the element i, which is there.
func (s *sparse[T]) at(i uint32) *T { return &s.leaves[i>>leafBits].elements[i%leafSize] }

// find returns the element i, or nil.
func (s *sparse[T]) find(i uint32) *T {
	if s.used(i>>leafBits)&(1<<(i%leafSize)) == 0 {
		return nil
	}
	return s.at(i)
}

// used returns the bits of the elements of leaf n that are there.
func (s *sparse[T]) used(n uint32) uint64 {
	if int(n) >= len(s.leaves) || s.leaves[n] == nil {
		return 0
	}
	return s.leaves[n].used
}

// put sets the element i to v.
func (s *sparse[T]) put(i uint32, v T) {
	n := i >> leafBits
	for int(n) >= len(s.leaves) {
		s.leaves = append(s.leaves, nil)
	}
	l := s.leaves[n]
	if l == nil {
		if l = s.spare; l == nil {
			l = new(leaf[T])
		}
		s.spare, s.leaves[n] = nil, l
	}
	l.used |= 1 << (i % leafSize)
	l.elements[i%leafSize] = v
}

// drop removes the element i, if it is there.
func (s *sparse[T]) drop(i uint32) {
	if s.find(i) == nil {
		return
	}
	l := s.leaves[i>>leafBits]
	var none T
	l.elements[i%leafSize] = none // or it would keep something alive
	if l.used &^= 1 << (i % leafSize); l.used == 0 {
		s.leaves[i>>leafBits], s.spare = nil, l
	}
}

// bag is a sparse array in which an element may be anywhere. The zero value is empty.
type bag[T any] struct {
	elements sparse[T]
	// The numbers of the leaves with a gap, given back ones included, each once. add uses the last one.
	open []uint32
}

// add puts v into a gap, or at the end, and returns where.
func (b *bag[T]) add(v T) uint32 {
	if len(b.open) == 0 {
		b.open = append(b.open, uint32(len(b.elements.leaves)))
	}
	n := b.open[len(b.open)-1]
	i := n<<leafBits | uint32(bits.TrailingZeros64(^b.elements.used(n)))
	b.elements.put(i, v)
	if b.elements.used(n) == full {
		b.open = b.open[:len(b.open)-1]
	}
	return i
}

func (b *bag[T]) at(i uint32) *T { return b.elements.at(i) }

// drop removes the element i, which is there.
func (b *bag[T]) drop(i uint32) {
	if n := i >> leafBits; b.elements.used(n) == full {
		b.open = append(b.open, n)
	}
	b.elements.drop(i)
}
