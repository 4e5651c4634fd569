package wire

import (
	"encoding/binary"
	"reflect"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// tree contains itself, as the schema of a custom resource does, and decodes itself as generated code would.
type tree struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata" protobuf:"bytes,1,opt,name=metadata"`
	Children          map[string][]*tree `json:"children" protobuf:"bytes,2,rep,name=children"`
}

func (t *tree) DeepCopyObject() runtime.Object { c := *t; return &c }

func (t *tree) Unmarshal(b []byte) error {
	return eachField(b, false, func(number uint64, b []byte) error {
		switch number {
		case 1:
			return t.ObjectMeta.Unmarshal(b)
		case 2:
			return new(tree).Unmarshal(b)
		}
		return nil
	})
}

// nested returns a message of so many levels, and before the next level of each what is given.
func nested(levels int, before string) (message []byte) {
	sizes := []int{0}
	for i := range levels {
		inner := len(binary.AppendUvarint(nil, uint64(sizes[i])))
		sizes = append(sizes, len(before)+1+inner+sizes[i])
	}
	for i := levels - 1; i >= 0; i-- {
		message = append(append(message, before...), 2<<3|wireBytes)
		message = binary.AppendUvarint(message, uint64(sizes[i]))
	}
	return message
}

// An object that is nested too deep to be decoded, which no recover would survive, is an invalid one with its name.
func TestADeepObjectIsAnErrorOfItsOwn(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(64 << 20))
	meta, err := (&metav1.ObjectMeta{Name: "deep"}).Marshal()
	require.NoError(t, err)
	body := func(levels int) []byte {
		return append(wiretest.ProtoField(nil, 1, meta), nested(levels, "")...)
	}
	of := Type{Item: reflect.TypeFor[tree]()}
	e := NewDecoder(of, intern.Never).decode(raw{data: body(1_000_000)}, true)
	require.ErrorIs(t, e.Err, ErrTooLarge)
	require.Equal(t, "deep", e.Object.(*metav1.PartialObjectMetadata).Name)
	_, err = of.Decode(wiretest.Enveloped("Tree", body(1_000_000)))
	require.ErrorIs(t, err, ErrTooLarge)
	require.NoError(t, NewDecoder(of, intern.Never).decode(raw{data: body(maxDepth - 1)}, true).Err)
	require.False(t, recursive(reflect.TypeFor[corev1.Pod](), map[reflect.Type]bool{}), "others cost no search")
}

// Whatever stands before a level, generated code that skips it meets the level.
func TestWhatHidesADeepLevel(t *testing.T) {
	for name, before := range map[string]string{
		"nothing": "", "a number": "\x18\x05", "a string": "\x1a\x02hi", "8 bytes": "\x19........",
		"4 bytes": "\x1d....",
		"a group": "\x1b\x18\x05\x1c", "a number that is too long": "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
	} {
		require.True(t, deeper(nested(50, before), 49), name)
		require.False(t, deeper(nested(50, before), 51), name)
	}
}

func FuzzDepth(f *testing.F) {
	f.Add(nested(3, "\x1b\x18\x05\x1c"))
	f.Fuzz(func(t *testing.T, message []byte) {
		var depth func(b []byte) int
		depth = func(b []byte) (most int) {
			_ = eachField(b, false, func(_ uint64, b []byte) error {
				most = max(most, 1+depth(b))
				return nil
			})
			return most
		}
		if d := depth(message); d > 0 {
			require.True(t, deeper(message, d-1))
		}
	})
}
