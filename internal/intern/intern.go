// Package intern lets objects that were decoded one by one have in common what is the same in them: the strings, maps and field sets that the pods of a
// ReplicaSet, of a namespace, of an image repeat.
//
// A decoder makes a new string of each "app.kubernetes.io/name", and a new map around it. Of 150,000 realistic pods, half of the memory is such repetitions.
//
//	intern.go  Interner, and the tables in which it remembers
//	plan.go    where in objects of a type there is something to share
package intern

import (
	"hash/maphash"
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
type Interner struct {
	visit visitor // nil: there is nothing to share
	whole bool

	seed      maphash.Seed
	strings   table[string]
	fields    table[metav1.FieldsV1]
	texts     table[map[string]string]
	resources table[corev1.ResourceList]
}

// Shorter strings, of which there are many, are not worth a look: the allocator packs several of them into 16 bytes.
const minString = 8

// What is larger repeats less, and would let the tables keep more alive.
const maxString, maxFields, maxTexts, maxResources = 1 << 10, 8 << 10, 2 << 10, 16

// New makes an Interner for objects of type t, a struct or map[string]any. With whole, objects share maps and field sets, too, and nobody may change them
// afterwards; otherwise only strings, which nobody can change.
func New(t reflect.Type, whole bool) *Interner {
	return &Interner{
		visit: planOf(t), whole: whole, seed: maphash.MakeSeed(),
		strings: make(table[string], 4096), fields: make(table[metav1.FieldsV1], 512), texts: make(table[map[string]string], 512),
		resources: make(table[corev1.ResourceList], 256),
	}
}

// Object lets *o share with the objects before it, and those after it with it. Nobody else has seen it yet.
func (s *Interner) Object(o any) {
	if s.visit != nil {
		s.visit(s, reflect.ValueOf(o).Elem())
	}
}

// table remembers values by their hash.
type table[T any] []atomic.Pointer[T]

func (t table[T]) slot(hash uint64) *atomic.Pointer[T] { return &t[hash%uint64(len(t))] }

// remember is a function of its own so that only what is remembered has to be on the heap.
func remember[T any](slot *atomic.Pointer[T], v T) { slot.Store(&v) }

func (s *Interner) string(v string) string {
	if len(v) < minString || len(v) > maxString {
		return v
	}
	slot := s.strings.slot(maphash.String(s.seed, v))
	if known := slot.Load(); known != nil && *known == v {
		return *known
	}
	remember(slot, v)
	return v
}
