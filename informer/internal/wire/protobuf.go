package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The protobuf form of the Kubernetes API:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding. Field numbers are those of the
// generated.proto files in k8s.io/apimachinery; every list type of the API has the same two fields.
//
//	list     "k8s\x00" Unknown{ typeMeta=1 TypeMeta, raw=2 <XList> }
//	XList    { metadata=1 ListMeta, items=2 X ... }
//	watch    a sequence of frames, each its length in 4 bytes, big-endian, and a WatchEvent
//	event    WatchEvent{ type=1 string, object=2 RawExtension{ raw=1 "k8s\x00" Unknown } }
const protoMagic = "k8s\x00"

// Wire types of https://protobuf.dev/programming-guides/encoding/#structure.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// protoReader reads the fields of one message off a stream.
type protoReader struct {
	from *bufio.Reader
	rest int64  // bytes of the message that have not been read
	open bool   // it ends where the stream does
	buf  []byte // scratch space of bytes, for fields that are longer than the buffer of from
}

// openProtoReader returns a reader of a message that ends where the stream does.
func openProtoReader(from *bufio.Reader) protoReader {
	return protoReader{from: from, rest: math.MaxInt64, open: true}
}

// field reads the number and length of the next length-delimited field; it skips fields of other types. At the end of
// the message it returns io.EOF.
func (p *protoReader) field() (number uint64, length int64, err error) {
	for p.rest > 0 {
		if _, err := p.from.Peek(1); err == io.EOF && p.open {
			return 0, 0, io.EOF
		}
		tag, err := p.varint()
		if err != nil {
			return 0, 0, err
		}
		switch tag & 7 {
		case wireBytes:
			n, err := p.varint()
			switch {
			case err != nil:
				return 0, 0, err
			case n > uint64(p.rest):
				return 0, 0, errGarbled
			}
			return tag >> 3, int64(n), nil
		case wireVarint:
			_, err = p.varint()
		case wireFixed64:
			err = p.skip(8)
		case wireFixed32:
			err = p.skip(4)
		default:
			err = errGarbled
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, io.EOF
}

func (p *protoReader) varint() (v uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		if p.rest == 0 {
			return 0, errGarbled
		}
		b, err := p.from.ReadByte()
		if err != nil {
			return 0, truncated(err)
		}
		p.rest--
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errGarbled
}

// bytes reads the content of a field. Of a field longer than limit it returns at most maxHead bytes and skips the rest;
// cut says so. The bytes are valid until the next read.
func (p *protoReader) bytes(length int64, limit int64) (b []byte, cut bool, err error) {
	if length > p.rest {
		return nil, false, errGarbled
	}
	kept := length
	if cut = length > limit; cut {
		kept = min(limit, maxHead)
	} else if length <= int64(p.from.Size()) {
		// The buffer of from holds it: return it without a copy.
		if b, err = p.from.Peek(int(length)); err != nil {
			return nil, false, truncated(err)
		}
		p.rest -= length
		_, err = p.from.Discard(len(b))
		return b, false, err
	}
	if int64(cap(p.buf)) < kept {
		p.buf = make([]byte, kept)
	}
	b = p.buf[:kept]
	if _, err := io.ReadFull(p.from, b); err != nil {
		return nil, false, truncated(err)
	}
	p.rest -= kept
	return b, cut, p.skip(length - kept)
}

func (p *protoReader) skip(n int64) error {
	if n > p.rest {
		return errGarbled
	}
	p.rest -= n
	_, err := io.CopyN(io.Discard, p.from, n)
	return truncated(err)
}

// splitProtoList adds the items of a list in protobuf, each as soon as it has arrived.
func splitProtoList(from *bufio.Reader, out *response) error {
	envelope := openProtoReader(from)
	if magic, _, err := envelope.bytes(int64(len(protoMagic)), maxHead); err != nil || string(magic) != protoMagic {
		return errors.Join(errGarbled, err)
	}
	listed := false
	for {
		number, length, err := envelope.field()
		switch {
		case err == io.EOF && listed:
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case number == 1:
			b, _, err := envelope.bytes(length, maxHead)
			if err != nil {
				return err
			}
			if err := typeMeta(b, &out.apiVersion, &out.kind, out); err != nil {
				return err
			}
		case number == 2 && !listed:
			listed = true
			list := protoReader{from: from, rest: length, buf: envelope.buf}
			if err := out.isList(); err != nil { // the kind of a list in protobuf always ends in "List"
				return err
			}
			if err := splitProtoItems(&list, out); err != nil {
				return err
			}
			envelope.rest -= length
		default:
			if err := envelope.skip(length); err != nil {
				return err
			}
		}
	}
}

func splitProtoItems(list *protoReader, out *response) error {
	for {
		number, length, err := list.field()
		switch {
		case err == io.EOF:
			// An empty ListMeta may be missing.
			if out.head == nil {
				out.head = &metav1.ListMeta{}
			}
			return nil
		case err != nil:
			return err
		case number == 1:
			b, cut, err := list.bytes(length, maxHead)
			if err != nil {
				return err
			}
			head := &metav1.ListMeta{}
			if cut || head.Unmarshal(b) != nil {
				return errGarbled
			}
			out.head = head
		case number == 2:
			b, cut, err := list.bytes(length, maxObject)
			if err != nil {
				return err
			}
			out.add(raw{event: watch.Added, data: b, size: length, cut: cut})
		default:
			if err := list.skip(length); err != nil {
				return err
			}
		}
	}
}

// splitProtoWatch adds the events of a watch in protobuf.
func splitProtoWatch(from *bufio.Reader, out *response) error {
	frames := openProtoReader(from)
	for {
		if _, err := from.Peek(1); err != nil {
			return between(err)
		}
		prefix, _, err := frames.bytes(4, 4)
		if err != nil {
			return err
		}
		length := int64(binary.BigEndian.Uint32(prefix))
		frame, cut, err := frames.bytes(length, maxObject)
		if err != nil {
			return err
		}
		event := raw{size: length, cut: cut}
		object, ok := eventOf(frame, &event)
		if !ok || !unwrap(object, &event, out) {
			return errGarbled
		}
		out.apiVersion, out.kind = event.apiVersion, event.kind
		out.add(event)
		frames.rest = math.MaxInt64
	}
}

// eventOf decodes a WatchEvent, except for its object. If the frame was cut, so is the object.
func eventOf(frame []byte, event *raw) (object []byte, ok bool) {
	err := eachField(frame, event.cut, func(number uint64, b []byte) error {
		switch number {
		case 1:
			event.event = eventType(b)
		case 2:
			return eachField(b, event.cut, func(number uint64, b []byte) error {
				if number == 1 {
					object = b
				}
				return nil
			})
		}
		return nil
	})
	return object, err == nil
}

// eventType returns an event type, without an allocation for the known ones.
func eventType(b []byte) watch.EventType {
	for _, known := range []watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(known) == string(b) {
			return known
		}
	}
	return watch.EventType(b)
}

// unwrap takes the envelope off an object. Its kind is most likely that of the object before.
func unwrap(object []byte, event *raw, before *response) bool {
	if len(object) < len(protoMagic) || string(object[:len(protoMagic)]) != protoMagic {
		return false
	}
	return eachField(object[len(protoMagic):], event.cut, func(number uint64, b []byte) error {
		switch number {
		case 1:
			return typeMeta(b, &event.apiVersion, &event.kind, before)
		case 2:
			event.data = b
		}
		return nil
	}) == nil
}

// typeMeta reads a TypeMeta of package runtime. A field that is missing stays as it is: protobuf merges a message that
// comes twice. A field with the same value as before shares its string.
func typeMeta(b []byte, apiVersion, kind *string, before *response) error {
	return eachField(b, false, func(number uint64, b []byte) error {
		switch number {
		case 1:
			*apiVersion = again(before.apiVersion, b)
		case 2:
			*kind = again(before.kind, b)
		}
		return nil
	})
}

// again returns b as a string: s itself if they are equal.
func again(s string, b []byte) string {
	if s == string(b) {
		return s
	}
	return string(b)
}

// eachField calls fn for each length-delimited field of a message in memory. If the message was cut, its last field may
// be cut as well.
func eachField(message []byte, cut bool, fn func(number uint64, b []byte) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return unless(cut, errGarbled)
		}
		message = message[n:]
		size := 0
		switch tag & 7 {
		case wireBytes:
			length, n := binary.Uvarint(message)
			if n <= 0 {
				return unless(cut, errGarbled)
			}
			message = message[n:]
			b := message
			if length <= uint64(len(message)) {
				b = message[:length]
			} else if !cut {
				return errGarbled
			}
			if err := fn(tag>>3, b); err != nil {
				return err
			}
			size = len(b)
		case wireVarint:
			_, size = binary.Uvarint(message)
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		}
		if size <= 0 && tag&7 != wireBytes || size > len(message) {
			return unless(cut, errGarbled)
		}
		message = message[size:]
	}
	return nil
}

func unless(cut bool, err error) error {
	if cut {
		return nil
	}
	return err
}

// protoIdentity reads what it can of the metadata of an object that could not be decoded: field 1 of every object is
// its ObjectMeta.
func protoIdentity(object []byte, cut bool) (id metav1.ObjectMeta) {
	// What cannot be read ends the walk; what was found before stands.
	_ = eachField(object, cut, func(number uint64, b []byte) error {
		if number != 1 {
			return nil
		}
		return eachField(b, cut, func(number uint64, b []byte) error {
			identify(&id, map[uint64]string{1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}[number],
				string(b))
			return nil
		})
	})
	return id
}
