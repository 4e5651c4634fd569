package packed

import (
	"hash/maphash"
	"sync/atomic"
	"unsafe"
)

// hot holds objects that were asked for lately, decoded. Each value has one slot, by the address of its bytes, which it
// shares with others: the last one that was asked for has it. A slot holds the bytes, too, so their address belongs to
// nothing else meanwhile.
type hot[T any] struct {
	slots []atomic.Pointer[slot[T]]
}

type slot[T any] struct {
	data   string
	object T
}

var seed = maphash.MakeSeed()

func (h *hot[T]) slot(data string) *atomic.Pointer[slot[T]] {
	address := uintptr(unsafe.Pointer(unsafe.StringData(data)))
	return &h.slots[maphash.Comparable(seed, address)%uint64(len(h.slots))]
}

func (h *hot[T]) get(data string) (object T, ok bool) {
	if len(h.slots) == 0 {
		return object, false
	}
	s := h.slot(data).Load()
	if s == nil || unsafe.StringData(s.data) != unsafe.StringData(data) {
		return object, false
	}
	return s.object, true
}

func (h *hot[T]) put(data string, object T) {
	if len(h.slots) > 0 {
		h.slot(data).Store(&slot[T]{data: data, object: object})
	}
}
