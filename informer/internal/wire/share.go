package wire

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// ErrNotKept is the error of an object that [Decoder].Keep has left out: it was not decoded. The event's Object has the
// metadata that Keep was given.
var ErrNotKept = errors.New("the object is not in this process's share: another replica keeps it")

// outside returns the metadata of an object that Keep leaves out. What cannot be read is decoded as a whole, and so is
// what has no name: nobody could say which object it is.
func (d *Decoder) outside(r raw, protobuf bool) (o *metav1.PartialObjectMetadata, outside bool) {
	o = &metav1.PartialObjectMetadata{}
	if protobuf {
		outside = briefProtobuf(r, d.KeyOnly, &o.ObjectMeta)
	} else {
		outside = briefJSON(r.data, d.KeyOnly, &o.ObjectMeta)
	}
	if !outside || o.Name == "" || d.Keep(&o.ObjectMeta) {
		return nil, false
	}
	return o, true
}

// briefProtobuf reads the part of an object's metadata that Keep is given. Its first field, the metadata, is read, and
// the others are skipped.
func briefProtobuf(r raw, keyOnly bool, into *metav1.ObjectMeta) (ok bool) {
	err := eachField(r.data, r.cut, func(number uint64, b []byte) error {
		if number != 1 {
			return nil
		}
		return eachField(b, r.cut, func(number uint64, b []byte) error {
			switch number {
			case 1:
				into.Name = string(b)
			case 3:
				into.Namespace = string(b)
			case 5:
				identify(into, "uid", string(b))
			case 6:
				into.ResourceVersion = string(b)
			case 11:
				if !keyOnly {
					return briefLabel(b, into)
				}
			case 13:
				if !keyOnly {
					into.OwnerReferences = append(into.OwnerReferences, metav1.OwnerReference{})
					return into.OwnerReferences[len(into.OwnerReferences)-1].Unmarshal(b)
				}
			}
			return nil
		})
	})
	return err == nil
}

// briefLabel reads an entry of a map: the key is field 1, and the value field 2.
func briefLabel(entry []byte, into *metav1.ObjectMeta) error {
	var label [2]string
	err := eachField(entry, false, func(number uint64, b []byte) error {
		if number == 1 || number == 2 {
			label[number-1] = string(b)
		}
		return nil
	})
	if into.Labels == nil {
		into.Labels = make(map[string]string)
	}
	into.Labels[label[0]] = label[1]
	return err
}

// briefJSON is briefProtobuf for an object in JSON. What stands behind the metadata is not looked at.
func briefJSON(object []byte, keyOnly bool, into *metav1.ObjectMeta) (ok bool) {
	read := true
	eachMemberIn(object, func(name, value []byte) (more bool) {
		if string(name) != `"metadata"` {
			return true
		}
		ok = eachMemberIn(value, func(name, value []byte) (more bool) {
			switch field := string(name); field {
			case `"name"`, `"namespace"`, `"uid"`, `"resourceVersion"`:
				var text string
				text, read = unquote(value)
				identify(into, field[1:len(field)-1], text)
			case `"labels"`:
				read = keyOnly || json.Unmarshal(value, &into.Labels) == nil
			case `"ownerReferences"`:
				read = keyOnly || json.Unmarshal(value, &into.OwnerReferences) == nil
			}
			return read
		})
		return false
	})
	return ok && read
}

// eachMemberIn calls fn for each member of an object in memory, with the name in its quotes, until fn returns false. It
// returns false unless it has come to the end of the object.
func eachMemberIn(object []byte, fn func(name, value []byte) (more bool)) (whole bool) {
	rest, ok := after(object, '{')
	for ok {
		var name, value []byte
		if name, rest = valueIn(rest); len(name) < 2 || name[0] != '"' {
			_, empty := after(rest, '}')
			return empty && len(name) == 0
		}
		if rest, ok = after(rest, ':'); !ok {
			return false
		}
		if value, rest = valueIn(rest); len(value) == 0 || !fn(name, value) {
			return false
		}
		if _, ended := after(rest, '}'); ended {
			return true
		}
		rest, ok = after(rest, ',')
	}
	return false
}

// after returns what follows a byte, which has to be the next that is no white space.
func after(text []byte, c byte) (rest []byte, ok bool) {
	text = unspaced(text)
	if len(text) == 0 || text[0] != c {
		return text, false
	}
	return text[1:], true
}

// valueIn returns the next value, and what follows it. There is none if a bracket is closed before it, or text ends.
func valueIn(text []byte) (value, rest []byte) {
	text = unspaced(text)
	if len(text) == 0 {
		return nil, text
	}
	scan := jsonScan{scalar: text[0] != '"' && text[0] != '{' && text[0] != '['}
	n := scan.advance(text)
	if !scan.done {
		return nil, text
	}
	return text[:n], text[n:]
}

func unspaced(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
		text = text[1:]
	}
	return text
}
