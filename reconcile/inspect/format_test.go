package inspect

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the fields in BUNDLE.md anew")

// TestTheFormatIsDocumented compares the last block of BUNDLE.md with the types that are written.
func TestTheFormatIsDocumented(t *testing.T) {
	text, err := os.ReadFile("BUNDLE.md")
	require.NoError(t, err)
	const fence = "```\n"
	i := strings.LastIndex(strings.TrimSuffix(string(text), fence), fence)
	require.Positive(t, i)
	want := string(text[:i]) + fence + fieldsOf(reflect.TypeFor[line]()) + fence
	if *update {
		require.NoError(t, os.WriteFile("BUNDLE.md", []byte(want), 0o644))
	}
	require.Equal(t, want, string(text), "go test -run TheFormatIsDocumented . -args -update writes it anew")
}

// fieldsOf describes a type and those of its fields: a paragraph for each.
func fieldsOf(first reflect.Type) string {
	var out strings.Builder
	types := []reflect.Type{first}
	for i := 0; i < len(types); i++ {
		lines := []string{types[i].Name() + ":"}
		for f := range types[i].Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if options != "" {
				name += "?"
			}
			kind, record := typeName(f.Type)
			if record != nil && !slices.Contains(types, record) {
				types = append(types, record)
			}
			last := &lines[len(lines)-1]
			if field := fmt.Sprintf(" %s %s,", name, kind); len(*last)+len(field) > 110 {
				lines = append(lines, "   "+field)
			} else {
				*last += field
			}
		}
		fmt.Fprintln(&out, strings.TrimSuffix(strings.Join(lines, "\n"), ","))
	}
	return out.String()
}

// typeName returns what a type is called in JSON, and the struct that it is or refers to.
func typeName(t reflect.Type) (name string, record reflect.Type) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time", nil
	case t == reflect.TypeFor[time.Duration]():
		return "duration", nil
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		name, record = typeName(t.Elem())
		return "[" + name + "]", record
	case t.Kind() == reflect.Struct:
		return t.Name(), t
	case t.Kind() == reflect.Int, t.Kind() == reflect.Uint64:
		return "number", nil
	}
	return t.Name(), nil
}
