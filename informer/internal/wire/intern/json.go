//go:build !purego

package intern

import (
	"reflect"
	"strconv"
	"sync"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// FromJSON decodes JSON into *o, which is zero and of the Interner's type, as package json of
// k8s.io/apimachinery does. What is known already it does not make again. It keeps nothing of data. The Twins are as of
// Unmarshal.
//
// Whatever it does not understand, such as a field that comes twice, it leaves to that package, from the beginning:
// what is accepted and what is not is not decided here.
func (s *Interner) FromJSON(data []byte, o any) (Twins, error) {
	s.prepareJSON(o)
	d, v := spareReaders.Get().(*jsonReader), reflect.ValueOf(o)
	d.decoder, d.data = s.decoder(), data
	done := d.read(&s.json, v.UnsafePointer()) && d.peek() == 0 && d.at == len(data)
	twins := d.twins
	clear(d.members)
	clear(d.texts)
	*d = jsonReader{members: d.members[:0], texts: d.texts[:0]}
	spareReaders.Put(d)
	if done {
		return twins, nil
	}
	v.Elem().SetZero()
	if err := json.Unmarshal(data, o); err != nil {
		return nil, err
	}
	s.Object(o)
	return nil, nil
}

var spareReaders = sync.Pool{New: func() any { return new(jsonReader) }}

// jsonReader decodes one object. Its methods consume what they read, and return false for what they leave to package
// json.
type jsonReader struct {
	decoder
	jsonText
	// Scratch space for the maps that are being read: how large a map has to be is known at its end.
	members []member
	texts   []string
}

// read reads one value to where it belongs: the field itself, what is behind its pointer, or an element.
func (d *jsonReader) read(v *value, at unsafe.Pointer) (ok bool) {
	c := d.peek()
	switch {
	case v.encoding == submessage:
		return d.readStruct(v.message, at)
	case v.encoding == anything:
		*(*any)(at), ok = d.untyped(0)
		return ok
	case c == 'n':
		return d.word("null") // it stays as it is
	}
	switch v.encoding {
	case text:
		var says []byte
		says, ok = d.quoted()
		*(*string)(at) = d.text(v.habit, says)
	case truth:
		*(*bool)(at) = c == 't'
		ok = c == 't' && d.word("true") || c == 'f' && d.word("false")
	case integer:
		ok = d.readInteger(reflect.NewAt(v.typ, at).Elem())
	case instant:
		ok = d.readTime((*metav1.Time)(at))
	case object:
		*(*map[string]any)(at), ok = d.object(0)
	}
	return ok
}

func (d *jsonReader) readInteger(to reflect.Value) bool {
	literal, ok := d.number()
	if !ok {
		return false
	}
	bits := to.Type().Bits()
	if to.CanInt() {
		n, err := strconv.ParseInt(string(literal), 10, bits)
		to.SetInt(n)
		return err == nil
	}
	n, err := strconv.ParseUint(string(literal), 10, bits)
	to.SetUint(n)
	return err == nil
}

// readTime does what the method of a Time does, with a quarter of the garbage.
func (d *jsonReader) readTime(to *metav1.Time) bool {
	says, ok := d.quoted()
	if !ok {
		return false
	}
	t, err := time.Parse(time.RFC3339, string(says))
	*to = metav1.Time{Time: t.Local()}
	return err == nil
}

func (d *jsonReader) readStruct(m *message, at unsafe.Pointer) bool {
	if m.lazy {
		d.lazy++
	}
	if m.itself != nil {
		b, ok := d.skip()
		return ok && m.itself(at, b) == nil
	}
	if d.peek() == 'n' {
		return d.word("null")
	}
	var seen [maxNamed / 64]uint64
	return d.eachMember(func(name []byte) bool {
		f := m.named[string(name)]
		if f == nil {
			return d.skipped()
		}
		if bit := uint64(1) << (f.number % 64); seen[f.number/64]&bit == 0 {
			seen[f.number/64] |= bit
			return d.readField(f, unsafe.Add(at, f.offset))
		}
		return false
	})
}

func (d *jsonReader) readField(f *field, at unsafe.Pointer) bool {
	switch {
	case f.shape == single:
		return d.read(&f.value, at)
	case d.peek() == 'n':
		return d.word("null")
	case d.change == Always || !f.habit.worth(d.curious):
		return d.readNew(&part{field: f}, at)
	}
	begin := d.at
	b, ok := d.skip()
	if !ok {
		return false
	}
	after := d.at
	return d.share(f, at, b, func(at unsafe.Pointer) (part, bool) {
		p := part{field: f}
		d.at = begin
		ok := d.readNew(&p, at) && d.at == after
		return p, ok
	})
}

// readNew makes what a field holds that is a pointer, slice or map, and puts it where it belongs.
func (d *jsonReader) readNew(p *part, at unsafe.Pointer) (ok bool) {
	f, begin := p.field, d.at
	switch {
	case f.shape == mapping:
		ok = d.readMap(f, at)
		p.is = *(*unsafe.Pointer)(at)
		return ok
	case f.shape == pointer:
		p.len = 1
	case !d.each('[', ']', func() bool { p.len++; return d.skipped() }):
		return false
	}
	d.made += p.len * f.value.size
	if p.len == 1 { // without what a slice of a type that is known only now costs
		p.is = reflect.New(f.value.typ).UnsafePointer()
	} else {
		p.is = reflect.MakeSlice(f.typ, p.len, p.len).UnsafePointer()
	}
	p.put(at)
	if f.shape == pointer {
		return d.read(&f.value, p.is)
	}
	i := 0
	d.at = begin
	return d.each('[', ']', func() bool {
		i++
		return d.read(&f.value, unsafe.Add(p.is, (i-1)*f.value.size))
	})
}

// readMap reads a map of texts, or leaves another one to package json.
func (d *jsonReader) readMap(f *field, at unsafe.Pointer) bool {
	if f.typ != textsType {
		b, ok := d.skip()
		d.made += 16 * len(b)
		return ok && d.readItself(f, at, b)
	}
	from := len(d.texts)
	ok := d.eachMember(func(name []byte) bool {
		key := d.text(f.key.habit, name)
		if d.peek() == 'n' {
			d.texts = append(d.texts, key, "")
			return d.word("null")
		}
		says, ok := d.quoted()
		d.texts = append(d.texts, key, d.text(f.value.habit, says))
		return ok
	})
	texts := make(map[string]string, (len(d.texts)-from)/2)
	for i := from; i < len(d.texts); i += 2 {
		texts[d.texts[i]] = d.texts[i+1]
	}
	clear(d.texts[from:])
	d.texts = d.texts[:from]
	d.made += perMap + perMember*len(texts)
	*(*map[string]string)(at) = texts
	return ok
}

func (d *jsonReader) readItself(f *field, at unsafe.Pointer, b []byte) bool {
	if f.value.message.lazy {
		d.lazy++
	}
	return f.value.message.itself(at, b) == nil
}
