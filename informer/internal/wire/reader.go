package wire

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
)

// Reader reads the response to one list or watch request. It has one goroutine that splits, and for a large response
// one decoder for each processor. All of them end with Close.
//
// The splitter never holds objects back while it waits for more bytes. It decodes a small batch itself and leaves a
// large one to the decoders. The channel of batches keeps the order of the response, and so the order of the events of
// each key; its capacity bounds how far decoding runs ahead of the receiver.
type Reader struct {
	// Batches delivers the objects in the order of the response, and is closed at its end.
	Batches <-chan *Batch
	// Edit, if not nil, may change the events of each batch before Events returns them, on the goroutine of its caller,
	// who calls Events once. Set it before anything is received.
	Edit func(*Batch, []Event)

	decoder *Decoder
	body    io.ReadCloser
	batches chan *Batch
	// undecoded are the batches for the decoders; nil while there are no decoders. It belongs to the splitter.
	undecoded chan *Batch
	// head and err are what End returns, and the others say what the list was. The splitter sets them before it closes
	// batches.
	head             metav1.ListMeta
	apiVersion, kind string
	protobuf         bool
	err              error

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// A batch is delivered when it has this many objects or bytes; one with fewer than minParallel objects is not worth
// waking a decoder. The first object of a batch waits until the last one is decoded: batches of 128 objects made the
// median latency of a busy watch a third longer, and lists no faster.
const batchObjects, batchBytes, minParallel = 32, 256 << 10, 8

// Batch is some objects that stand next to each other in a response.
type Batch struct {
	// List is the ListMeta of the list, or nil if the response has not shown it yet: it may stand behind the items.
	List *metav1.ListMeta

	reader   *Reader
	raws     []raw
	bytes    []byte // raws point into it
	protobuf bool
	decoded  chan struct{} // closed once events are final
	events   []Event
}

// Events waits until the batch is decoded. The caller may keep the objects, but not the slice.
func (b *Batch) Events() []Event {
	if <-b.decoded; b.reader.Edit != nil {
		b.reader.Edit(b, b.events)
	}
	return b.events
}

// Read starts to read the body of the response to a list or, if list is false, a watch. The reading ends with ctx; the
// caller must call Close in any case.
func (d *Decoder) Read(ctx context.Context, body io.ReadCloser, list bool) *Reader {
	ctx, cancel := context.WithCancel(ctx)
	// Two for each decoder: one that is being decoded, and one that waits for the receiver.
	batches := make(chan *Batch, 2*runtime.GOMAXPROCS(0))
	r := &Reader{Batches: batches, decoder: d, body: body, batches: batches, cancel: cancel}
	r.ended.Go(func() {
		r.err = r.read(ctx, list)
		if r.undecoded != nil {
			close(r.undecoded)
		}
		close(batches)
	})
	return r
}

// End returns the ListMeta of a list that was read completely, and why the response ended: nil for a complete list,
// io.EOF for a watch that ended between two events, ctx.Err() if ctx ended. It is valid once Batches is closed.
func (r *Reader) End() (metav1.ListMeta, error) { return r.head, r.err }

// Close ends the reading and waits for its goroutines.
func (r *Reader) Close() {
	r.cancel()
	r.body.Close()
	for range r.batches {
		// drained, so that the splitter can end
	}
	r.ended.Wait()
}

// What one response used serves the next: a list in pages is hundreds of responses, and these were a quarter of all
// that it allocated.
var (
	spareBatches = sync.Pool{New: func() any { return &Batch{} }}
	spareBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}
	smallBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1<<10) }} // for Decoder.Quiet
)

// Recycle takes back a batch whose events the caller no longer uses.
func (r *Reader) Recycle(b *Batch) {
	clear(b.events) // drop the references to the objects
	clear(b.raws)   // and to buffers that the batch has outgrown
	if cap(b.bytes) > 4*batchBytes {
		b.bytes = nil // it has grown around an uncommonly large object
	}
	*b = Batch{raws: b.raws[:0], bytes: b.bytes[:0], events: b.events[:0]}
	spareBatches.Put(b)
}

