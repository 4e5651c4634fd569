package wire

import "reflect"

// maxDepth is how deep the messages of an object in protobuf may be nested. Generated code calls itself for each level,
// and a stack that is exhausted ends the process. Package json has the same bound.
const maxDepth = 10_000

// deeper reports whether a message is nested deeper than limit. It takes for a message what could be one, and passes
// over whatever generated code passes over: so it may say yes of a few nested strings, and never no of a deep message.
func deeper(message []byte, limit int) bool {
	if limit < 0 {
		return true
	}
	for len(message) > 0 {
		tag, n := looseVarint(message)
		message = message[n:]
		size := 0
		switch tag & 7 {
		case wireVarint:
			_, size = looseVarint(message)
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		case wireBytes:
			length, n := looseVarint(message)
			message = message[n:]
			if length > uint64(len(message)) {
				return false // and generated code ends here as well
			}
			if size = int(length); deeper(message[:size], limit-1) {
				return true
			}
		}
		message = message[min(size, len(message)):] // the brackets of a group have no content of their own
	}
	return false
}

// looseVarint reads a number. Of one that is too large it drops the upper bits, as generated code does.
func looseVarint(b []byte) (v uint64, n int) {
	for n < min(len(b), 10) {
		v |= uint64(b[n]&0x7f) << (7 * n)
		if n++; b[n-1] < 0x80 {
			break
		}
	}
	return v, n
}

// recursive reports whether a type contains itself. seen has the types that were looked at, and says whether they are
// around t.
func recursive(t reflect.Type, seen map[reflect.Type]bool) bool {
	around, again := seen[t]
	if again {
		return around
	}
	seen[t] = true
	defer func() { seen[t] = false }()
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map: // whose keys contain nothing
		return recursive(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if recursive(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
