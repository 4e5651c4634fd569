package intern

// Change says when the objects of an [Interner] may be changed, and so what they can share.
type Change uint8

const (
	// Always: they share only strings.
	Always Change = iota
	// AtFirst: until [Twins.Settle] is called. They share only strings until then, and as with Never afterwards, as far
	// as they are as they were decoded from bytes of objects with a type.
	AtFirst
	// Never: they share maps and field sets, slices, and what pointers point to.
	Never
)
