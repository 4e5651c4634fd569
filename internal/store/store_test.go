package store

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// check is the invariant in the comments of Store, finder and Index.
func (s *Store[K, F, V]) check() error {
	n := s.values.len
	if s.keys.len != n || s.facts.len != n || s.finder.heads.len != chainsPerRow*n || s.finder.rest.len != n {
		return fmt.Errorf("columns of %d keys, %d facts, %d values, %d heads, %d rests", s.keys.len, s.facts.len, n,
			s.finder.heads.len, s.finder.rest.len)
	}
	found := 0
	for c := range s.finder.heads.len {
		for r := *s.finder.heads.at(Row(c)); r != none; r = *s.finder.rest.at(r.row()) {
			hash := s.hash(*s.keys.at(r.row()))
			if chain(hash, s.finder.heads.len) != Row(c) || !r.suits(hash) {
				return fmt.Errorf("row %d stands in chain %d", r.row(), c)
			}
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%d of %d rows are in a chain", found, n)
	}
	for _, ix := range s.indexes {
		if err := ix.(interface{ check(rows int) error }).check(n); err != nil {
			return err
		}
	}
	return nil
}

func (ix *Index[X, K, F, V]) check(rows int) error {
	if ix.slots.len != rows {
		return fmt.Errorf("%d slots of %d rows", ix.slots.len, rows)
	}
	memberships := 0
	for row := range Row(rows) {
		seen := map[uint32]bool{}
		for _, s := range slices.Clone(ix.slotsOf(row)) {
			members := ix.buckets.at(s.bucket).members
			if int(s.place) >= len(members) || members[s.place] != row {
				return fmt.Errorf("row %d is not at place %d of bucket %d", row, s.place, s.bucket)
			}
			if seen[s.bucket] {
				return fmt.Errorf("row %d is twice in bucket %d", row, s.bucket)
			}
			seen[s.bucket] = true
			memberships++
		}
	}
	values := ix.byValue.values()
	for _, x := range values {
		b, _ := ix.byValue.find(x)
		found := ix.buckets.elements.find(b)
		if found == nil || found.value != x || len(found.members) == 0 {
			return fmt.Errorf("value %v leads to bucket %d of another", x, b)
		}
		if c := cap(found.members); c >= 32 && len(found.members) < c/8 {
			return fmt.Errorf("bucket %d has room for %d members, and %d", b, c, len(found.members))
		}
		memberships -= len(found.members)
	}
	if memberships != 0 {
		return fmt.Errorf("%d slots more than members", memberships)
	}
	end := len(ix.buckets.elements.leaves) << leafBits
	buckets, err := ix.buckets.elements.check(end, func(b bucket[X]) bool { return b.members == nil })
	switch {
	case err != nil:
		return fmt.Errorf("buckets: %w", err)
	case len(values) != buckets:
		return fmt.Errorf("%d buckets, %d values", buckets, len(values))
	}
	for _, m := range ix.byValue.maps {
		if n := len(m.buckets); m.most < n || m.most > page/len(ix.byValue.maps) && n <= m.most/8 {
			return fmt.Errorf("%d values in a map for %d", n, m.most)
		}
	}
	open := slices.Sorted(slices.Values(ix.buckets.open))
	for n := range ix.buckets.elements.leaves {
		gap := ix.buckets.elements.used(uint32(n)) != full
		if gap != slices.Contains(open, uint32(n)) {
			return fmt.Errorf("leaf %d, a gap: %t, is wrong in open", n, gap)
		}
	}
	if len(slices.Compact(open)) != len(ix.buckets.open) {
		return fmt.Errorf("a leaf is open twice")
	}
	if _, err := ix.more.check(rows, func(more []slot) bool { return more == nil }); err != nil {
		return fmt.Errorf("further slots: %w", err)
	}
	return nil
}

// check is the invariant of a sparse array in which all elements have numbers below end. It returns how many there are.
func (s *sparse[T]) check(end int, isZero func(T) bool) (n int, err error) {
	for i, l := range s.leaves {
		if l == nil {
			continue
		}
		if l.used == 0 {
			return 0, fmt.Errorf("leaf %d is kept for nothing", i)
		}
		for j, e := range l.elements {
			switch there := l.used&(1<<j) != 0; {
			case there && i<<leafBits+j >= end:
				return 0, fmt.Errorf("there is element %d, of %d", i<<leafBits+j, end)
			case there == isZero(e):
				return 0, fmt.Errorf("element %d is there: %t, and is zero: %t", i<<leafBits+j, there, isZero(e))
			case there:
				n++
			}
		}
	}
	inUse := func(e T) bool { return !isZero(e) }
	if s.spare != nil && (s.spare.used != 0 || slices.ContainsFunc(s.spare.elements[:], inUse)) {
		return 0, fmt.Errorf("the spare leaf is in use")
	}
	return n, nil
}

// set is a value that is found under each of the numbers whose bit is set.
type set uint16

func (s set) append(to []int) []int {
	for ; s != 0; s &= s - 1 {
		to = append(to, bits.TrailingZeros16(uint16(s)))
	}
	return to
}

var errPicky = errors.New("picky")

// bySet finds sets by their numbers, and says each twice. Of a set of exactly three numbers it wants to know nothing.
func bySet(to []int, s set) ([]int, error) {
	if bits.OnesCount16(uint16(s)) == 3 {
		return append(to, 99), errPicky
	}
	return s.append(s.append(to)), nil
}

func bySize(to []string, s set) ([]string, error) {
	return append(to, strconv.Itoa(bits.OnesCount16(uint16(s)))), nil
}

// play plays a script of changes, two bytes each, into a store with one index from the start and another that comes in
// the middle, and into a map.
func play(t testing.TB, script []byte) {
	s, truth := New[byte, int, set](), map[byte]set{}
	complaints := 0
	complain := func(err error) {
		require.ErrorIs(t, err, errPicky)
		complaints++
	}
	complainOf := func(_ byte, err error) { complain(err) }
	numbers := AddIndex(s, bySet, complainOf)
	var sizes *Index[string, byte, int, set]
	picky := 0
	for i := 0; i+1 < len(script); i += 2 {
		key, op := script[i]%32, script[i+1]
		if i/2 == len(script)/4 {
			sizes = AddIndex(s, bySize, complainOf)
		}
		row, held := s.Find(key)
		require.Equal(t, has(truth, key), held)
		switch {
		case op >= 192:
			if held {
				s.Lock()
				s.Remove(row)
				s.Unlock()
			}
			delete(truth, key)
		default:
			value := set(op) * 37 & 0x3f
			if op%8 == 7 {
				s.Plan(key, 0, complain)
				s.Unplan()
			}
			s.Plan(key, value, complain)
			s.Lock()
			s.Put(key, i, value)
			s.Unlock()
			truth[key] = value
			if bits.OnesCount16(uint16(value)) == 3 {
				picky++
			}
			row, held = s.Find(key)
			require.True(t, held)
			require.Equal(t, i, *s.Facts(row))
			require.Equal(t, key, s.Key(row))
		}
		require.NoError(t, s.check())
	}

	require.Equal(t, picky, complaints)
	require.Equal(t, picky > 0, numbers.Err() != nil)
	require.Equal(t, len(truth), s.Len())
	require.ElementsMatch(t, slices.Collect(maps.Keys(truth)), s.Keys())
	require.ElementsMatch(t, slices.Collect(maps.Values(truth)), s.Values())
	for key := range byte(32) {
		value, ok := s.Get(key)
		require.Equal(t, has(truth, key), ok)
		require.Equal(t, truth[key], value)
	}
	requireIndex(t, numbers, truth, func(s set) []int { xs, err := bySet(nil, s); return ifNil(xs, err) })
	if sizes != nil {
		requireIndex(t, sizes, truth, func(s set) []string { xs, err := bySize(nil, s); return ifNil(xs, err) })
	}
	any := numbers.GetAny([]int{1, 3, 1})
	var want []set
	for _, s := range truth {
		if xs, err := bySet(nil, s); err == nil && (slices.Contains(xs, 1) || slices.Contains(xs, 3)) {
			want = append(want, s)
		}
	}
	require.ElementsMatch(t, want, any)
}

func has(truth map[byte]set, key byte) bool { _, ok := truth[key]; return ok }

func ifNil[X any](xs []X, err error) []X {
	if err != nil {
		return nil
	}
	return xs
}

// requireIndex compares an index with what a walk over all values finds.
func requireIndex[X comparable](t testing.TB, ix *Index[X, byte, int, set], truth map[byte]set, xs func(set) []X) {
	keys, values := map[X][]byte{}, map[X][]set{}
	for key, s := range truth {
		for _, x := range xs(s) {
			if !slices.Contains(keys[x], key) {
				keys[x], values[x] = append(keys[x], key), append(values[x], s)
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(keys)), ix.Values())
	for x := range keys {
		require.ElementsMatch(t, keys[x], ix.Keys(x), "%v", x)
		require.ElementsMatch(t, values[x], ix.Get(x), "%v", x)
	}
	var none X
	if _, ok := keys[none]; !ok {
		require.Empty(t, ix.Get(none))
	}
}

func TestStoreAndIndexesAgreeWithAMap(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		script := make([]byte, 300)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		play(t, script)
	}
}

func FuzzStore(f *testing.F) {
	f.Add([]byte{1, 8, 2, 9, 3, 48, 1, 224, 2, 56})
	f.Fuzz(func(t *testing.T, script []byte) {
		play(t, script[:min(len(script), 400)]) // the check of every step takes its time
	})
}

func TestTheCheckFindsSeededBugs(t *testing.T) {
	build := func() (*Store[byte, int, set], *Index[int, byte, int, set]) {
		s := New[byte, int, set]()
		ix := AddIndex(s, bySet, nil)
		for key := range byte(3) {
			s.Plan(key, 3, nil)
			s.Put(key, 0, 3)
		}
		return s, ix
	}
	s, _ := build()
	require.NoError(t, s.check())
	s, _ = build()
	s.values.pop()
	require.ErrorContains(t, s.check(), "columns of")
	s, _ = build()
	*s.keys.at(0) = 9
	require.Error(t, s.check())
	s, _ = build()
	*s.finder.pointer(1) = none
	require.ErrorContains(t, s.check(), "are in a chain")
	s, ix := build()
	ix.slots.at(0).place, ix.slots.at(1).place = ix.slots.at(1).place, ix.slots.at(0).place
	require.ErrorContains(t, s.check(), "is not at place")
	s, ix = build()
	ix.more.drop(2)
	require.ErrorContains(t, s.check(), "slots more than members")
	s, ix = build()
	*ix.more.at(2) = append(*ix.more.at(2), *ix.slots.at(2))
	require.ErrorContains(t, s.check(), "is twice in")
	s, ix = build()
	ix.byValue.add(7, 0)
	require.ErrorContains(t, s.check(), "leads to bucket")
	s, ix = build()
	ix.buckets.open = nil
	require.ErrorContains(t, s.check(), "wrong in open")
	s, ix = build()
	ix.buckets.open = append(ix.buckets.open, 0)
	require.ErrorContains(t, s.check(), "open twice")
	s, ix = build()
	ix.buckets.add(bucket[int]{members: []Row{}})
	require.ErrorContains(t, s.check(), "3 buckets, 2 values")
	s, ix = build()
	ix.more.put(5, []slot{})
	require.ErrorContains(t, s.check(), "element 5, of 3")
	s, ix = build()
	ix.buckets.elements.leaves[0].elements[9].members = []Row{}
	require.ErrorContains(t, s.check(), "element 9 is there: false")
	s, ix = build()
	ix.buckets.elements.spare = ix.buckets.elements.leaves[0]
	require.ErrorContains(t, s.check(), "spare leaf is in use")
	s, ix = build()
	ix.byValue.of(0).most = 100 * page
	require.ErrorContains(t, s.check(), "values in a map for 102400")
	s, ix = build()
	ix.buckets.at(0).members = append(make([]Row, 0, 100), ix.buckets.at(0).members...)
	require.ErrorContains(t, s.check(), "has room for 100 members")
}

// A store grows and shrinks over many pages, and what it no longer needs it lets go.
func TestAStoreGrowsAndShrinks(t *testing.T) {
	const n = 5*page + 7
	s := New[int, struct{}, *int]()
	last := AddIndex(s, func(to []int, v *int) ([]int, error) { return append(to, *v%10), nil }, nil)
	all := AddIndex(s, func(to []bool, v *int) ([]bool, error) { return append(to, true), nil }, nil)
	own := AddIndex(s, func(to []int, v *int) ([]int, error) { return append(to, *v), nil }, nil)
	for i := range n {
		s.Plan(i, &i, nil)
		s.Put(i, struct{}{}, &i)
	}
	require.NoError(t, s.check())
	for _, m := range own.byValue.maps {
		require.Less(t, len(m.buckets), n/10, "readers would wait while many values are copied at once")
	}
	random := rand.New(rand.NewPCG(1, 1))
	for _, i := range random.Perm(n)[:n-3] {
		row, ok := s.Find(i)
		require.True(t, ok)
		s.Remove(row)
	}
	require.NoError(t, s.check())
	require.Equal(t, 3, s.Len())
	require.Len(t, s.Values(), 3)
	require.Len(t, all.Get(true), 3)
	require.LessOrEqual(t, len(last.Values()), 3)
	require.LessOrEqual(t, len(s.values.pages), 2, "a page more than needed is kept")
	for _, v := range s.values.pages[0][3:cap(s.values.pages[0])] {
		require.Nil(t, v, "what was removed is not kept alive")
	}
	everything, _ := all.byValue.find(true)
	require.Less(t, cap(all.buckets.at(everything).members), 32)
}

func TestAColumnDoesNotAllocateOnTheBorderOfTwoPages(t *testing.T) {
	var c column[int]
	for i := range 3*page + 1 {
		c.push(i)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.pop()
		c.pop()
		c.push(1)
		c.push(2)
	}))
}