// read splits the response to its end.
func (r *Reader) read(ctx context.Context, list bool) error {
	limit := int64(0)
	if list {
		limit = maxListBytes
	}
	g := &gatherer{ctx: ctx, reader: r, list: list}
	g.response.add = g.add
	buffers := &spareBuffers
	if r.decoder.Quiet {
		buffers = &smallBuffers
	}
	from := buffers.Get().(*bufio.Reader)
	from.Reset(&flushing{from: r.body, flush: g.flush, limit: limit})
	defer func() {
		from.Reset(nil)
		buffers.Put(from)
	}()
	err := g.split(from)
	if err == nil {
		err = g.addTypeless()
	}
	g.flush()
	if list && err == nil {
		r.head = *g.response.head
		r.apiVersion, r.kind, r.protobuf = g.response.apiVersion, g.response.kind, g.protobuf
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// response is what the splitters find in a response.
type response struct {
	apiVersion, kind string           // of the list; in a protobuf watch those of the object of the latest event
	head             *metav1.ListMeta // of the list; nil until it has been read
	items, object    bool             // the response has items; it has a uid, so it is an object itself

	add func(raw) // is called for each object; the bytes of the raw are valid until it returns
}

// isList returns an error unless the response, which has been read, is a list of objects. A resource may call its list
// as it likes. A list has items, which may be left out if there are none, and no uid.
func (r *response) isList() error {
	if err := isObject(r.apiVersion, r.kind); err != nil {
		return err
	}
	if r.kind == "" || r.object || !r.items && !strings.HasSuffix(r.kind, "List") {
		return fmt.Errorf("%w: the answer is no list", ErrViolation)
	}
	return nil
}

// gatherer fills the batches of one response.
type gatherer struct {
	ctx            context.Context
	reader         *Reader
	response       response
	list, protobuf bool
	batch          *Batch // nil while there is nothing to deliver, so that a watch that waits keeps no memory
	// typeless are the items that take their kind or version from their list, and came before it. Custom resources say
	// their own, and the list of any other resource its kind first; but nothing says that they must.
	typeless      []raw
	typelessBytes int
	inside        jsonReader // of the item that is looked at
}

// split finds out the format of the response and calls the splitter for it.
func (g *gatherer) split(from *bufio.Reader) error {
	first, err := from.Peek(1)
	switch {
	case err != nil && g.list:
		return truncated(err)
	case err != nil:
		return between(err)
	}
	// The first byte tells the format. In JSON it is a bracket or white space. In protobuf it is the first of the magic
	// or, of a frame, the upper byte of a length, which is less than '\t' up to 150 MB. rest.Request does not pass on
	// the Content-Type header.
	g.protobuf = g.list && first[0] == protoMagic[0] || !g.list && first[0] < '\t'
	switch {
	case g.protobuf && !g.reader.decoder.protobuf:
		return fmt.Errorf("%w: it answered in protobuf, which it was not asked for", ErrViolation)
	case g.list && g.protobuf:
		return splitProtoList(from, &g.response)
	case g.list:
		return splitJSONList(from, &g.response)
	case g.protobuf:
		return splitProtoWatch(from, &g.response)
	default:
		return splitJSONWatch(from, &g.response)
	}
}

// add adds an object, or keeps it until its list has said its type.
func (g *gatherer) add(r raw) {
	if g.list {
		r.apiVersion, r.kind, r.listed = g.response.apiVersion, g.response.kind, true
		if g.reader.decoder.untyped() && !r.cut && !saysType(r, &g.inside) {
			if g.typelessBytes += len(r.data); g.typelessBytes > maxTypelessBytes {
				g.typeless = nil // addTypeless returns the error
			} else {
				r.data = bytes.Clone(r.data)
				g.typeless = append(g.typeless, r)
			}
			return
		}
	}
	g.append(r)
}

// append copies an object into the batch.
func (g *gatherer) append(r raw) {
	if g.batch == nil {
		g.batch = spareBatches.Get().(*Batch)
	}
	b := g.batch
	start := len(b.bytes)
	b.bytes = append(b.bytes, r.data...)
	r.data = b.bytes[start:len(b.bytes):len(b.bytes)]
	b.raws, b.protobuf = append(b.raws, r), g.protobuf
	if len(b.raws) == batchObjects || len(b.bytes) >= batchBytes {
		g.flush()
	}
}

func (g *gatherer) addTypeless() error {
	if g.typelessBytes > maxTypelessBytes {
		return fmt.Errorf("%w: more than %d bytes of items that have no kind and precede the kind of their list",
			ErrTooLarge, maxTypelessBytes)
	}
	for _, r := range g.typeless {
		r.apiVersion, r.kind = g.response.apiVersion, g.response.kind
		g.append(r)
	}
	return nil
}

// flush delivers the batch, if there is one.
func (g *gatherer) flush() {
	b := g.batch
	if b == nil {
		return
	}
	b.reader, b.List, b.decoded = g.reader, g.response.head, make(chan struct{})
	if len(b.raws) < minParallel {
		g.reader.decode(b)
	} else {
		g.reader.decodeAside(b)
	}
	select {
	case g.reader.batches <- b:
	case <-g.ctx.Done():
	}
	g.batch = nil
}

// decodeAside leaves a batch to the decoders. They start with the first batch that is worth it and live as long as the
// response: a goroutine for each batch had to grow its stack each time. That, and room for two batches each, lets a
// busy watch take in a tenth more.
//
// Whatever ends the reading, a decoder gets the batch: decoders wait for nothing else, and whoever receives the batch
// waits for its decoder.
func (r *Reader) decodeAside(b *Batch) {
	if r.undecoded == nil {
		undecoded := make(chan *Batch, cap(r.batches))
		r.undecoded = undecoded
		for range runtime.GOMAXPROCS(0) {
			r.ended.Go(func() {
				for b := range undecoded {
					r.decode(b)
				}
			})
		}
	}
	r.undecoded <- b
}

// decode fills in the events of a batch.
func (r *Reader) decode(b *Batch) {
	for _, raw := range b.raws {
		b.events = append(b.events, r.decoder.decode(raw, b.protobuf))
	}
	close(b.decoded)
}

// flushing is a stream that calls flush before each read that may have to wait.
type flushing struct {
	from  io.Reader
	flush func()
	read  int64
	limit int64 // of what is read, in bytes; zero for none
}

func (f *flushing) Read(p []byte) (int, error) {
	if f.limit > 0 && f.read > f.limit {
		return 0, fmt.Errorf("%w: a list of more than %d bytes in one answer", ErrTooLarge, f.limit)
	}
	f.flush()
	n, err := f.from.Read(p)
	f.read += int64(n)
	return n, err
}

// truncated makes the end of a stream in the middle of a value an error.
func truncated(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// between makes the end of a watch between two events an ordinary one. The response to a watch has no length, so HTTP
// reports each connection that is lost as an unexpected EOF.
func between(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}
