//go:build purego

package intern

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/json"
)

// Interner decodes objects of one type. With the build tag purego it lets them share nothing.
type Interner struct{ object reflect.Type }

// New makes an Interner for objects of type t.
func New(t reflect.Type, _ Change) *Interner { return &Interner{object: reflect.PointerTo(t)} }

// Object leaves *o as it is. It panics if *o is not of the Interner's type.
func (s *Interner) Object(o any) {
	if reflect.TypeOf(o) != s.object {
		panic(fmt.Sprintf("intern: a %T, not a %s", o, s.object))
	}
}

// Unmarshal decodes a message into *o with o's own Unmarshal. It panics if *o is not of the Interner's type.
func (s *Interner) Unmarshal(data []byte, o unmarshaler) (Twins, error) {
	s.Object(o)
	return Twins{}, o.Unmarshal(data)
}

// FromJSON decodes JSON into *o. It panics if *o is not of the Interner's type.
func (s *Interner) FromJSON(data []byte, o any) (Twins, error) {
	s.Object(o)
	return Twins{}, json.Unmarshal(data, o)
}

// Twins are what objects could share once they are no longer changed: nothing.
type Twins struct{}

// Settle does nothing.
func (Twins) Settle() {}
