//go:build !purego

package intern

import (
	"hash/maphash"
	"strconv"

	"k8s.io/apimachinery/pkg/util/json"
)

// member is one of an object without a type.
type member struct {
	name  string
	value any
}

// whole is an object or array without a type, and the bytes it was made of.
type whole struct {
	bytes string
	value any
	made  int // as of the decoder
}

// What a map, and an entry of it, takes, about.
const perMap, perMember = 64, 48

// An object without a type has no plan: the habit of a place is found by a hash of the names that lead there. Two
// places that have the same one look at their values more often, or less, than they should.
const habits = 1024

const inArray, inNames = 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f

func (d *jsonReader) habit(path uint64) *habit { return &d.habits[path%habits] }

// untyped reads any value, at the place that path stands for.
func (d *jsonReader) untyped(path uint64) (v any, ok bool) {
	switch d.peek() {
	case '"':
		return d.box(path)
	case '{', '[':
		return d.container(path)
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
	}
	literal, ok := d.number()
	if !ok {
		return nil, false
	}
	if n, err := strconv.ParseInt(string(literal), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	return f, err == nil
}

// box reads a string. What is shared is the string in its interface, which has memory of its own.
func (d *jsonReader) box(path uint64) (v any, ok bool) {
	says, ok := d.quoted()
	d.made += 16 + len(says)
	h := d.habit(path)
	if !ok || len(says) > maxString || !h.worth(d.curious) {
		return string(says), ok
	}
	slot := d.boxes.slot(maphash.Bytes(d.seed, says))
	if known := slot.Load(); known != nil && (*known).(string) == string(says) {
		h.learn(true, d.curious)
		return *known, true
	}
	v = string(says)
	remember(slot, v)
	h.learn(false, d.curious)
	return v, true
}

// container reads an object or array. Where objects have the same bytes again, they share it.
func (d *jsonReader) container(path uint64) (v any, ok bool) {
	h := d.habit(path)
	if d.wholes == nil || !h.worth(d.curious) {
		return d.newContainer(path)
	}
	begin := d.at
	b, ok := d.skip()
	if !ok {
		return nil, false
	}
	slot := d.wholes.slot(maphash.Bytes(d.seed, b))
	if known := slot.Load(); known != nil && known.bytes == string(b) {
		d.made += known.made
		h.learn(true, d.curious)
		return known.value, true
	}
	made := d.made
	d.at = begin
	v, ok = d.newContainer(path)
	if made = d.made - made; ok && len(b) <= maxPart && made <= maxMade {
		remember(slot, whole{string(b), v, made})
	}
	h.learn(false, d.curious)
	return v, ok
}

func (d *jsonReader) newContainer(path uint64) (v any, ok bool) {
	if d.peek() == '{' {
		return d.object(path)
	}
	from := len(d.members)
	ok = d.each('[', ']', func() bool {
		v, ok := d.untyped(path ^ inArray)
		d.members = append(d.members, member{value: v})
		return ok
	})
	items := make([]any, len(d.members)-from)
	for i, m := range d.members[from:] {
		items[i] = m.value
	}
	d.forget(from)
	d.made += 24 + 16*len(items)
	return items, ok
}

func (d *jsonReader) object(path uint64) (o map[string]any, ok bool) {
	from := len(d.members)
	ok = d.eachMember(func(name []byte) bool {
		key := d.text(d.habit(path^inNames), name)
		v, ok := d.member(path, key)
		d.members = append(d.members, member{key, v})
		return ok
	})
	o = make(map[string]any, len(d.members)-from)
	for _, m := range d.members[from:] {
		o[m.name] = m.value
	}
	d.forget(from)
	d.made += perMap + perMember*len(o)
	return o, ok
}

func (d *jsonReader) forget(from int) {
	clear(d.members[from:])
	d.members = d.members[:from]
}

// member reads the value of a member. The content of a Secret is not to be kept longer than the Secret.
func (d *jsonReader) member(path uint64, name string) (v any, ok bool) {
	if d.depth == 1 && (name == "data" || name == "stringData") {
		return d.alone()
	}
	return d.untyped((path ^ maphash.String(d.seed, name)) * inArray)
}

// alone reads a value that shares nothing.
func (d *jsonReader) alone() (v any, ok bool) {
	b, ok := d.skip()
	return v, ok && json.Unmarshal(b, &v) == nil
}
