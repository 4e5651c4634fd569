package packed

import (
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// zip compresses with a dictionary. Encoders and decoders hold 100 KB and more each, so they are kept for the next
// call, and the garbage collector takes those that are idle.
type zip struct {
	encoders, decoders sync.Pool
}

// maxObject bounds what a decoder makes of bytes. An API server takes no object of this size.
const maxObject = 64 << 20

func newZip(samples [][]byte) *zip {
	dictionary := slices.Concat(samples...)
	const id = 1 // any number: there is one dictionary
	return &zip{
		encoders: sync.Pool{New: func() any {
			return must(zstd.NewWriter(nil, zstd.WithEncoderDictRaw(id, dictionary), zstd.WithEncoderConcurrency(1),
				zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)))
		}},
		decoders: sync.Pool{New: func() any {
			return must(zstd.NewReader(nil, zstd.WithDecoderDictRaw(id, dictionary), zstd.WithDecoderConcurrency(1),
				zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxObject)))
		}},
	}
}

// must returns a coder. Making one fails only for options that do not exist.
func must[T any](coder T, err error) T {
	if err != nil {
		panic(err)
	}
	return coder
}

// pack returns the format and the compressed bytes.
func (z *zip) pack(format byte, raw []byte) string {
	e := z.encoders.Get().(*zstd.Encoder)
	defer z.encoders.Put(e)
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	*b = e.EncodeAll(raw, append((*b)[:0], format))
	return string(*b)
}

// unpack calls a function with the bytes that were compressed, which it must not keep.
func (z *zip) unpack(data []byte, use func(raw []byte) error) error {
	d := z.decoders.Get().(*zstd.Decoder)
	defer z.decoders.Put(d)
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	raw, err := d.DecodeAll(data, (*b)[:0])
	if err != nil {
		return err
	}
	*b = raw
	return use(raw)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}
