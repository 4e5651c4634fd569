package webhook

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"` // may point to nil, which is null
}

// patchOf returns the JSON patch that changes raw as before was changed to after, or nil if they are the same. before
// is what a Go type keeps of raw, so it may lack what raw has, and have zero values that raw lacks.
func patchOf(raw, before, after []byte) ([]byte, error) {
	var trees [3]map[string]any
	for i, data := range [][]byte{raw, before, after} {
		if err := decode(data, &trees[i]); err != nil {
			return nil, err
		}
	}
	operations := changes("", trees[0], trees[1], trees[2])
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

// changes returns the operations below a path, in the order of the names.
func changes(path string, raw, before, after map[string]any) (operations []operation) {
	names := maps.Clone(before)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := before[name]
		is, has := after[name]
		if had == has && reflect.DeepEqual(was, is) {
			continue
		}
		sent, there := raw[name]
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		into, isMap := is.(map[string]any)
		from, sentMap := sent.(map[string]any)
		switch {
		case isMap && sentMap:
			part, _ := was.(map[string]any)
			operations = append(operations, changes(at, from, part, into)...)
		case has && there:
			operations = append(operations, operation{"replace", at, &is})
		case has:
			operations = append(operations, operation{"add", at, &is})
		case there:
			operations = append(operations, operation{Op: "remove", Path: at})
		}
	}
	return operations
}
