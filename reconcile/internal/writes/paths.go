package writes

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Paths finds the paths of the fields that writes change, in their bodies. It reads so much a second, and no more.
type Paths struct {
	cached func(Target) []any // the states of that object in the caches of its resource, which are read-only
	seed   maphash.Seed       // of the hashes by which states are compared
	bodies *rate.Limiter      // of the bytes that are read
}

func NewPaths(cached func(Target) []any) *Paths {
	return &Paths{cached, maphash.MakeSeed(), rate.NewLimiter(bodyRate, bodyBurst)}
}

// Why the changed paths of a write are unknown.
const (
	bodyTooLong   = "the body is longer than 64 KiB"
	bodiesTooMany = "the controller wrote more than 512 KiB a second"
	notCached     = "no cache had the version that was updated, or the body is in CBOR"
)

// Reading the body of a write costs about 10 ns per byte. A controller reads at most bodyRate bytes a second, and
// bodyBurst at once, so a controller that writes a lot spends less than 1 % of a core on it. Each body counts as
// bodyCost bytes more than it has.
const bodyRate, bodyBurst, bodyCost = 512 << 10, 2 << 20, 512

// read finds the paths of a write in the body of its request, or says why it cannot. The caller must send the request
// that it returns.
func (p *Paths) read(w *status.Write, req *http.Request, to Target, update bool) *http.Request {
	length := req.ContentLength
	if length <= 0 { // not known
		length = maxOptions
	}
	switch {
	case length > maxOptions:
		w.PathsUnknown = bodyTooLong
		return req
	case !p.bodies.AllowN(w.At, int(length)+bodyCost):
		w.PathsUnknown = bodiesTooMany
		return req
	}
	req, body, whole := peekBody(req)
	contentType, known := req.Header.Get("Content-Type"), true
	switch {
	case !whole:
		w.PathsUnknown = bodyTooLong
	case update:
		if w.Paths, w.MorePaths, known = p.ofUpdate(contentType, to, body); !known {
			w.PathsUnknown = notCached
		}
	default:
		w.Paths, w.MorePaths = changedPaths(contentType, to, body)
	}
	return req
}

// maxPaths is how many paths of a write are remembered, and maxPathsSeen how many are told apart.
const maxPaths, maxPathsSeen = 8, 64

// changedPaths returns the paths of the fields that the body of a patch or an apply sets or removes, in its order: at
// most maxPaths, and how many there are besides. It returns none if it cannot read the body.
//
// Values are skipped, not decoded. A path shows keys of maps, such as those of labels and of a ConfigMap's data. The
// keys of a Secret's data may be sensitive as well, so of a Secret only the top fields are shown.
func changedPaths(contentType string, to Target, body []byte) (paths []string, more int) {
	s := pathScanner{body: body, depth: 32}
	if to.Resource == "secrets" {
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

// The body of an update is a whole object. What it changes shows only beside the object that it was made from: the one
// in the cache, if that has the same version. A cache that has moved on, or that has not yet seen the version, says
// nothing about the update.

// ofUpdate returns the paths of the fields in which the body of an update differs from the cached object: at most
// maxPaths, and how many there are besides. known is false if no cache has the version that the update was made from,
// or the body cannot be read.
func (p *Paths) ofUpdate(contentType string, to Target, body []byte) (paths []string, more int, known bool) {
	for _, old := range p.cached(to) {
		// Types of the user's may decode and encode themselves. A panic of theirs must not keep the request from the
		// server.
		err := lifecycle.Try(func() {
			now, ok := decodeLike(old, contentType, body)
			if known = ok && sameVersion(old, now); known {
				paths, more = pathsOf(diff.Of(p.seed, old, now), to.Resource == "secrets")
			}
		})
		if known && err == nil {
			return paths, more, true
		}
	}
	return nil, 0, false
}

// decodeLike decodes an object of the same type as another one.
func decodeLike(like any, contentType string, body []byte) (o any, ok bool) {
	t := reflect.TypeOf(like)
	if _, partial := like.(*metav1.PartialObjectMetadata); partial || t.Kind() != reflect.Pointer {
		return nil, false // what is not in the cache cannot be compared
	}
	o = reflect.New(t.Elem()).Interface()
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case runtime.ContentTypeJSON:
		return o, json.Unmarshal(body, o) == nil
	case runtime.ContentTypeProtobuf:
		var envelope runtime.Unknown
		message, ok := o.(interface{ Unmarshal([]byte) error })
		raw, _ := bytes.CutPrefix(body, protobufPrefix)
		return o, ok && envelope.Unmarshal(raw) == nil && message.Unmarshal(envelope.Raw) == nil
	}
	return nil, false
}

// sameVersion reports whether two states of an object claim to be the same version of it.
func sameVersion(old, now any) bool {
	a, ok := old.(metav1.Object)
	b, also := now.(metav1.Object)
	return ok && also && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

var indices = regexp.MustCompile(`\[\d+\]`)

// pathsOf names changed fields as changedPaths does.
func pathsOf(changes []diff.Change, onlyTop bool) (paths []string, more int) {
	for _, c := range changes {
		p := indices.ReplaceAllString(c.Name, "[]")
		if onlyTop {
			p, _, _ = strings.Cut(p, ".")
		}
		if c.Old != c.Now && !slices.Contains(paths, p) && !slices.Contains(unsaid, p) {
			paths = append(paths, p)
		}
	}
	shown := min(len(paths), maxPaths)
	return paths[:shown:shown], len(paths) - shown
}
