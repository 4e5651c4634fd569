package store

import (
	"fmt"
	"math/bits"
)

// finder is a hash table of rows. It knows nothing of the keys: who looks for one compares it with those of the rows of
// its chain, and hash tells the hash of a row's key.
//
// It has twice as many chains as rows, so they are short: with as many, a Get among a million took a fifth longer, on
// its way along the chain. With each row that comes, two chains are split, and with each that goes, two are joined with
// others (linear hashing: Litwin 1980). So there is never a moment at which everything is moved to a larger table while
// readers wait, and the memory is twelve bytes for each row.
type finder struct {
	heads column[ref] // the first row of each chain, or none
	rest  column[ref] // for each row, the next of its chain, or none
	hash  func(Row) uint32
}

// ref refers to a row and holds the highest bits of its hash besides: of the rows of a chain that are not the one
// looked for, nearly all can be passed by without a look at their keys, which are far away in memory (measured: a Get
// takes half of the time).
type ref uint32

const (
	chainsPerRow = 2

	rowBits = 26
	maxRows = 1<<rowBits - 1 // of pods, that would be some hundred gigabytes

	none    = ^ref(0)
	tagMask = ref(1<<32 - 1<<rowBits)
)

func (r ref) row() Row               { return Row(r &^ tagMask) }
func (r ref) suits(hash uint32) bool { return (r^ref(hash))&tagMask == 0 }

// chain returns the number of the chain of a hash, out of n: its lowest bits, as many as number n chains. A chain that
// is not there yet is still part of the one whose number lacks the first bit.
func chain(hash uint32, n int) Row {
	width := bits.Len(uint(n - 1))
	if c := hash & (1<<width - 1); int(c) < n {
		return c
	}
	return hash & (1<<(width-1) - 1)
}

// first returns the first row of the chain in which a key of that hash is, if anywhere.
func (f *finder) first(hash uint32) ref {
	if f.heads.len == 0 {
		return none
	}
	return *f.heads.at(chain(hash, f.heads.len))
}

// push adds the row after the last one.
func (f *finder) push() {
	if f.rest.len == maxRows {
		panic(fmt.Sprintf("store: more than %d rows", maxRows))
	}
	row := Row(f.rest.len)
	f.rest.push(none)
	for range chainsPerRow {
		f.split()
	}
	f.put(row)
}

// split adds a chain, which takes from the one whose number lacks its first bit.
func (f *finder) split() {
	added := Row(f.heads.len)
	f.heads.push(none)
	if added > 0 {
		old := f.heads.at(added &^ (1 << (bits.Len32(added) - 1)))
		rows := *old
		*old = none
		f.putAll(rows)
	}
}

// join undoes the last split.
func (f *finder) join() {
	rows := *f.heads.at(Row(f.heads.len - 1))
	f.heads.pop()
	f.putAll(rows)
}

// remove takes a row out and gives its number to the last one. The keys still stand as they stood.
func (f *finder) remove(row Row) {
	*f.pointer(row) = *f.rest.at(row)
	for range chainsPerRow {
		f.join()
	}
	last := Row(f.rest.len - 1)
	if row != last {
		p := f.pointer(last)
		*p = *p&tagMask | ref(row)
	}
	f.rest.remove(row)
}

// put lets a row be the first of its chain.
func (f *finder) put(row Row) {
	hash := f.hash(row)
	head := f.heads.at(chain(hash, f.heads.len))
	*f.rest.at(row), *head = *head, ref(hash)&tagMask|ref(row)
}

func (f *finder) putAll(rows ref) {
	for rows != none {
		row := rows.row()
		rows = *f.rest.at(row)
		f.put(row)
	}
}

// pointer returns what points to a row: the head of its chain or the rest of the row before it.
func (f *finder) pointer(row Row) *ref {
	p := f.heads.at(chain(f.hash(row), f.heads.len))
	for p.row() != row {
		p = f.rest.at(p.row())
	}
	return p
}
