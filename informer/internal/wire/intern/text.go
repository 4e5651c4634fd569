//go:build !purego

package intern

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/json"
)

// jsonText is a text in JSON. Its methods consume what they read, and return false for what is no JSON.
type jsonText struct {
	data  []byte
	at    int
	depth int
}

// A jsonText leaves deeper ones to package json.
const maxDepth = 500

// peek returns the next byte that is no white space, and does not consume it; 0 at the end.
func (t *jsonText) peek() byte {
	for ; t.at < len(t.data); t.at++ {
		if c := t.data[t.at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

// take consumes the next byte that is no white space, if it is c.
func (t *jsonText) take(c byte) bool {
	if t.peek() != c {
		return false
	}
	t.at++
	return true
}

// word consumes null, true or false.
func (t *jsonText) word(word string) bool {
	if !bytes.HasPrefix(t.data[t.at:], []byte(word)) {
		return false
	}
	t.at += len(word)
	return true
}

// each calls fn for each element of an array, or member of an object; fn reads it.
func (t *jsonText) each(open, end byte, fn func() bool) bool {
	if t.depth++; t.depth > maxDepth || !t.take(open) {
		return false
	}
	for more := !t.take(end); more; more = !t.take(end) {
		if !fn() || t.peek() != end && !t.comma() {
			return false
		}
	}
	t.depth--
	return true
}

// comma consumes a comma that something follows.
func (t *jsonText) comma() bool {
	return t.take(',') && t.peek() != ']' && t.peek() != '}'
}

// eachMember calls fn with the name of each member of an object; fn reads the value.
func (t *jsonText) eachMember(fn func(name []byte) bool) bool {
	return t.each('{', '}', func() bool {
		name, ok := t.quoted()
		return ok && t.take(':') && fn(name)
	})
}

// span reads a string and returns what is between its quotes; plain says that this is what the string says.
func (t *jsonText) span() (text []byte, plain, ok bool) {
	if !t.take('"') {
		return nil, false, false
	}
	begin, ascii := t.at, true
	plain = true
	for t.at < len(t.data) {
		c := t.data[t.at]
		t.at++
		switch {
		case c == '"':
			text = t.data[begin : t.at-1]
			return text, plain && (ascii || utf8.Valid(text)), true
		case c == '\\':
			plain = false
			if !t.escape() {
				return nil, false, false
			}
		case c < ' ':
			return nil, false, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false, false
}

// escape consumes what follows a backslash.
func (t *jsonText) escape() bool {
	rest := t.data[t.at:]
	switch {
	case len(rest) > 0 && bytes.IndexByte([]byte(`"\/bfnrt`), rest[0]) >= 0:
		t.at++
		return true
	case len(rest) > 4 && rest[0] == 'u':
		_, err := strconv.ParseUint(string(rest[1:5]), 16, 16)
		t.at += 5
		return err == nil
	}
	return false
}

// quoted reads a string.
func (t *jsonText) quoted() (text []byte, ok bool) {
	text, plain, ok := t.span()
	if ok && !plain {
		var says string
		ok = json.Unmarshal(t.data[t.at-len(text)-2:t.at], &says) == nil
		text = []byte(says)
	}
	return text, ok
}

// number reads a number.
func (t *jsonText) number() (literal []byte, ok bool) {
	i := t.at
	next := func(set string) bool {
		if i < len(t.data) && bytes.IndexByte([]byte(set), t.data[i]) >= 0 {
			i++
			return true
		}
		return false
	}
	digits := func() bool {
		from := i
		for i < len(t.data) && '0' <= t.data[i] && t.data[i] <= '9' {
			i++
		}
		return i > from
	}
	next("-")
	ok = (next("0") || digits()) && (!next(".") || digits())
	if ok && next("eE") {
		next("+-")
		ok = digits()
	}
	literal = t.data[t.at:i]
	t.at = i
	return literal, ok
}

// skip reads any value and returns its bytes.
func (t *jsonText) skip() (b []byte, ok bool) {
	c, begin := t.peek(), t.at
	switch c {
	case '{':
		ok = t.each('{', '}', func() bool {
			_, _, named := t.span()
			return named && t.take(':') && t.skipped()
		})
	case '[':
		ok = t.each('[', ']', t.skipped)
	case '"':
		_, _, ok = t.span()
	case 't':
		ok = t.word("true")
	case 'f':
		ok = t.word("false")
	case 'n':
		ok = t.word("null")
	default:
		_, ok = t.number()
	}
	return t.data[begin:t.at], ok
}

func (t *jsonText) skipped() bool {
	_, ok := t.skip()
	return ok
}
