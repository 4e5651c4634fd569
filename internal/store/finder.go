package store

import (
	"fmt"
	"math/bits"
)

// finder is a hash table of rows. It does not know the keys: [Store.find] compares a key with those of the rows of its
// chain, and hash returns the hash of a row's key.
//
// It has twice as many chains as rows, so they are short: with one chain per row, a Get among a million took a fifth
// longer. Each row that is added splits two chains, and each that is removed joins two with others (linear hashing,
// Litwin 1980). So readers never wait while everything moves to a larger table, and the memory is twelve bytes a row.
// The hash table of package workqueue is another one: its entries keep their hash and their address, so it can move
// many at once, and needs no numbers without gaps.
type finder struct {
	heads column[ref] // the first row of each chain, or none
	rest  column[ref] // for each row, the next of its chain, or none
	hash  func(Row) uint32
}

// ref is the number of a row, with the highest bits of its hash. A lookup passes nearly all other rows of a chain
// without reading their keys, which are far away in memory (measured: a Get takes half of the time).
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

// chain returns the number of the chain of a hash, of n chains: as many of its lowest bits as it takes to number them.
// A chain that does not exist yet is still part of the one whose number lacks the first bit.
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

// split adds a chain, which gets its rows from the one whose number lacks its first bit.
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

// remove removes a row and gives its number to the last one. It is called before the keys move.
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

// put makes a row the first of its chain.
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
