//go:build !purego

package intern

import (
	"bytes"
	"hash/maphash"
	"maps"
	"sync/atomic"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// habit records whether the values of a place repeat. Only the objects whose places are all looked at count: goroutines
// that write to one address wait for each other.
type habit struct{ misses atomic.Int32 }

// After so many objects in a row with a new value, the Interner skips the place, until a value repeats.
const maxMisses = 16

func (h *habit) worth(curious bool) bool { return curious || h.misses.Load() < maxMisses }

func (h *habit) learn(known, curious bool) {
	switch {
	case !curious:
	case !known:
		h.misses.Add(1)
	case h.misses.Load() != 0:
		h.misses.Store(0)
	}
}

// string returns the string that is equal to v and was there before, if it is known.
func (s *Interner) string(v string) (shared string, known bool) {
	if len(v) < minString || len(v) > maxString {
		return v, false
	}
	slot := s.strings.slot(maphash.String(s.seed, v))
	if known := slot.Load(); known != nil && *known == v {
		return *known, true
	}
	remember(slot, v)
	return v, false
}

func shareFields(s *Interner, at unsafe.Pointer, h *habit, curious bool) {
	f := (**metav1.FieldsV1)(at)
	raw := fieldsOf(*f)
	if len(raw) == 0 || len(raw) > maxFields || !h.worth(curious) { // nil is as good as empty
		return
	}
	slot := s.fields.slot(maphash.Bytes(s.seed, raw))
	known := slot.Load()
	if known != nil && bytes.Equal(fieldsOf(known), raw) {
		*f = known
		h.learn(true, curious)
		return
	}
	slot.Store(*f)
	h.learn(false, curious)
}

// fieldsOf returns the bytes of f. Before client-go 0.36 it has no GetRawBytes, and only MarshalJSON gives them: not a
// copy, but "null" if there are none.
func fieldsOf(f *metav1.FieldsV1) []byte {
	if newer, ok := any(f).(interface{ GetRawBytes() []byte }); ok {
		return newer.GetRawBytes()
	}
	if f == nil {
		return nil
	}
	raw, err := f.MarshalJSON()
	if err != nil || string(raw) == "null" {
		return nil
	}
	return raw
}

// textsSharer shares labels, annotations and their like. It first compares with what was there the last time, as
// objects of one owner are next to each other in a list.
func textsSharer(whole bool) sharer {
	var last atomic.Pointer[map[string]string]
	return func(s *Interner, at unsafe.Pointer, h *habit, curious bool) {
		m := (*map[string]string)(at)
		var slot *atomic.Pointer[map[string]string]
		if whole && len(*m) > 0 && h.worth(curious) {
			if known := last.Load(); known != nil && maps.Equal(*known, *m) {
				*m = *known
				h.learn(true, curious)
				return
			}
			hash, size := uint64(0), 0
			for k, text := range *m {
				hash += maphash.String(s.seed, k) * (1 + 2*maphash.String(s.seed, text)) // the order does not matter
				size += len(k) + len(text)
			}
			if size <= maxTexts {
				slot = s.texts.slot(hash)
				if known := slot.Load(); known != nil && maps.Equal(*known, *m) {
					*m = *known
					last.Store(known)
					h.learn(true, curious)
					return
				}
			}
			h.learn(false, curious)
		}
		for k, text := range *m {
			k, _ = s.string(k)
			(*m)[k], _ = s.string(text) // to set a value sets the key, too, if it is a string
		}
		if slot != nil {
			last.Store(remember(slot, *m)) // not before: from now on others read it
		}
	}
}

// resourcesSharer shares requests, limits, capacities.
func resourcesSharer() sharer {
	var last atomic.Pointer[corev1.ResourceList]
	return func(s *Interner, at unsafe.Pointer, h *habit, curious bool) {
		m := (*corev1.ResourceList)(at)
		if len(*m) == 0 || len(*m) > maxResources || !h.worth(curious) {
			return
		}
		if known := last.Load(); known != nil && maps.Equal(*known, *m) {
			*m = *known
			h.learn(true, curious)
			return
		}
		hash := uint64(0)
		for k, q := range *m {
			milli := int64(0)
			if !q.IsZero() { // to scale a zero takes as many steps as its exponent, which its author chose, is large
				milli = q.MilliValue()
			}
			// of two that differ by less, one displaces the other
			hash += maphash.String(s.seed, string(k)) * uint64(1+2*milli)
		}
		slot := s.resources.slot(hash)
		if known := slot.Load(); known != nil && maps.Equal(*known, *m) {
			*m = *known
			last.Store(known)
			h.learn(true, curious)
			return
		}
		last.Store(remember(slot, *m))
		h.learn(false, curious)
	}
}
