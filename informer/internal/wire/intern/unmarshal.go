//go:build !purego

package intern

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"unsafe"
)

// Unmarshal decodes a message into *o, which is zero and of the Interner's type, as o's own Unmarshal does, but what is
// known already it does not make again: a pod that is as most are is decoded and shared in little more than half the
// time, with a quarter of the allocations, that its own Unmarshal and then Object take. It keeps nothing of data. The
// Twins are those of objects that may be changed at first.
//
// Whatever is not as Kubernetes encodes it, it leaves to o's own Unmarshal, from the beginning: what that accepts and
// what it does not is not decided here.
func (s *Interner) Unmarshal(data []byte, o unmarshaler) (Twins, error) {
	s.prepareProtobuf(o)
	if s.message.itself == nil {
		d, v := s.decoder(), reflect.ValueOf(o)
		if d.message(s.message, v.UnsafePointer(), data) {
			return d.twins, nil
		}
		v.Elem().SetZero()
	}
	if err := o.Unmarshal(data); err != nil {
		return nil, err
	}
	s.Object(o)
	return nil, nil
}

// decoder decodes one object. Its methods return false for what they leave to the type's own Unmarshal.
type decoder struct {
	*Interner
	change  Change // of what is being decoded
	curious bool
	made    int // bytes of memory, about
	lazy    int // values that are in places of their own, and change when they are read
	twins   Twins
	again   int // how many parts around it are made for the second time
}

func (s *Interner) decoder() decoder {
	return decoder{Interner: s, change: s.change, curious: rand.Uint32()%seldom == 0}
}

func (d *decoder) message(m *message, at unsafe.Pointer, b []byte) bool {
	if m.itself != nil {
		if m.lazy {
			d.lazy++
		}
		return m.itself(at, b) == nil
	}
	for len(b) > 0 {
		tag, head := uvarint(b)
		if head <= 0 {
			return false
		}
		number, wire := tag>>3, tag&7
		content, rest, ok := next(b[head:], wire)
		if !ok || number == 0 || number > 1<<29-1 {
			return false
		}
		if number < uint64(len(m.fields)) && m.fields[number] != nil {
			f := m.fields[number]
			at := unsafe.Add(at, f.offset)
			switch {
			case f.wire() != wire:
				return false
			case f.shape == single:
				ok = d.value(&f.value, at, content)
			case f.shape == pointer:
				ok = d.part(f, at, content, 1, 0)
			default:
				count := 1
				for ; len(rest) > head && string(rest[:head]) == string(b[:head]); count++ {
					if _, rest, ok = next(rest[head:], wire); !ok {
						return false
					}
				}
				ok = d.part(f, at, b[:len(b)-len(rest)], count, head)
			}
			if !ok {
				return false
			}
		}
		b = rest
	}
	return true
}

// value decodes one value to where it belongs: the field itself, what is behind its pointer, or an element.
func (d *decoder) value(v *value, at unsafe.Pointer, b []byte) bool {
	switch v.encoding {
	case submessage:
		return d.message(v.message, at, b)
	case text:
		*(*string)(at) = d.text(v.habit, b)
	case octets:
		d.made += len(b)
		*(*[]byte)(at) = append(make([]byte, 0, len(b)), b...)
	case truth:
		n, _ := uvarint(b)
		*(*bool)(at) = n != 0
	case number32:
		n, _ := uvarint(b)
		*(*uint32)(at) = uint32(n)
	case number64:
		n, _ := uvarint(b)
		*(*uint64)(at) = n
	}
	return true
}

// text looks for short ones, too: it takes no longer than to make another.
func (d *decoder) text(h *habit, b []byte) string {
	d.made += len(b)
	if len(b) == 0 || len(b) > maxString || h == nil || !h.worth(d.curious) {
		return string(b)
	}
	slot := d.strings.slot(maphash.Bytes(d.seed, b))
	known := slot.Load()
	if known == nil || *known != string(b) {
		h.learn(false, d.curious)
		return *remember(slot, string(b))
	}
	h.learn(true, d.curious)
	return *known
}

