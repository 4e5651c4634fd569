package wire

import (
	"bufio"
	"bytes"
	"io"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

// jsonReader finds the ends of JSON values in a stream. It looks at quotes and brackets only: the decoder of each
// object finds out whether the bytes between them are JSON.
type jsonReader struct {
	from *bufio.Reader
	buf  []byte // scratch space of value, for values that from does not hold as a whole
}

// next returns the next byte that is no white space, and does not consume it.
func (j *jsonReader) next() (byte, error) {
	for {
		c, err := j.from.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, j.from.UnreadByte()
		}
	}
}

// consume reads the next byte that is no white space. The end of the stream is an error.
func (j *jsonReader) consume() (byte, error) {
	c, err := j.next()
	if err != nil {
		return 0, truncated(err)
	}
	_, err = j.from.Discard(1)
	return c, err
}

// value reads one value. It returns at most limit bytes of it and skips the rest; cut says so. The bytes are valid
// until the next read.
func (j *jsonReader) value(limit int) (value []byte, size int64, cut bool, err error) {
	first, err := j.next()
	if err != nil {
		return nil, 0, false, truncated(err)
	}
	scan := jsonScan{scalar: first != '"' && first != '{' && first != '['}
	j.buf = j.buf[:0]
	for !scan.done {
		if _, err := j.from.Peek(1); err != nil {
			return nil, 0, false, truncated(err)
		}
		chunk, _ := j.from.Peek(j.from.Buffered())
		n := scan.advance(chunk)
		if scan.done && size == 0 && 0 < n && n <= limit {
			// from holds it as a whole: return it without a copy.
			_, err := j.from.Discard(n)
			return chunk[:n], int64(n), false, err
		}
		if room := limit - len(j.buf); n > room {
			cut = true
		}
		j.buf = append(j.buf, chunk[:min(n, limit-len(j.buf))]...)
		size += int64(n)
		if _, err := j.from.Discard(n); err != nil {
			return nil, 0, false, err
		}
	}
	if size == 0 {
		return nil, 0, false, errGarbled
	}
	return j.buf, size, cut, nil
}

// jsonScan is the state of a scan for the end of a value.
type jsonScan struct {
	depth                         int
	quoted, escaped, scalar, done bool
}

// advance scans more bytes and returns how many of them belong to the value.
func (s *jsonScan) advance(chunk []byte) int {
	quote := -1 // the next quote, as long as it is not before i
	for i := 0; i < len(chunk); i++ {
		c := chunk[i]
		switch {
		case s.scalar:
			switch c {
			case ',', ']', '}', ':', ' ', '\n', '\t', '\r', '"', '{', '[':
				s.done = true
				return i
			}
		case s.escaped:
			s.escaped = false
		case s.quoted:
			// Most of an object is inside of quotes: skip to the closing quote, or to the next escape.
			if quote < i {
				if quote = bytes.IndexByte(chunk[i:], '"'); quote < 0 {
					quote = len(chunk)
				} else {
					quote += i
				}
			}
			if back := bytes.IndexByte(chunk[i:quote], '\\'); back >= 0 {
				i += back
				s.escaped = true
				continue
			}
			i = quote
			if i < len(chunk) {
				s.quoted = false
				if s.depth == 0 {
					s.done = true
					return i + 1
				}
			}
		case c == '"':
			s.quoted = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth == 0 {
				s.done = true
				return i + 1
			}
		}
	}
	return len(chunk)
}

// eachMember calls fn for each member of an object; fn reads the value.
func (j *jsonReader) eachMember(fn func(name string) error) error {
	return j.each('{', '}', func() error {
		quoted, _, _, err := j.value(maxHead)
		if err != nil {
			return err
		}
		name, ok := unquote(quoted)
		if !ok {
			return errGarbled
		}
		switch c, err := j.consume(); {
		case err != nil:
			return err
		case c != ':':
			return errGarbled
		}
		return fn(name)
	})
}

// each calls fn for each member of an object, or element of an array; fn reads it.
func (j *jsonReader) each(open, end byte, fn func() error) error {
	switch c, err := j.consume(); {
	case err != nil:
		return err
	case c != open:
		return errGarbled
	}
	switch c, err := j.next(); {
	case err != nil:
		return truncated(err)
	case c == end:
		_, err = j.consume()
		return err
	}
	for {
		if err := fn(); err != nil {
			return err
		}
		switch c, err := j.consume(); {
		case err != nil:
			return err
		case c == end:
			return nil
		case c != ',':
			return errGarbled
		}
	}
}

