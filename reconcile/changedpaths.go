package reconcile

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// maxPaths is how many paths of a write are remembered, and maxPathsSeen how many are told apart.
const maxPaths, maxPathsSeen = 8, 64

// changedPaths returns the paths of the fields that the body of a patch or an apply sets or removes, in its order: at
// most maxPaths, and how many there are besides. It returns none if it cannot read the body.
//
// Values are skipped, not decoded. A path shows keys of maps, such as those of labels and of a ConfigMap's data. The
// keys of a Secret's data may be sensitive as well, so of a Secret only the top fields are shown.
func changedPaths(contentType string, to target, body []byte) (paths []string, more int) {
	s := pathScanner{body: body, depth: 32}
	if to.resource == "secrets" {
		s.depth = 1
	}
	media, _, _ := mime.ParseMediaType(contentType)
	switch types.PatchType(media) {
	case types.JSONPatchType:
		s.addPointers()
	case types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType: // clients send JSON as YAML
		if !s.value(nil) {
			return nil, 0
		}
	}
	shown := min(len(s.paths), maxPaths)
	return s.paths[:shown:shown], len(s.paths) - shown
}

// pathScanner finds the paths in a JSON object. Its depth is how many names a path may have.
type pathScanner struct {
	body  []byte // what is left
	depth int
	paths []string
}

// addPointers reads the operations of a JSON patch.
func (s *pathScanner) addPointers() {
	var operations []struct {
		Path string `json:"path"`
	}
	if json.Unmarshal(s.body, &operations) != nil {
		return
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, o := range operations {
		var path []string
		for _, name := range strings.Split(strings.TrimPrefix(o.Path, "/"), "/") {
			if name == "-" || strings.Trim(name, "0123456789") == "" && len(path) > 0 {
				name = "[]"
			}
			path = append(path, unescape.Replace(name))
		}
		s.add(path)
	}
}

// unsaid are fields that every apply has and none changes.
var unsaid = []string{"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid",
	"metadata.resourceVersion"}

// add adds a path once.
func (s *pathScanner) add(path []string) {
	var b strings.Builder
	for i, name := range path[:min(len(path), s.depth)] {
		switch {
		case name == "[]":
			b.WriteString(name)
		case strings.ContainsAny(name, "./"):
			b.WriteString("[" + name + "]")
		case i > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	p := b.String()
	if p == "" || slices.Contains(s.paths, p) || slices.Contains(unsaid, p) {
		return
	}
	if len(s.paths) < maxPathsSeen {
		s.paths = append(s.paths, p)
	}
}

// value reads a value at a path, and reports whether it could.
func (s *pathScanner) value(path []string) bool {
	switch s.peek() {
	case '{':
		return s.object(path)
	case '[':
		return s.list(path)
	case '"':
		if _, ok := s.text(); !ok {
			return false
		}
	default:
		n := bytes.IndexAny(s.body, ",]} \t\r\n")
		if n < 0 {
			n = len(s.body)
		}
		if n == 0 || len(path) == 0 {
			return false
		}
		s.body = s.body[n:]
	}
	s.add(path)
	return true
}

// object reads an object: its fields, or itself if it has none. Names that begin with $ are directives of a strategic
// merge patch.
func (s *pathScanner) object(path []string) bool {
	s.body = s.body[1:]
	if s.peek() == '}' {
		s.body = s.body[1:]
		s.add(path)
		return true
	}
	for {
		if s.peek() != '"' || len(path) > 100 {
			return false
		}
		name, ok := s.text()
		if !ok || s.peek() != ':' {
			return false
		}
		s.body = s.body[1:]
		before := len(s.paths)
		if !s.value(append(path, name)) {
			return false
		}
		if strings.HasPrefix(name, "$") {
			s.paths = s.paths[:before]
		}
		if end, ok := s.next('}'); end || !ok {
			return ok
		}
	}
}

// list reads a list: the fields of its elements, without an index, or itself.
func (s *pathScanner) list(path []string) bool {
	s.body = s.body[1:]
	if s.peek() == ']' {
		s.body = s.body[1:]
		s.add(path)
		return true
	}
	for {
		at := path
		if s.peek() == '{' {
			at = append(path, "[]")
		}
		if len(path) > 100 || !s.value(at) {
			return false
		}
		if end, ok := s.next(']'); end || !ok {
			return ok
		}
	}
}

// next reads a comma or the end.
func (s *pathScanner) next(last byte) (end, ok bool) {
	c := s.peek()
	if c != ',' && c != last {
		return false, false
	}
	s.body = s.body[1:]
	return c == last, true
}

// peek returns the next character that is no space, or 0.
func (s *pathScanner) peek() byte {
	s.body = bytes.TrimLeft(s.body, " \t\r\n")
	if len(s.body) == 0 {
		return 0
	}
	return s.body[0]
}

// text reads a string, which begins here.
func (s *pathScanner) text() (name string, ok bool) {
	for i := 1; i < len(s.body); i++ {
		switch s.body[i] {
		case '\\':
			i++
		case '"':
			quoted := s.body[:i+1]
			s.body = s.body[i+1:]
			if bytes.IndexByte(quoted, '\\') < 0 {
				return string(quoted[1:i]), true
			}
			return name, json.Unmarshal(quoted, &name) == nil
		}
	}
	return "", false
}