func TestIndexFunctionsThatMisbehaveHurtNobody(t *testing.T) {
	s := New[string, struct{}, string]()
	var complaints []error
	complain := func(err error) { complaints = append(complaints, err) }
	s.Plan("old", "bad", complain)
	s.Put("old", struct{}{}, "bad")
	complainOf := func(_ string, err error) { complain(err) }
	nan := AddIndex(s, func(to []float64, v string) ([]float64, error) { return append(to, 1, math.NaN()), nil },
		complainOf)
	require.ErrorIs(t, nan.Err(), errOddValue, "a store that is not empty is indexed at once")
	odd := AddIndex(s, func(to []any, v string) ([]any, error) {
		if v == "bad" {
			return append(to, []int{1}), nil // no map takes it
		}
		return append(to, nil, "x"), nil
	}, complainOf)
	panics := AddIndex(s, func(to []string, v string) ([]string, error) {
		if v == "bad" {
			panic(errPicky)
		}
		return append(to, "good"), nil
	}, complainOf)
	require.Len(t, complaints, 3)
	for _, key := range []string{"good", "bad"} {
		s.Plan(key, key, complain)
		s.Put(key, struct{}{}, key)
	}
	require.NoError(t, s.check())
	require.Len(t, complaints, 3+1+3)
	require.ElementsMatch(t, []string{"old", "good", "bad"}, s.Keys(), "the values are there all the same")
	require.Empty(t, nan.Values())
	require.ElementsMatch(t, []any{nil, "x"}, odd.Values())
	require.Equal(t, []string{"good"}, panics.Get("good"))
	require.ErrorIs(t, panics.Err(), errPicky)
	require.ErrorContains(t, panics.Err(), "the index function, for bad")
}

