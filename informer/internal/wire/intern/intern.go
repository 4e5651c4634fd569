//go:build !purego

package intern

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Interner shares between the objects of one type that it is shown. It is safe for concurrent use.
//
// It remembers values in tables of a fixed size, in which the latest value replaces the one in its slot. So it needs no
// lock, it forgets values that no longer come, and it keeps little memory alive: at most 30 MB, if all values are as
// long as the longest that it remembers, and usually a tenth of that or less. A value that is replaced before it comes
// again is in memory twice, as without an Interner.
//
// For each place in the objects it learns whether its values repeat. Where they do not, as with addresses, it looks at
// one object of 16 only.
type Interner struct {
	object reflect.Type // a pointer to what the plan and the message are for
	change Change

	// What is for protobuf, and for JSON, is set when the first object comes in it, and the rest with the first object:
	// all of it is some hundred kB, and a program may have an Interner for each of a hundred kinds.
	prepared, forProtobuf, forJSON sync.Once
	plan                           *plan
	message                        *message // of protobuf
	json                           value

	seed      maphash.Seed
	strings   table[string]
	fields    table[metav1.FieldsV1]
	texts     table[map[string]string]
	resources table[corev1.ResourceList]
	parts     table[part]
	// of objects without a type, in JSON
	boxes  table[any]
	wholes table[whole]
	habits []habit
}

// Object skips shorter strings: the allocator puts several of them into 16 bytes.
const minString = 16

// Larger values repeat less, and would let the tables keep more memory alive.
const maxString, maxFields, maxTexts, maxResources, maxPart, maxMade = 1 << 10, 8 << 10, 2 << 10, 16, 4 << 10, 16 << 10

// The Interner looks at all places of one object in so many.
const seldom = 16

// New makes an Interner for objects of type t, a struct or map[string]any.
func New(t reflect.Type, change Change) *Interner {
	return &Interner{object: reflect.PointerTo(t), change: change}
}

// whole reports whether objects may share more than strings at once.
func (s *Interner) whole() bool { return s.change == Never }

// Object lets *o share with the objects before and after it. The caller is the only one that has *o. It panics if *o is
// not of the Interner's type.
func (s *Interner) Object(o any) {
	s.prepare(o)
	s.plan.visit(s, reflect.ValueOf(o).UnsafePointer(), rand.Uint32()%seldom == 0)
}

// prepare makes the Interner ready for an object.
func (s *Interner) prepare(o any) {
	if reflect.TypeOf(o) != s.object {
		panic(fmt.Sprintf("intern: a %T, not a %s", o, s.object))
	}
	s.prepared.Do(func() {
		s.plan = newPlanner(s.whole()).plan(s.object.Elem())
		s.seed = maphash.MakeSeed()
		s.strings = make(table[string], 4096)
		if s.whole() {
			s.fields, s.texts, s.resources = make(table[metav1.FieldsV1], 512), make(table[map[string]string], 512),
				make(table[corev1.ResourceList], 256)
		}
		if s.change != Always {
			s.parts = make(table[part], 1024)
		}
	})
}

// prepareProtobuf makes it ready for an object in protobuf.
func (s *Interner) prepareProtobuf(o any) {
	s.prepare(o)
	s.forProtobuf.Do(func() {
		s.message = messenger{newPlanner(s.whole()), map[reflect.Type]*message{}}.message(s.object.Elem())
	})
}

// prepareJSON makes it ready for an object in JSON.
func (s *Interner) prepareJSON(o any) {
	s.prepare(o)
	s.forJSON.Do(func() {
		s.json = namer{}.value(s.object.Elem())
		s.boxes, s.habits = make(table[any], 4096), make([]habit, habits)
		if s.whole() {
			s.wholes = make(table[whole], 1024)
		}
	})
}

// table remembers values by their hash.
type table[T any] []atomic.Pointer[T]

func (t table[T]) slot(hash uint64) *atomic.Pointer[T] { return &t[hash%uint64(len(t))] }

// remember is a function of its own so that only what is remembered has to be on the heap.
func remember[T any](slot *atomic.Pointer[T], v T) *T {
	slot.Store(&v)
	return &v
}