func unquote(quoted []byte) (s string, ok bool) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return "", false
	}
	if plain := quoted[1 : len(quoted)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain), true
	}
	err := json.Unmarshal(quoted, &s)
	return s, err == nil
}

// text reads a value that must be a short string.
func (j *jsonReader) text() (string, error) {
	quoted, _, cut, err := j.value(maxHead)
	if err != nil {
		return "", err
	}
	s, ok := unquote(quoted)
	if cut || !ok {
		return "", errGarbled
	}
	return s, nil
}

// skip skips a value.
func (j *jsonReader) skip() error {
	_, _, _, err := j.value(0)
	return err
}

// splitJSONList adds the items of a list in JSON, each as soon as it has arrived. The members may stand in any order:
// the list of a custom resource has its metadata after the items.
func splitJSONList(from *bufio.Reader, out *response) error {
	j := &jsonReader{from: from}
	var head *metav1.ListMeta
	listed := false
	err := j.eachMember(func(name string) (err error) {
		switch name {
		case "kind":
			out.kind, err = j.text()
		case "apiVersion":
			out.apiVersion, err = j.text()
		case "metadata":
			value, _, cut, err := j.value(maxHead)
			if err != nil {
				return err
			}
			head = &metav1.ListMeta{}
			var id struct {
				UID string `json:"uid"`
			}
			if cut || json.Unmarshal(value, head) != nil || json.Unmarshal(value, &id) != nil {
				return errGarbled
			}
			out.head, out.object = head, id.UID != ""
		case "items":
			if listed {
				return errGarbled
			}
			listed, out.items = true, true
			return splitJSONItems(j, out)
		default:
			return j.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case out.head == nil:
		out.head = &metav1.ListMeta{}
	}
	return out.isList()
}

func splitJSONItems(j *jsonReader, out *response) error {
	switch c, err := j.next(); {
	case err != nil:
		return truncated(err)
	case c == 'n': // null: an empty list
		return j.skip()
	}
	return j.each('[', ']', func() error {
		value, size, cut, err := j.value(maxObject)
		if err != nil {
			return err
		}
		out.add(raw{event: watch.Added, data: value, size: size, cut: cut})
		return nil
	})
}

// splitJSONWatch adds the events of a watch in JSON: a sequence of objects, each with a type and an object.
func splitJSONWatch(from *bufio.Reader, out *response) error {
	j, object := &jsonReader{from: from}, []byte(nil)
	for {
		if _, err := j.next(); err != nil {
			return between(err)
		}
		event, found := raw{}, false
		err := j.eachMember(func(name string) error {
			switch name {
			case "type":
				text, err := j.text()
				event.event = watch.EventType(text)
				return err
			case "object":
				value, size, cut, err := j.value(maxObject)
				object = append(object[:0], value...)
				event.size, event.cut, found = size, cut, true
				return err
			}
			return j.skip()
		})
		switch {
		case err != nil:
			return err
		case !found:
			return errGarbled
		}
		event.data = object
		out.add(event)
	}
}

// saysType reports whether an item says its kind and version itself, as far as its list has not said them before it.
func saysType(r raw, j *jsonReader) bool {
	version, kind := r.apiVersion != "", r.kind != ""
	if version && kind {
		return true
	}
	if j.from == nil {
		j.from = bufio.NewReader(nil)
	}
	j.from.Reset(bytes.NewReader(r.data))
	says := map[string]*bool{"apiVersion": &version, "kind": &kind}
	_ = j.eachMember(func(name string) error {
		said := says[name]
		if said == nil {
			return j.skip()
		}
		text, err := j.text()
		*said = *said || text != ""
		if version && kind {
			return io.EOF // it need not look further
		}
		return err
	})
	return version && kind
}

// jsonIdentity reads what it can of the metadata of an object that could not be decoded.
func jsonIdentity(object []byte) (id metav1.ObjectMeta) {
	j := &jsonReader{from: bufio.NewReader(bytes.NewReader(object))}
	// The first error ends the walk; what was found before stands.
	_ = j.eachMember(func(name string) error {
		if name != "metadata" {
			return j.skip()
		}
		return j.eachMember(func(name string) error {
			value, _, cut, err := j.value(maxHead)
			if text, ok := unquote(value); err == nil && ok && !cut {
				identify(&id, name, text)
			}
			return err
		})
	})
	return id
}
