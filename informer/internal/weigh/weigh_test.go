package weigh

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type object struct {
	Name   string
	Labels map[string]string
	Items  []item
	Next   *object
	Any    any
	hidden *object
	text   string
}

type item struct{ A, B int64 }

func weighed(values ...object) *Sample {
	s := &Sample{}
	s.NextBlock()
	for _, v := range values {
		s.Add(reflect.ValueOf(v))
	}
	return s
}

func text(n int) string { return strings.Repeat("x", n) }

func TestParts(t *testing.T) {
	shared, boxed := text(100), any(text(100))
	for what, test := range map[string]struct {
		of   []object
		want int
	}{
		"a string, rounded up":         {[]object{{Name: text(100)}}, 112},
		"a short one":                  {[]object{{Name: text(3)}}, 8},
		"a string of two":              {[]object{{Name: shared}, {Name: shared}}, 112},
		"a list":                       {[]object{{Items: make([]item, 3, 5)}}, 80},
		"a small map":                  {[]object{{Labels: map[string]string{text(40): text(40)}}}, 48 + 288 + 48 + 48},
		"a pointer, in a circle":       {[]object{circle()}, 96},
		"a value in a box":             {[]object{{Any: text(100)}}, 16 + 112},
		"a box of two":                 {[]object{{Any: boxed}, {Any: boxed}}, 16 + 112},
		"its own text, and no pointer": {[]object{{text: text(100), hidden: &object{Name: text(1000)}}}, 112},
		"not what others hide":         {[]object{{Next: &object{text: text(1000)}}}, 96},
		"nothing of what there is not": {[]object{{}}, 0},
	} {
		require.Equal(t, test.want, weighed(test.of...).Total(len(test.of)), what)
	}
}

func circle() object {
	o := &object{}
	o.Next = o
	return *o
}

func TestWhatAllShareIsCountedOnce(t *testing.T) {
	everywhere, here := text(1000), text(500)
	var s Sample
	for block := range 4 {
		s.NextBlock()
		of := here
		if block > 0 {
			of = text(500)
		}
		s.Add(reflect.ValueOf(object{Name: everywhere, text: of}))
		s.Add(reflect.ValueOf(object{Name: everywhere, text: of}))
	}
	require.Equal(t, 1024+100*512/2, s.Total(100), "two neighbours share 512 bytes, all of them 1,024")
	require.Zero(t, (&Sample{}).Total(100))
}
