package informer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// intake reads the answer to one request: it splits the bytes into objects as they arrive, decodes these, and hands
// them on in the order in which they came.
//
//	bytes -split-> parcel of raw objects -decode-> parcel of arrivals -> reflector
//	         (1)                          (2)
//
// The splitter (1) is one goroutine. Whatever it has is handed on before it waits for more bytes: what is little it
// decodes itself, what is much the decoders do (2), one for each processor. The channel of parcels keeps their order,
// so that of the events of a key is kept, too; and its capacity bounds what is decoded ahead of the reflector.
type intake struct {
	codec   codec
	body    io.ReadCloser
	parcels chan *parcel // in order; a parcel's arrivals are there once decoded is closed
	// undecoded is what the decoders are to do; nil as long as there are none. Only the splitter looks at it.
	undecoded chan *parcel
	// err is why the answer ended, io.EOF if it was complete; valid once parcels is closed.
	err error
	// head is what the answer, to a list, says of itself; valid once parcels is closed.
	head metav1.ListMeta

	stop  context.CancelFunc
	ended sync.WaitGroup
}

// A parcel is handed on when it has this many objects or bytes; one with fewer than minParallel is not worth waking a
// decoder. The first object waits until the last one is decoded: parcels of 128 have made the median latency of a busy
// watch a third longer, and lists no faster.
const parcelObjects, parcelBytes, minParallel = 32, 256 << 10, 8

// parcel is some objects that stand next to each other in an answer.
type parcel struct {
	raws     []raw
	bytes    []byte // what raws point into
	protobuf bool
	// head is that of the list, if it is known: it may stand behind the items.
	head    *metav1.ListMeta
	decoded chan struct{}
	objects []arrival
	err     error // why there are not all of them; valid once decoded is closed
}

// splitting is where the splitters put what they find.
type splitting struct {
	apiVersion, kind string           // of the list; in protobuf also of the object of the latest event
	head             *metav1.ListMeta // of the list, as far as it has been read
	items, object    bool             // the answer has items; it has a uid, so it is an object itself

	add     func(raw)
	crowded bool // add could not hold what it had to
}

// isList returns an error unless the answer, which has been read, is a list of objects. What a list is called is the
// resource's own choice; it has items, which may be left out where there are none, and no uid.
func (s *splitting) isList() error {
	if err := misplaced(s.apiVersion, s.kind); err != nil {
		return err
	}
	if s.kind == "" || s.object || !s.items && !strings.HasSuffix(s.kind, "List") {
		return fmt.Errorf("%w: the answer is no list", errViolation)
	}
	return nil
}

// newIntake starts to read body, the answer to a list or a watch. Its end is to be waited for with close.
func newIntake(ctx context.Context, body io.ReadCloser, c codec, list bool) *intake {
	ctx, cancel := context.WithCancel(ctx)
	// Two for each decoder: one that is being decoded, and one that waits for the reflector.
	in := &intake{codec: c, body: body, parcels: make(chan *parcel, 2*runtime.GOMAXPROCS(0)), stop: cancel}
	in.ended.Go(func() {
		in.err = lifecycle.ErrExited // unless there is more to say
		defer func() {
			if in.err == lifecycle.ErrExited {
				c.exits.seen.Store(true)
			}
			if in.undecoded != nil {
				close(in.undecoded)
			}
			close(in.parcels)
		}()
		// The body may be one that the user's transport has made.
		if panicked := lifecycle.Try(func() { in.err = in.split(ctx, list) }); panicked != nil {
			in.err = fmt.Errorf("reading the answer: %w", panicked)
		}
	})
	return in
}

// close ends the reading and waits for its goroutines.
func (in *intake) close() {
	in.stop()
	in.body.Close()
	for range in.parcels {
		// only to let the splitter end
	}
	in.ended.Wait()
}

// What has been in the hands of one answer serves the next: a list in pages is hundreds of answers, and these were a
// quarter of all that it allocated.
var (
	spareParcels = sync.Pool{New: func() any { return &parcel{} }}
	spareReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}
)

// recycle takes back a parcel whose objects have been dealt with.
func (in *intake) recycle(b *parcel) {
	clear(b.objects) // or they would be kept alive
	clear(b.raws)    // and so would bytes that are left behind
	if cap(b.bytes) > 4*parcelBytes {
		b.bytes = nil // an uncommonly large object has been in it
	}
	*b = parcel{raws: b.raws[:0], bytes: b.bytes[:0], objects: b.objects[:0]}
	spareParcels.Put(b)
}