// TestAnIndexGivesBackWhatABurstTook: the memory of an index follows the objects that are there, of which few are left,
// anywhere among those that went.
func TestAnIndexGivesBackWhatABurstTook(t *testing.T) {
	const n, survivors = 100_000, 10
	names := make([]string, n) // the same for each store, so they do not count
	for i := range names {
		names[i] = "name-" + strconv.Itoa(i)
	}
	memory := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for name, index := range map[string]func(to []string, i int) ([]string, error){
		"one value an object": func(to []string, i int) ([]string, error) { return append(to, names[i]), nil },
		"two values an object": func(to []string, i int) ([]string, error) {
			return append(to, names[i], names[n-1-i]), nil
		},
		"a hundred objects share": func(to []string, i int) ([]string, error) { return append(to, names[i/100]), nil },
		"all share one value":     func(to []string, i int) ([]string, error) { return append(to, names[0]), nil },
	} {
		s := New[string, struct{}, int]()
		ix := AddIndex(s, index, nil)
		order := random.Perm(n)
		before := memory()
		for i, key := range names {
			s.Plan(key, i, nil)
			s.Put(key, struct{}{}, i)
		}
		full := memory() - before
		for _, i := range order[survivors:] {
			row, _ := s.Find(names[i])
			s.Remove(row)
		}
		left := memory() - before
		t.Logf("%s: %d kB, of which %d objects keep %d kB", name, full>>10, survivors, left>>10)
		require.Less(t, left, int64(256<<10), name)
		require.NoError(t, s.check())
		for _, i := range order[:survivors] {
			values, _ := index(nil, i)
			require.Contains(t, ix.Get(values[0]), i)
		}
		runtime.KeepAlive(s)
	}
}

func TestASparseArrayDoesNotAllocateForOneThatComesAndGoes(t *testing.T) {
	var b bag[int]
	for i := range leafSize {
		require.Equal(t, uint32(i), b.add(i))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { b.drop(b.add(1)) }))
	require.Equal(t, uint32(leafSize), b.add(1), "in a leaf of its own")
	for i := range uint32(leafSize) {
		b.drop(i)
	}
	require.Nil(t, b.elements.leaves[0])
	require.Equal(t, uint32(0), b.add(1), "in the gap that was there last")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.drop(0)
		b.add(1)
	}))
}