// part decodes, or shares, what a field holds: count elements or entries, each with a tag before it of that many bytes.
func (d *decoder) part(f *field, at unsafe.Pointer, b []byte, count, tag int) bool {
	if *(*unsafe.Pointer)(at) != nil {
		return false // it goes on, or comes again, after other fields
	}
	secret := f.shape == mapping && f.value.encoding == octets
	if d.change == Always || len(b) > maxPart || secret || !f.habit.worth(d.curious) {
		return d.make(&part{field: f, len: count}, at, b, tag)
	}
	return d.share(f, at, b, func(at unsafe.Pointer) (part, bool) {
		p := part{field: f, len: count}
		ok := d.make(&p, at, b, tag)
		return p, ok
	})
}

// make makes a part of its bytes and puts it where it belongs.
func (d *decoder) make(p *part, at unsafe.Pointer, b []byte, tag int) bool {
	f := p.field
	d.made += p.len * (f.key.size + f.value.size)
	switch {
	case f.shape == mapping:
		return d.mapping(p, at, b, tag)
	case p.len == 1: // without what a slice of a type that is known only now costs
		p.is = reflect.New(f.value.typ).UnsafePointer()
	default:
		p.is = reflect.MakeSlice(f.typ, p.len, p.len).UnsafePointer()
	}
	p.put(at)
	if f.shape == pointer {
		return d.value(&f.value, p.is, b)
	}
	for i := range p.len {
		var element []byte
		element, b, _ = next(b[tag:], f.wire())
		if !d.value(&f.value, unsafe.Add(p.is, i*f.value.size), element) {
			return false
		}
	}
	return true
}

func (d *decoder) mapping(p *part, at unsafe.Pointer, b []byte, tag int) bool {
	f := p.field
	var (
		texts  map[string]string
		others reflect.Value
		k, v   reflect.Value    // of which others makes copies
		room   = min(p.len, 64) // more only once there is something: all entries may have the same key
	)
	if f.typ == textsType {
		texts = make(map[string]string, room)
		*(*map[string]string)(at) = texts
	} else {
		others, k, v = reflect.MakeMapWithSize(f.typ, room), reflect.New(f.key.typ), reflect.New(f.value.typ)
		reflect.NewAt(f.typ, at).Elem().Set(others)
	}
	p.is = *(*unsafe.Pointer)(at)
	if change := d.change; others.IsValid() && change == AtFirst {
		d.change = Always // a twin would be about v, and not about its copy
		defer func() { d.change = change }()
	}
	for range p.len {
		var entry, key, content []byte
		entry, b, _ = next(b[tag:], wireBytes)
		for len(entry) > 0 {
			field, rest, ok := next(entry[1:], wireBytes)
			switch {
			case ok && entry[0] == 1<<3|wireBytes:
				key = field
			case ok && entry[0] == 2<<3|wireBytes && content == nil:
				content = field
			default:
				return false // as if a value comes twice
			}
			entry = rest
		}
		if texts != nil {
			k := d.text(f.key.habit, key)
			texts[k] = d.text(f.value.habit, content)
			continue
		}
		k.Elem().SetZero()
		v.Elem().SetZero()
		lazy := d.lazy
		if !d.value(&f.key, k.UnsafePointer(), key) || !d.value(&f.value, v.UnsafePointer(), content) {
			return false
		}
		if f.value.typ == quantityType {
			d.lazy = lazy
		}
		others.SetMapIndex(k.Elem(), v.Elem())
	}
	return true
}

// next splits the content of a field off b, of which the tag has been read.
func next(b []byte, wire uint64) (content, rest []byte, ok bool) {
	size := 0
	switch wire {
	case wireVarint:
		_, size = uvarint(b)
		ok = size > 0
	case wireBytes:
		length, n := uvarint(b)
		if ok = n > 0 && length <= uint64(len(b)-n); ok {
			b = b[n:]
			size = int(length)
		}
	case wireFixed64:
		size, ok = 8, len(b) >= 8
	case wireFixed32:
		size, ok = 4, len(b) >= 4
	}
	if !ok {
		return nil, nil, false
	}
	return b[:size], b[size:], true
}

// uvarint is binary.Uvarint, made so that numbers of one byte, as most are here, need no call.
func uvarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return longUvarint(b)
}

func longUvarint(b []byte) (v uint64, n int) { return binary.Uvarint(b) }