func (in *intake) split(ctx context.Context, list bool) error {
	var (
		b     = spareParcels.Get().(*parcel)
		out   splitting
		flush = func() {
			if len(b.raws) == 0 {
				return
			}
			b.head, b.decoded = out.head, make(chan struct{})
			if len(b.raws) < minParallel {
				in.decode(b)
			} else {
				in.decodeAside(ctx, b)
			}
			select {
			case in.parcels <- b:
			case <-ctx.Done():
			}
			b = spareParcels.Get().(*parcel)
		}
	)
	limit := int64(maxListBytes)
	if !list {
		limit = 0
	}
	from := spareReaders.Get().(*bufio.Reader)
	from.Reset(&eager{from: in.body, before: flush, limit: limit})
	defer func() {
		from.Reset(nil)
		spareReaders.Put(from)
		if len(b.raws) == 0 { // flush has left it so, unless it did not return
			spareParcels.Put(b)
		}
	}()
	first, err := from.Peek(1)
	if err != nil {
		if list {
			return truncated(err)
		}
		return between(err)
	}
	// Which of the formats it is shows in the first byte: that of JSON is a bracket or white space, that of protobuf
	// the first of the magic or, of a frame, the upper byte of a length, which is less than '\t' up to 150 MB. The
	// header that says it, too, does not come through rest.Request.
	protobuf := list && first[0] == protoMagic[0] || !list && first[0] < '\t'
	if protobuf && !in.codec.protobuf {
		return fmt.Errorf("%w: it answered in protobuf, which it was not asked for", errViolation)
	}
	// Items that only the list gives a kind have to wait for it. All servers say it first, but nothing says that they
	// must.
	var kindless []raw
	held := 0
	out.add = func(r raw) {
		if list {
			r.apiVersion, r.kind = out.apiVersion, out.kind
		}
		if list && out.kind == "" && in.codec.untyped() {
			if held += len(r.data); held > maxHeldBytes {
				kindless, out.crowded = nil, true
				return
			}
			r.data = bytes.Clone(r.data)
			kindless = append(kindless, r)
			return
		}
		start := len(b.bytes)
		b.bytes = append(b.bytes, r.data...)
		r.data = b.bytes[start:len(b.bytes):len(b.bytes)]
		b.raws, b.protobuf = append(b.raws, r), protobuf
		if len(b.raws) == parcelObjects || len(b.bytes) >= parcelBytes {
			flush()
		}
	}
	switch {
	case list && protobuf:
		err = splitProtoList(from, &out)
	case list:
		err = splitJSONList(from, &out)
	case protobuf:
		err = splitProtoWatch(from, &out)
	default:
		err = splitJSONWatch(from, &out)
	}
	if out.crowded && err == nil {
		err = fmt.Errorf("%w: more than %d bytes of items before the kind of their list", ErrTooLarge, maxHeldBytes)
	}
	if err == nil {
		for _, r := range kindless {
			out.add(r)
		}
	}
	flush()
	if list && err == nil {
		in.head = *out.head
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// decodeAside lets a decoder fill in the arrivals of a parcel. The decoders begin with the first parcel that is worth
// it and live as long as the answer: one that was made for each parcel had to grow its stack each time. That, and room
// for two parcels each, lets a busy watch take in a tenth more.
func (in *intake) decodeAside(ctx context.Context, b *parcel) {
	if in.undecoded == nil {
		undecoded := make(chan *parcel, cap(in.parcels))
		in.undecoded = undecoded
		for range runtime.GOMAXPROCS(0) {
			in.ended.Go(func() {
				for b := range undecoded {
					in.decode(b)
				}
			})
		}
	}
	select {
	case in.undecoded <- b:
	case <-ctx.Done():
	}
}

// decode fills in the arrivals of a parcel.
func (in *intake) decode(b *parcel) {
	b.err = lifecycle.ErrExited // as long as there is something missing
	defer func() {
		if b.err != nil {
			in.codec.exits.seen.Store(true)
		}
		close(b.decoded)
	}()
	for _, r := range b.raws {
		b.objects = append(b.objects, in.codec.decode(r, b.protobuf))
	}
	b.err = nil
}

// eager reads from a stream, and calls before each time that it may have to wait.
type eager struct {
	from   io.Reader
	before func()
	read   int64
	limit  int64 // zero: there is none
}

func (e *eager) Read(p []byte) (int, error) {
	if e.limit > 0 && e.read > e.limit {
		return 0, fmt.Errorf("%w: a list of more than %d bytes in one answer", ErrTooLarge, e.limit)
	}
	e.before()
	n, err := e.from.Read(p)
	e.read += int64(n)
	return n, err
}

// garbled tells an answer that was wrong from one that was cut short: what the transport has to say is nothing but the
// end of a connection.
func garbled(err error) bool {
	return errors.Is(err, errUndecodable) || errors.Is(err, errViolation) || errors.Is(err, ErrTooLarge)
}
