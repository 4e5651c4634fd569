// Package intern lets objects that were decoded one by one have in common what is the same in them: the strings, maps and field sets that the pods of a
// ReplicaSet, of a namespace, of an image repeat.
//
// A decoder makes a new string of each "app.kubernetes.io/name", and a new map around it. Of 150,000 realistic pods, half of the memory is such repetitions.
//
//	intern.go  Interner, and the tables in which it remembers
//	plan.go    where in objects of a type there is something to share
//	share.go   how each kind of value is shared
package intern

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Interner shares between the objects of one type that it is shown. It is safe for concurrent use.
//
// What it has seen it remembers in tables of a fixed size, in which the latest displaces what was in its place. So it needs no lock, it forgets what no longer
// comes, and it keeps little alive that nobody else does: some megabytes if all that it sees is as long as it remembers, usually a hundredth of that.
// What is displaced before it comes again is there more than once, no worse than without an Interner.
//
// Of each place in the objects it learns whether what is there ever repeats. Where it does not, as with addresses, it looks at few objects only.
type Interner struct {
	object reflect.Type // a pointer to what the plan is for
	plan   *plan

	seed      maphash.Seed
	strings   table[string]
	fields    table[metav1.FieldsV1]
	texts     table[map[string]string]
	resources table[corev1.ResourceList]
}

// Shorter strings, of which there are many, are not worth a look: the allocator puts several of them into 16 bytes.
const minString = 16

// What is larger repeats less, and would let the tables keep more alive.
const maxString, maxFields, maxTexts, maxResources = 1 << 10, 8 << 10, 2 << 10, 16

// One object in so many is looked at everywhere.
const seldom = 16

// New makes an Interner for objects of type t, a struct or map[string]any. With whole, objects share maps and field sets, too, and nobody may change them
// afterwards; otherwise only strings, which nobody can change.
func New(t reflect.Type, whole bool) *Interner {
	s := &Interner{object: reflect.PointerTo(t), plan: planner{plans: map[reflect.Type]*plan{}, whole: whole}.plan(t), seed: maphash.MakeSeed()}
	s.strings = make(table[string], 4096)
	if whole {
		s.fields, s.texts, s.resources = make(table[metav1.FieldsV1], 512), make(table[map[string]string], 512), make(table[corev1.ResourceList], 256)
	}
	return s
}

// Object lets *o share with the objects before it, and those after it with it. Nobody else has seen it yet. It panics if *o is not of the Interner's type.
func (s *Interner) Object(o any) {
	if reflect.TypeOf(o) != s.object {
		panic(fmt.Sprintf("intern: a %T, not a %s", o, s.object))
	}
	s.plan.visit(s, reflect.ValueOf(o).UnsafePointer(), rand.Uint32()%seldom == 0)
}

// table remembers values by their hash.
type table[T any] []atomic.Pointer[T]

func (t table[T]) slot(hash uint64) *atomic.Pointer[T] { return &t[hash%uint64(len(t))] }

// remember is a function of its own so that only what is remembered has to be on the heap.
func remember[T any](slot *atomic.Pointer[T], v T) *T {
	slot.Store(&v)
	return &v
}
